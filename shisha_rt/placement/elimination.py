"""Variable elimination: minimises a sum of tables over variables of few values each. Generic: knows no placement.

Eliminating a variable joins the tables that contain it, and keeps the least sum for each choice of its neighbours'
values (Bertele and Brioschi, Nonserial Dynamic Programming, 1972). The work is the entries of the joined tables:
exponential in the width of the order, linear in the number of variables. Only one joined table is in memory at a time;
the tables of least sums are kept, and on the way back each variable's best value is computed from them again. A best
order is hard to find. This one takes variables with at most two neighbours first, which never raises the treewidth
(islet, twig and series rule) and so is optimal up to treewidth 2; then the variable that makes the smallest table.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shisha_rt.outcome import ShouldStop, never

Table = NDArray[np.float64]
Scope = tuple[int, ...]
"""The variables of a table, one for each of its axes, none twice."""

Factor = tuple[Scope, Table]
"""A table of costs, inf for combinations of values that are not allowed."""


@dataclass(frozen=True, slots=True)
class Order:
    """`neighbours[i]`: the other variables of the joined table of `variables[i]`; all are eliminated later.

    `entries`: of all joined tables; `held`: most entries in memory at once; `width`: most neighbours of a variable.
    """

    variables: tuple[int, ...]
    neighbours: tuple[Scope, ...]
    entries: int
    held: int
    width: int


def elimination_order(sizes: Sequence[int], scopes: Sequence[Scope], limit_entries: int) -> Order | None:
    """Greedy order; None if the joined tables would have more than `limit_entries` entries together.

    `sizes` (variables,): numbers of values; a variable with a single value must be in no scope. O(variables log
    variables) at bounded width.
    """
    left = _Left(sizes, scopes, limit_entries)
    urgencies = [left.urgency(variable) for variable in range(len(sizes))]
    heap = [(value, variable) for variable, value in enumerate(urgencies)]
    heapq.heapify(heap)
    variables: list[int] = []
    neighbours: list[Scope] = []
    total = largest = kept = 0.0
    while heap:
        value, variable = heapq.heappop(heap)
        if value != urgencies[variable]:
            continue  # its neighbours changed after this was pushed
        joined = left.entries(variable)
        total += joined
        if total > limit_entries:
            return None
        largest, kept = max(largest, joined), kept + joined / sizes[variable]
        urgencies[variable] = -1.0
        variables.append(variable)
        neighbours.append(left.eliminate(variable))
        for other in neighbours[-1]:
            now = left.urgency(other)
            if now != urgencies[other]:
                urgencies[other] = now
                heapq.heappush(heap, (now, other))
    held = int(2 * largest + kept)  # a sum of two tables, and all best values
    return Order(tuple(variables), tuple(neighbours), int(total), held, max(map(len, neighbours), default=0))


class _Left:
    """The variables that are not eliminated yet, and which of them share a table."""

    def __init__(self, sizes: Sequence[int], scopes: Sequence[Scope], limit_entries: int) -> None:
        self._sizes = sizes
        self._most_neighbours = limit_entries.bit_length()  # with more, even 2 values each exceed the limit
        self._adjacent: list[set[int]] = [set() for _ in sizes]
        for scope in scopes:
            for variable in scope:
                self._adjacent[variable].update(scope)
        for variable, others in enumerate(self._adjacent):
            others.discard(variable)

    def entries(self, variable: int) -> float:
        """Entries of the table that joins all tables of a variable."""
        others = self._adjacent[variable]
        if len(others) > self._most_neighbours:
            return math.inf
        return self._sizes[variable] * math.prod([self._sizes[other] for other in others])

    def urgency(self, variable: int) -> float:
        """Sort key: the variable with the least is eliminated first."""
        count = len(self._adjacent[variable])
        return count if count <= 2 else self.entries(variable)  # at least 2 ** 4

    def eliminate(self, variable: int) -> Scope:
        """Remove a variable and return its neighbours, which share a table from then on."""
        others = self._adjacent[variable]
        for other in others:
            around = self._adjacent[other]
            around |= others
            around -= {other, variable}
        return tuple(others)


class Least(NamedTuple):
    """The least sum of tables, inf if no combination of values is allowed, and the (variables,) values that have it."""

    total: float
    values: list[int]


def _buckets(
    factors: Sequence[Factor], position: Sequence[int], variable_count: int
) -> tuple[float, list[list[Factor]]]:
    """Return the sum of the factors without variables, and the others by their variables' first position."""
    least = 0.0
    buckets: list[list[Factor]] = [[] for _ in range(variable_count)]
    for scope, table in factors:
        positions = tuple([position[variable] for variable in scope])
        if not positions:
            least += float(table)
        elif len(positions) == 1 or (len(positions) == 2 and positions[0] < positions[1]):
            buckets[positions[0]].append((positions, table))
        else:
            axes = sorted(range(len(positions)), key=positions.__getitem__)
            positions = tuple([positions[axis] for axis in axes])
            buckets[positions[0]].append((positions, table.transpose(axes)))
    return least, buckets


def minimise(
    sizes: Sequence[int],
    factors: Sequence[Factor],
    order: Order,
    should_stop: ShouldStop = never,
) -> Least | None:
    """Minimise the sum of the factors; `order` covers the variables of their scopes.

    None if stopped: `should_stop` is asked at each variable.
    """
    position = [0] * len(sizes)
    for at, variable in enumerate(order.variables):
        position[variable] = at
    # From here on variables are given by position, and axes ascend: the next variable to eliminate is always axis 0.
    least, buckets = _buckets(factors, position, len(order.variables))
    size = [sizes[variable] for variable in order.variables]
    for at, others in enumerate(order.neighbours):
        if should_stop():
            return None
        later = tuple(sorted([position[other] for other in others]))
        best = np.minimum.reduce(_join(buckets[at], (at, *later), size), 0)
        if later:
            buckets[later[0]].append((later, best))
        else:
            least += float(best)

    chosen = [0] * len(order.variables)
    for at in range(len(order.variables) - 1, -1, -1):
        left: list[Factor] = []
        for positions, table in buckets[at]:
            fixed: tuple[int | slice, ...] = (slice(None), *[chosen[other] for other in positions[1:]])
            left.append(((at,), table[fixed]))
        chosen[at] = int(_join(left, (at,), size).argmin())
    values = [0] * len(sizes)
    for at, variable in enumerate(order.variables):
        values[variable] = chosen[at]
    return Least(least, values)


def _join(bucket: Sequence[Factor], scope: Scope, size: Sequence[int]) -> Table:
    """The sum of the bucket's tables, over the whole scope."""
    total: Table | None = None
    for positions, table in bucket:
        if len(positions) < len(scope):
            table = table.reshape([size[at] if at in positions else 1 for at in scope])
        total = table if total is None else total + table
    return np.zeros(size[scope[0]]) if total is None else total
