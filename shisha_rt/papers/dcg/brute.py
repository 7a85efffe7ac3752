"""Every assignment's cost, for small problems: what the other solvers are held against.

So it shares nothing with them and leaves nothing out. One array has an axis for each node that has a choice, and each
term of the cost, an array that is long only in the axes of its own nodes, is added to all of it at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shisha_rt.outcome import STOPPED, Outcome, ShouldStop, never
from shisha_rt.placement.check import cost
from shisha_rt.placement.problem import Group, Problem, ProblemTensor
from shisha_rt.placement.solution import PlacementSolution

LIMIT_ASSIGNMENTS: Final = 2**24
"""128 MiB of costs; 15 nodes on three devices are within it."""

Term = NDArray[np.float64]


def brute(
    problem: Problem, limit_assignments: int = LIMIT_ASSIGNMENTS, should_stop: ShouldStop = never
) -> PlacementSolution:
    """The cheapest of all assignments; none (LIMIT) where there are more than `limit_assignments`, or on a stop."""
    if assignment_count(problem) > limit_assignments:
        return PlacementSolution(None, Outcome.LIMIT, reason=f"more than {limit_assignments} assignments to try")
    cost_s = _summed_s(problem, should_stop)
    if cost_s is None:
        return PlacementSolution(None, Outcome.LIMIT, reason=STOPPED)
    best = int(cost_s.argmin())
    assignment = assignment_at(problem, best)
    # The checker adds the same costs in another order; that can only lower the bound, by a rounding.
    bound_s = min(float(cost_s[best]), cost(problem, assignment).total_s)
    return PlacementSolution(assignment, Outcome.OPTIMAL, bound_s, statistics={"assignments": float(len(cost_s))})


def assignment_count(problem: Problem) -> int:
    return math.prod(map(len, problem.devices_of))


def assignment_at(problem: Problem, index: int) -> tuple[int, ...]:
    """The assignment of this index among all, the last node's device changing fastest."""
    devices = []
    for candidates in reversed(problem.devices_of):
        index, choice = divmod(index, len(candidates))
        devices.append(candidates[choice])
    return tuple(reversed(devices))


def every_cost_s(problem: Problem) -> NDArray[np.float64]:
    """(assignments,) seconds, by the index that `assignment_at` takes; inf where a node cannot run."""
    cost_s = _summed_s(problem, never)
    assert cost_s is not None
    return cost_s


def _summed_s(problem: Problem, should_stop: ShouldStop) -> NDArray[np.float64] | None:
    sizes = [len(devices) for devices in problem.devices_of if len(devices) > 1]
    total_s = np.zeros(sizes)
    for term_s in _Terms(problem, len(sizes)).all():
        if should_stop():
            return None
        total_s += term_s
    return total_s.reshape(-1)


class _Terms:
    """Arrays of `axes` axes, each of length 1 but for those of the nodes that the term depends on."""

    def __init__(self, problem: Problem, axes: int) -> None:
        self._problem = problem
        chosen = iter(range(axes))
        self._devices: list[NDArray[np.intp]] = []  # of each node, along its own axis
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
        """What the nodes of all these groups cost, by the best of all sets of disjoint ones."""
        packings: list[tuple[frozenset[int], Term]] = [(frozenset(), np.zeros(()))]  # the nodes, and what groups cost
        for group in groups:
            nodes, cost_s = frozenset(group.nodes), self._group_s(group)
            packings += [(taken | nodes, sum_s + cost_s) for taken, sum_s in packings if not taken & nodes]
        every = {node for group in groups for node in group.nodes}
        return reduce(np.minimum, (sum((self._alone_s(n) for n in every - taken), s) for taken, s in packings))

    def _group_s(self, group: Group) -> Term:
        """What the group costs where all of it is on its device; elsewhere inf."""
        whole = np.ones((), bool)
        for node in group.nodes:
            whole = whole & (self._devices[node] == group.device)
        return np.where(whole, group.cost_s, math.inf)


def _overlapping(groups: Sequence[Group]) -> list[list[Group]]:
    """The groups, those together that share nodes, directly or through others."""
    parts: list[list[Group]] = []
    for group in groups:
        touching = [part for part in parts if any(set(group.nodes) & set(other.nodes) for other in part)]
        parts = [part for part in parts if part not in touching]
        parts.append([group, *(other for part in touching for other in part)])
    return parts
