"""The cost of every assignment, for small problems: the reference for the other solvers.

So it shares no code with them and considers everything. An array has one axis for each node with a choice of devices;
each term of the cost is an array of length 1 in the axes of nodes on which it does not depend, and is broadcast.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shisha_rt.outcome import STOPPED, Outcome, ShouldStop, never
from shisha_rt.placement.check import cost
from shisha_rt.placement.problem import Group, Problem, ProblemTensor
from shisha_rt.placement.solution import PlacementSolution

LIMIT_ASSIGNMENTS: Final = 2**24
"""128 MiB of costs; 15 nodes on three devices are within the limit."""

LIMIT_PACKINGS: Final = 2**16
"""Of groups that share nodes, directly or through others: each costs a pass over the assignments of their nodes."""

Term = NDArray[np.float64]


def brute(
    problem: Problem, limit_assignments: int = LIMIT_ASSIGNMENTS, should_stop: ShouldStop = never
) -> PlacementSolution:
    """The cheapest of all assignments; LIMIT without one if there are more than `limit_assignments`, on a stop, or if
    groups that share nodes have more than `LIMIT_PACKINGS` disjoint choices.
    """
    if assignment_count(problem) > limit_assignments:
        return PlacementSolution(None, Outcome.LIMIT, reason=f"more than {limit_assignments} assignments to try")
    for groups in _overlapping(problem.groups):
        if next(islice(_packings(groups), LIMIT_PACKINGS, None), None) is not None:
            return PlacementSolution(None, Outcome.LIMIT, reason=f"more than {LIMIT_PACKINGS} choices of groups to try")
    cost_s = _summed_s(problem, should_stop)
    if cost_s is None:
        return PlacementSolution(None, Outcome.LIMIT, reason=STOPPED)
    best = int(cost_s.argmin())
    assignment = assignment_at(problem, best)
    # The checker adds the same costs in another order; the bound is the lower of the two, which differ by rounding.
    bound_s = min(float(cost_s[best]), cost(problem, assignment).total_s)
    return PlacementSolution(assignment, Outcome.OPTIMAL, bound_s, statistics={"assignments": float(len(cost_s))})


def assignment_count(problem: Problem) -> int:
    return math.prod(map(len, problem.devices_of))


def assignment_at(problem: Problem, index: int) -> tuple[int, ...]:
    """The assignment of an index, in the order in which the last node's device changes fastest."""
    devices = []
    for candidates in reversed(problem.devices_of):
        index, choice = divmod(index, len(candidates))
        devices.append(candidates[choice])
    return tuple(reversed(devices))


def every_cost_s(problem: Problem) -> NDArray[np.float64]:
    """(assignments,): seconds, by the index of `assignment_at`; inf if a node cannot run."""
    cost_s = _summed_s(problem, never)
    assert cost_s is not None
    return cost_s


def _summed_s(problem: Problem, should_stop: ShouldStop) -> NDArray[np.float64] | None:
    sizes = [len(devices) for devices in problem.devices_of if len(devices) > 1]
    total_s = np.zeros(sizes)
    for term_s in _Terms(problem, len(sizes), should_stop).all():
        if should_stop():
            return None
        total_s += term_s
    return total_s.reshape(-1)


class _Terms:
    """The terms of the cost: arrays of `axes` axes, of length 1 except in axes of nodes that the term depends on."""

    def __init__(self, problem: Problem, axes: int, should_stop: ShouldStop) -> None:
        self._problem = problem
        self._should_stop = should_stop
        chosen = iter(range(axes))
        self._devices: list[NDArray[np.intp]] = []  # the devices of each node, along its own axis
        for devices in problem.devices_of:
            shape = [1] * axes
            if len(devices) > 1:
                shape[next(chosen)] = len(devices)
            self._devices.append(np.array(devices, np.intp).reshape(shape))

    def all(self) -> Iterator[Term]:
        grouped = {node for group in self._problem.groups for node in group.nodes}
        for node in range(len(self._problem.nodes)):
            if node not in grouped:
                yield self._alone_s(node)
        for groups in _overlapping(self._problem.groups):
            yield self._least_s(groups)
        for tensor in self._problem.tensors:
            yield from self._transfers(tensor)

    def _alone_s(self, node: int) -> Term:
        return np.array(self._problem.nodes[node].cost_s)[self._devices[node]]

    def _transfers(self, tensor: ProblemTensor) -> Iterator[Term]:
        memory_of, transfer_s = np.array(self._problem.memory_of), np.array(tensor.transfer_s)
        source = self._devices[tensor.producer]
        targets = [memory_of[self._devices[consumer]] for consumer in tensor.consumers]
        if self._problem.transfer_counting == "per_edge":
            yield from (transfer_s[source, target] for target in targets)
            return
        for memory in range(len(self._problem.memories)):
            needed = np.zeros((1,) * source.ndim, bool)
            for target in targets:
                needed = needed | (target == memory)
            yield np.where(needed, transfer_s[source, memory], 0.0)

    def _least_s(self, groups: Sequence[Group]) -> Term:
        """Least cost of the nodes of these groups, over all sets of disjoint groups; on a stop, over some."""
        every = {node for group in groups for node in group.nodes}
        least_s: Term = np.full((), math.inf)
        for packing in _packings(groups):
            sum_s: Term = np.zeros(())
            for group in packing:
                sum_s = sum_s + self._group_s(group)
            taken = frozenset(node for group in packing for node in group.nodes)
            least_s = np.minimum(least_s, sum((self._alone_s(node) for node in every - taken), sum_s))
            if self._should_stop():
                break
        return least_s

    def _group_s(self, group: Group) -> Term:
        """Cost of the group if all of its nodes are on its device; else inf."""
        whole = np.ones((), bool)
        for node in group.nodes:
            whole = whole & (self._devices[node] == group.device)
        return np.where(whole, group.cost_s, math.inf)


def _packings(groups: Sequence[Group]) -> Iterator[tuple[Group, ...]]:
    """All sets of disjoint groups, each in the given order."""
    begun: list[tuple[tuple[Group, ...], frozenset[int], int]] = [((), frozenset(), 0)]
    while begun:
        packing, taken, start = begun.pop()
        yield packing
        for at in range(start, len(groups)):
            nodes = frozenset(groups[at].nodes)
            if not taken & nodes:
                begun.append(((*packing, groups[at]), taken | nodes, at + 1))


def _overlapping(groups: Sequence[Group]) -> list[list[Group]]:
    """The connected components of the groups: groups that share nodes, directly or through others, are together."""
    parts: list[list[Group]] = []
    for group in groups:
        touching = [part for part in parts if any(set(group.nodes) & set(other.nodes) for other in part)]
        parts = [part for part in parts if part not in touching]
        parts.append([group, *(other for part in touching for other in part)])
    return parts
