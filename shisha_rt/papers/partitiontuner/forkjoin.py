"""Placement for the least makespan instead of the least sum: parallel branches overlap on different devices (ours).

For graphs of few nodes, schedules without barriers over any assignment and order are searched, too (`unbarred`).

Schedules are those of `schedule`. Branches of a level run at the same time if each is on a single device and these
devices differ; everything else runs in sequence, and what follows a level waits for all of it. Minimising the makespan
is NP-hard even for parallel single operators. Here each branch of a level is either in the lane of a device or in
sequence. Of all such choices those whose sums over the lanes are Pareto-optimal are kept, up to a limit.

The result is optimal if branches are independent: no transfer into or out of a branch costs anything, and no group
extends beyond one branch. Otherwise such transfers are left out, and each node of such a group counts with its share of
the group's time: this relaxation never costs more, so its least makespan is a lower bound. The schedule is that of the
relaxation's assignment or of the least sum's, whichever is shorter, improved by moving whole branches while that helps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from shisha_rt.arrays import Floats
from shisha_rt.outcome import STOPPED, LeftSeconds, Outcome, ShouldStop, forever, within
from shisha_rt.papers.partitiontuner.unbarred import any_order_bound_s, can_be_tried, unbarred
from shisha_rt.placement.branches import Items, Level, nodes_of, structure
from shisha_rt.placement.check import cost, fastest_alone, feasible
from shisha_rt.placement.exact import exact_placement
from shisha_rt.placement.narrowing import PROVEN, least_node_s
from shisha_rt.placement.problem import Group, Problem
from shisha_rt.placement.schedule import Schedule, schedule_of
from shisha_rt.placement.solution import ANY_ORDER_BOUND, PlacementSolution

_MOST_CHOICES: Final = 256
"""Most choices kept for a level."""
_OF_THE_TIME: Final = 0.5
"""The least sum takes at most this fraction of the time, then the bound the same fraction of the rest."""


def forkjoin(problem: Problem, left_s: LeftSeconds = forever) -> PlacementSolution:
    """The best schedule found, with barriers or, for few nodes, without; `lower_bound_s` is a bound of the makespan.

    For few nodes (`can_be_tried`) the bound holds for any schedule, for more nodes only for schedules with barriers;
    the statistics have a bound for any schedule in both cases.
    """
    if not can_be_tried(problem):
        return replace(fork_join_blocks(problem, left_s), statistics={ANY_ORDER_BOUND: any_order_bound_s(problem)})
    should_stop = within(left_s)
    blocks = fork_join_blocks(problem, _part(left_s))
    assignment, schedule = blocks.assignment, blocks.schedule
    assert schedule is not None
    without_barriers = unbarred(problem, schedule.makespan_s, should_stop)
    if without_barriers.runs is not None:
        assignment, schedule = without_barriers.assignment(), without_barriers.schedule(problem)
    reason = STOPPED if should_stop() else "too many beginnings of schedules"
    solution = _answered(assignment, schedule, without_barriers.bound_s, reason)
    return replace(solution, statistics={ANY_ORDER_BOUND: without_barriers.bound_s})


def fork_join_blocks(problem: Problem, left_s: LeftSeconds = forever) -> PlacementSolution:
    """The best schedule found with barriers, and a bound of their makespan; OPTIMAL if these are equal."""
    should_stop = within(left_s)
    items = structure(problem)
    least_sum = exact_placement(problem, left_s=_part(left_s)).assignment
    assert least_sum is not None  # every node can run by itself
    least = _Relaxed(problem, _part(left_s)).least(items, problem.groups)
    relaxed = [least.devices[node] for node in range(len(problem.nodes))]
    starts = (least_sum, feasible(problem, relaxed, fastest_alone(problem)))
    best = min(starts, key=lambda assignment: schedule_of(problem, assignment, items).makespan_s)
    if schedule_of(problem, best, items).makespan_s > least.bound_s * (1 + PROVEN):
        best = _moved(problem, items, best, should_stop)
    schedule = schedule_of(problem, best, items)
    reason = STOPPED if should_stop() else "the bound leaves out what touches several branches, or choices of very many"
    return _answered(best, schedule, min(least.bound_s, schedule.makespan_s), reason)


def _answered(assignment: tuple[int, ...] | None, schedule: Schedule, bound_s: float, reason: str) -> PlacementSolution:
    """The schedule as a solution. `reason`: why the schedule is not proven to be optimal, if it is not."""
    if schedule.makespan_s <= bound_s * (1 + PROVEN):
        return PlacementSolution(assignment, Outcome.OPTIMAL, bound_s, schedule=schedule, bounds="makespan")
    return PlacementSolution(assignment, Outcome.FEASIBLE, bound_s, reason, schedule=schedule, bounds="makespan")


def _part(left_s: LeftSeconds) -> LeftSeconds:
    """`_OF_THE_TIME` of the time that is left now."""
    now_s = left_s()
    return forever if now_s == math.inf else lambda: left_s() - (1 - _OF_THE_TIME) * now_s


def _branches(items: Items) -> Iterator[tuple[int, ...]]:
    """Yield the nodes of each branch, outer branches before those within them."""
    for item in items:
        if isinstance(item, Level):
            for branch in item.branches:
                yield tuple(nodes_of(branch))
                yield from _branches(branch)


def _moved(problem: Problem, items: Items, assignment: tuple[int, ...], should_stop: ShouldStop) -> tuple[int, ...]:
    """Local search: move one whole branch at a time to another device, until no such move shortens the makespan."""
    best, best_s = assignment, schedule_of(problem, assignment, items).makespan_s
    moves = [
        (nodes, device)
        for nodes in _branches(items)
        for device in range(len(problem.devices))
        if all(device in problem.devices_of[node] for node in nodes)
    ]
    gained = True
    while gained:
        gained = False
        for nodes, device in moves:
            if should_stop():
                return best
            moved = list(best)
            for node in nodes:
                moved[node] = device
            if cost(problem, moved).total_s == math.inf:
                continue
            makespan_s = schedule_of(problem, moved, items).makespan_s
            if makespan_s < best_s:
                best, best_s, gained = tuple(moved), makespan_s, True
    return best


@dataclass(frozen=True, slots=True)
class _Least:
    """A lower bound of the makespan of some nodes, and the device of each in the relaxation."""

    bound_s: float
    devices: Mapping[int, int]


class _Relaxed:
    """The relaxation (see the module). `_share_s` (nodes, devices): least cost of a node, alone or in a group."""

    def __init__(self, problem: Problem, left_s: LeftSeconds) -> None:
        self._problem = problem
        self._left_s = left_s
        self._share_s = least_node_s(problem)

    def least(self, items: Items, groups: Sequence[Group]) -> _Least:
        """Relaxed least time of items in sequence; `groups` are within their nodes."""
        own = [item for item in items if not isinstance(item, Level)]
        levels = [item for item in items if isinstance(item, Level)]
        scopes = [set(own), *(set(nodes_of(branch)) for level in levels for branch in level.branches)]
        groups_of: list[list[Group]] = [[] for _ in scopes]
        for group in groups:
            for scope, of_scope in zip(scopes, groups_of, strict=True):
                members = [node for node in group.nodes if node in scope]
                if len(members) == len(group.nodes):
                    of_scope.append(group)
                else:
                    of_scope += [Group((n,), group.device, float(self._share_s[n, group.device])) for n in members]
        parts = [self._least_sum(own, groups_of[0])] if own else []
        inner = iter(groups_of[1:])
        parts += [self._least_of_level(level, [next(inner) for _ in level.branches]) for level in levels]
        devices = {node: device for branch in parts for node, device in branch.devices.items()}
        return _Least(math.fsum(branch.bound_s for branch in parts), devices)

    def _least_sum(self, nodes: Sequence[int], groups: Sequence[Group]) -> _Least:
        """Least sum of nodes in sequence, with only the tensors that pass between them."""
        solution = exact_placement(self._part(nodes, groups), left_s=self._left_s)
        assert solution.assignment is not None
        assert solution.lower_bound_s is not None
        return _Least(solution.lower_bound_s, dict(zip(sorted(nodes), solution.assignment, strict=True)))

    def _part(self, nodes: Sequence[int], groups: Sequence[Group]) -> Problem:
        at = {node: index for index, node in enumerate(sorted(nodes))}
        tensors = [t for t in self._problem.tensors if t.producer in at and all(c in at for c in t.consumers)]
        return replace(
            self._problem,
            nodes=tuple(self._problem.nodes[node] for node in at),
            tensors=tuple(
                replace(t, producer=at[t.producer], consumers=tuple(at[c] for c in t.consumers)) for t in tensors
            ),
            groups=tuple(replace(group, nodes=tuple(at[node] for node in group.nodes)) for group in groups),
        )

    def _least_of_level(self, level: Level, groups: Sequence[Sequence[Group]]) -> _Least:
        """Relaxed least time of a level. Column 0 of `seconds`: in sequence; column 1 + d: in the lane of device d."""
        devices = range(len(self._problem.devices))
        branches = [tuple(nodes_of(branch)) for branch in level.branches]
        apart = [self.least(branch, group) for branch, group in zip(level.branches, groups, strict=True)]
        seconds = np.array(
            [
                [branch.bound_s, *(self._lane_s(nodes, group, device) for device in devices)]
                for nodes, group, branch in zip(branches, groups, apart, strict=True)
            ]
        )
        bound_s, choice = _overlapped(seconds)
        chosen: dict[int, int] = {}
        for column, nodes, member in zip(choice, branches, apart, strict=True):
            chosen |= member.devices if column == 0 else dict.fromkeys(nodes, column - 1)
        return _Least(bound_s, chosen)

    def _lane_s(self, nodes: Sequence[int], groups: Sequence[Group], device: int) -> float:
        part = self._part(nodes, [group for group in groups if group.device == device])
        return cost(replace(part, tensors=()), [device] * len(nodes)).node_s


def _overlapped(seconds: Floats) -> tuple[float, tuple[int, ...]]:
    """A lower bound of a level's time, and each branch's column in the choice that attains the bound, or comes near it
    if there are too many choices.

    `seconds` is (branches, columns). A choice takes the sum in the first column plus the largest sum of another column.
    """
    order = np.argsort(-seconds.min(axis=1), kind="stable")
    known_s = float(seconds[:, 0].sum())
    sums, choices, complete = np.zeros((1, seconds.shape[1])), np.zeros((1, 0), np.intp), True
    for branch in order:
        columns = np.flatnonzero(np.isfinite(seconds[branch]))
        added = np.zeros((len(columns), seconds.shape[1]))
        added[range(len(columns)), columns] = seconds[branch, columns]
        sums = (sums[:, None, :] + added).reshape(-1, seconds.shape[1])
        choices = np.hstack([np.repeat(choices, len(columns), axis=0), np.tile(columns, len(choices))[:, None]])
        kept = _unbettered(sums, known_s)
        complete = complete and len(kept) <= _MOST_CHOICES
        sums, choices = sums[kept[:_MOST_CHOICES]], choices[kept[:_MOST_CHOICES]]
    totals_s = sums[:, 0] + sums[:, 1:].max(axis=1)
    best = int(totals_s.argmin())
    least_s = seconds.min(axis=1)
    bound_s = float(totals_s[best]) if complete else float(max(least_s.max(), least_s.sum() / (seconds.shape[1] - 1)))
    chosen = np.empty(len(order), np.intp)
    chosen[order] = choices[best]
    return bound_s, tuple(chosen.tolist())


def _unbettered(sums: Floats, known_s: float) -> list[int]:
    """Pareto-optimal rows whose total does not exceed `known_s`, the best ones first. More than `_MOST_CHOICES` are cut
    to one more than that, by which the caller sees that there were more.
    """
    totals_s = sums[:, 0] + sums[:, 1:].max(axis=1)
    kept: list[int] = []
    rows = np.empty_like(sums)
    for row in np.lexsort((sums.sum(axis=1), totals_s)):
        if totals_s[row] > known_s * (1 + PROVEN) or len(kept) > _MOST_CHOICES:
            break
        if not (rows[: len(kept)] <= sums[row]).all(axis=1).any():
            rows[len(kept)] = sums[row]
            kept.append(int(row))
    return kept
