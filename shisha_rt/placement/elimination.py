"""Variable elimination: the least of a sum of tables over variables of few values each. Generic; nothing of placement.

Eliminating a variable joins the tables that it stands in, and keeps, for each choice of its neighbours, its best
value (Bertele and Brioschi, Nonserial Dynamic Programming, 1972). The work and the room are the entries of the joined
tables: exponential in the width of the order, linear in the number of variables. A best order is hard to find. This
one takes variables with at most two neighbours first, which never raises the treewidth (islet, twig and series rule)
and so is best possible up to treewidth 2; beyond that, whichever makes the smallest table.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.float64]
Scope = tuple[int, ...]
"""The variables of a table, one for each of its axes, none twice."""

Factor = tuple[Scope, Table]
"""A table of costs, inf where values do not go together."""


@dataclass(frozen=True, slots=True)
class Order:
    """`neighbours[i]` is what the table of `variables[i]` spans besides itself; all of it is eliminated later.

    `entries` counts those of all joined tables, `width` is the most neighbours.
    """

    variables: tuple[int, ...]
    neighbours: tuple[Scope, ...]
    entries: int
    width: int


def elimination_order(sizes: Sequence[int], scopes: Sequence[Scope], limit_entries: int) -> Order | None:
    """Greedy order; None once the joined tables would have more than `limit_entries` entries together.

    `sizes` is (variables,) values. Variables of one value are in no scope. O(variables log variables) at bounded width.
    """
    adjacent: list[set[int]] = [set() for _ in sizes]
    for scope in scopes:
        for variable in scope:
            adjacent[variable].update(scope)
    for variable, others in enumerate(adjacent):
        others.discard(variable)

    most_neighbours = limit_entries.bit_length()  # beyond it 2 values each are too many already

    def entries(variable: int) -> float:
        others = adjacent[variable]
        if len(others) > most_neighbours:
            return math.inf
        return sizes[variable] * math.prod([sizes[other] for other in others])

    def urgency(variable: int) -> float:
        count = len(adjacent[variable])
        return count if count <= 2 else entries(variable)  # which are 16 or more

    urgencies = [urgency(variable) for variable in range(len(sizes))]
    heap = [(value, variable) for variable, value in enumerate(urgencies)]
    heapq.heapify(heap)
    variables: list[int] = []
    neighbours: list[Scope] = []
    total = 0.0
    while heap:
        value, variable = heapq.heappop(heap)
        if value != urgencies[variable]:
            continue  # its neighbours changed after this was pushed
        total += entries(variable)
        if total > limit_entries:
            return None
        urgencies[variable] = -1.0
        others = adjacent[variable]
        variables.append(variable)
        neighbours.append(tuple(others))
        for other in others:
            around = adjacent[other]
            around |= others
            around -= {other, variable}
            now = urgency(other)
            if now != urgencies[other]:
                urgencies[other] = now
                heapq.heappush(heap, (now, other))
    return Order(tuple(variables), tuple(neighbours), int(total), max(map(len, neighbours), default=0))


def minimise(sizes: Sequence[int], factors: Sequence[Factor], order: Order) -> tuple[float, list[int]]:
    """The least sum of the factors, inf if no values go together, and (variables,) values that have it.

    `order` is over the variables of the factors' scopes.
    """
    position = [0] * len(sizes)
    for place, variable in enumerate(order.variables):
        position[variable] = place
    # From here on a variable is its position, and axes ascend: the one to be eliminated always comes first.
    buckets: list[list[Factor]] = [[] for _ in order.variables]
    least = 0.0
    for scope, table in factors:
        places = tuple([position[variable] for variable in scope])
        if not places:
            least += float(table)
        elif len(places) == 1 or (len(places) == 2 and places[0] < places[1]):
            buckets[places[0]].append((places, table))
        else:
            axes = sorted(range(len(places)), key=places.__getitem__)
            places = tuple([places[axis] for axis in axes])
            buckets[places[0]].append((places, table.transpose(axes)))

    size = [sizes[variable] for variable in order.variables]
    joined: list[tuple[Scope, Table]] = []
    for place, others in enumerate(order.neighbours):
        later = tuple(sorted([position[other] for other in others]))
        table = _join(buckets[place], (place, *later), size)
        buckets[place] = []
        joined.append((later, table))
        best = np.minimum.reduce(table, 0)
        if later:
            buckets[later[0]].append((later, best))
        else:
            least += float(best)

    chosen = [0] * len(order.variables)
    for place in range(len(joined) - 1, -1, -1):
        later, table = joined[place]
        known: tuple[int | slice, ...] = (slice(None), *[chosen[other] for other in later])
        chosen[place] = int(table[known].argmin())
    values = [0] * len(sizes)
    for place, variable in enumerate(order.variables):
        values[variable] = chosen[place]
    return least, values


def _join(bucket: Sequence[Factor], scope: Scope, size: Sequence[int]) -> Table:
    """The sum of the bucket's tables, over the whole scope."""
    total: Table | None = None
    for places, table in bucket:
        if len(places) < len(scope):
            table = table.reshape([size[place] if place in places else 1 for place in scope])
        total = table if total is None else total + table
    return np.zeros(size[scope[0]]) if total is None else total
