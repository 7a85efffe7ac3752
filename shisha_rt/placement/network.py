"""A placement problem as a cost network: variables of few values, and tables of seconds over a few of them each.

Every node is a variable. So that a tensor of several consumers is paid once for each memory, it gets a helper
variable, the set of memories with a copy: the producer pays for the set, and each consumer's memory must be in it. As
no cost is negative and copies come directly from the producer, some optimal set has at most one member per consumer.
If there are many sets, a tensor of two consumers has a table over all three nodes instead; any other tensor with too
many sets to list has a helper for each memory, which says whether that memory has a copy: the tables are then small,
but a variable has many neighbours.

Groups add no variables: a value of a node is a device, either alone or as a member of one group. For each link between
successive members of a group, both ends are in the same group with that link, or neither end is in such a group. So all
members of a group are in it or none, groups in use are disjoint, and the constraint joins only nodes that a tensor
joins already.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shisha_rt.placement.elimination import Factor, Scope, Table
from shisha_rt.placement.problem import Group, Problem, ProblemTensor

Ints = NDArray[np.intp]

_NO_GROUP: Final = -1

_MANY_SETS: Final = 4
"""With more sets than this for each value of a node, a table over three nodes is smaller than a helper's tables."""
_MOST_ENTRIES: Final = 1 << 22
"""Limit of the entries of all tables with sets, together: 32 MiB."""


@dataclass(frozen=True, slots=True)
class States:
    """(states,) of a node: alone on a device (`group` -1), or in a group (index), whose first node pays for all."""

    device: Ints
    memory: Ints
    group: Ints
    cost_s: Table


@dataclass(frozen=True, slots=True)
class CostNetwork:
    """Minimise the sum of `factors`; variable i has `sizes[i]` values; variables with a single value are in no scope.

    The first variables are the nodes, with values `states`. Helpers follow; `producers` has the producer of each one's
    tensor.
    """

    states: tuple[States, ...]
    sizes: list[int]
    factors: list[Factor]
    producers: list[int]

    @property
    def scopes(self) -> list[Scope]:
        return [scope for scope, _ in self.factors]

    @property
    def sequence(self) -> list[int]:
        """All variables, each helper after the node that makes its tensor."""
        anchors = [*range(len(self.states)), *self.producers]
        return sorted(range(len(anchors)), key=lambda variable: (anchors[variable], variable))

    def devices(self, values: Sequence[int]) -> tuple[int, ...]:
        """(nodes,): the assignment that (variables,) `values` stand for."""
        return tuple([int(states.device[value]) for states, value in zip(self.states, values, strict=False)])


def cost_network(problem: Problem) -> CostNetwork:
    """Build the cost network of a problem; the size of its tables is linear in the problem's."""
    groups = {index: group for index, group in enumerate(problem.groups) if _saves(problem, group)}
    states = _states(problem, groups)
    network = CostNetwork(states, [len(node.device) for node in states], [], [])
    for node, node_states in enumerate(states):
        _add(network, (node,), node_states.cost_s)
    entries = 0
    for tensor in problem.tensors:
        from_s = np.array(tensor.transfer_s)[states[tensor.producer].device]
        readers = len(tensor.consumers)
        if not readers or not from_s.any():
            continue  # free wherever it goes
        if problem.transfer_counting == "per_edge" or readers == 1:
            _add_moves(network, tensor, from_s)
            continue
        sizes = [network.sizes[node] for node in (tensor.producer, *tensor.consumers)]
        reach = frozenset([m for consumer in tensor.consumers for m in states[consumer].memory.tolist()])
        sets = sum(math.comb(len(reach), members) for members in range(1, readers + 1))
        if readers == 2 and sets > _MANY_SETS * max(sizes):
            _add_pair(network, tensor, from_s)
        elif entries + sets * sum(sizes) <= _MOST_ENTRIES:
            entries += sets * sum(sizes)
            _add_sets(network, tensor, from_s, _sets(reach, min(readers, len(reach)), len(problem.memories)))
        else:
            _add_copies(network, tensor, from_s, reach)
    _add_links(network, groups)
    return network


def _saves(problem: Problem, group: Group) -> bool:
    """Whether a group saves anything; a group with a member that cannot run alone always does."""
    return group.cost_s < sum([problem.nodes[node].cost_s[group.device] for node in group.nodes])


def _states(problem: Problem, groups: Mapping[int, Group]) -> tuple[States, ...]:
    member_of: list[list[int]] = [[] for _ in problem.nodes]
    for index, group in groups.items():
        for member in group.nodes:
            member_of[member].append(index)
    memory_of = np.array(problem.memory_of, np.intp)
    tables = []
    for number, (node, memberships) in enumerate(zip(problem.nodes, member_of, strict=True)):
        alone = node.capable
        device = np.array([*alone, *[groups[index].device for index in memberships]], np.intp)
        shares_s = [groups[index].cost_s if groups[index].nodes[0] == number else 0.0 for index in memberships]
        cost_s = np.array([*[node.cost_s[d] for d in alone], *shares_s])
        group_of_value = np.array([_NO_GROUP] * len(alone) + memberships, np.intp)
        tables.append(States(device, memory_of[device], group_of_value, cost_s))
    return tuple(tables)


def _add(network: CostNetwork, scope: Scope, table: Table) -> None:
    """Add a factor, without variables of a single value: they would only make their neighbours neighbours."""
    sizes = network.sizes
    several = tuple([variable for variable in scope if sizes[variable] > 1])
    if len(several) < len(scope):
        scope = several
        table = table.reshape([sizes[variable] for variable in scope])
    network.factors.append((scope, table))


def _add_moves(network: CostNetwork, tensor: ProblemTensor, from_s: Table) -> None:
    """One payment for each consumer; `from_s` is (states of the producer, memories) seconds."""
    for consumer in tensor.consumers:
        _add(network, (tensor.producer, consumer), from_s[:, network.states[consumer].memory])


def _add_pair(network: CostNetwork, tensor: ProblemTensor, from_s: Table) -> None:
    """One payment for each memory of the two consumers."""
    first, other = [network.states[consumer].memory for consumer in tensor.consumers]
    to_one_s, to_other_s = from_s[:, first, None], from_s[:, None, other]
    table = to_one_s + np.where(first[:, None] == other, 0.0, to_other_s)
    _add(network, (tensor.producer, *tensor.consumers), table)


def _add_sets(network: CostNetwork, tensor: ProblemTensor, from_s: Table, sets: Table) -> None:
    """One payment for each memory; `from_s` is (states of the producer, memories) seconds, `sets` is from `_sets`."""
    helper = _helper(network, tensor, len(sets))
    _add(network, (tensor.producer, helper), from_s @ sets.T)
    absent_s = np.where(sets > 0, 0.0, math.inf)
    for consumer in tensor.consumers:
        _add(network, (helper, consumer), absent_s[:, network.states[consumer].memory])


def _add_copies(network: CostNetwork, tensor: ProblemTensor, from_s: Table, reach: frozenset[int]) -> None:
    """One payment for each memory, with a helper for each memory: 1 if it has a copy, else 0."""
    for memory in sorted(reach):
        helper = _helper(network, tensor, 2)
        _add(network, (tensor.producer, helper), from_s[:, memory, None] * [0.0, 1.0])
        for consumer in tensor.consumers:
            there = network.states[consumer].memory == memory
            if there.any():
                _add(network, (helper, consumer), np.array([np.where(there, math.inf, 0.0), np.zeros(len(there))]))


def _helper(network: CostNetwork, tensor: ProblemTensor, size: int) -> int:
    network.sizes.append(size)
    network.producers.append(tensor.producer)
    return len(network.sizes) - 1


@lru_cache(maxsize=8)
def _sets(reach: frozenset[int], most: int, memories: int) -> Table:
    """(sets, memories): all sets of 1 to `most` memories of `reach`; 1 for members of a set, 0 for others."""
    listed = [members for size in range(1, most + 1) for members in combinations(sorted(reach), size)]
    sets = np.zeros((len(listed), memories))
    for row, members in zip(sets, listed, strict=True):
        row[list(members)] = 1
    return sets


def _add_links(network: CostNetwork, groups: Mapping[int, Group]) -> None:
    groups_with: dict[tuple[int, int], list[int]] = {}
    for index, group in groups.items():
        for link in pairwise(group.nodes):
            groups_with.setdefault(link, []).append(index)
    for link, indices in groups_with.items():
        first, second = [
            np.where(np.isin(network.states[node].group, indices), network.states[node].group, _NO_GROUP)
            for node in link
        ]
        _add(network, link, np.where(first[:, None] == second, 0.0, math.inf))
