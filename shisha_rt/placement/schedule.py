"""The schedule of an assignment (PartitionTuner, Sections 3.4 and 3.5): when each of its partitions runs.

A partition is consecutive nodes on one device. Partitions run one after the other, except parallel branches
(`branches`) that are a single partition each: these run at the same time on different processors, in turn on the same
processor, and all end before the next partition begins.

The first partition that reads a moved tensor in a memory pays for the move, at its start. If several parallel lanes
read it there, it is moved before any of them begins.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from shisha_rt.placement.branches import Items, Level, nodes_of, structure
from shisha_rt.placement.check import groups_in_use
from shisha_rt.placement.problem import Assignment, Problem


@dataclass(frozen=True, slots=True)
class Partition:
    """Nodes that run in turn on one device; times are from the start of the frame, and include moves of its own."""

    device: int
    nodes: tuple[int, ...]
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Section:
    """Lanes on different processors, which run at the same time; the partitions of a lane run in sequence."""

    lanes: tuple[tuple[Partition, ...], ...]
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Schedule:
    """Sections that run one after the other."""

    sections: tuple[Section, ...]

    @property
    def makespan_s(self) -> float:
        return self.sections[-1].end_s

    @property
    def partitions(self) -> tuple[Partition, ...]:
        return tuple(partition for section in self.sections for lane in section.lanes for partition in lane)

    @property
    def overlapping(self) -> tuple[Partition, ...]:
        """Partitions that run at the same time as others."""
        several = (section for section in self.sections if len(section.lanes) > 1)
        return tuple(partition for section in several for lane in section.lanes for partition in lane)


def schedule_of(problem: Problem, assignment: Assignment, items: Items | None = None) -> Schedule:
    """The schedule of an assignment that can run. `items`: the problem's `structure`, if it is known already."""
    return _Scheduling(problem, assignment).schedule(structure(problem) if items is None else items)


_Lanes = list[list[tuple[int, ...]]]
"""The lanes of a section; each lists its partitions, as their nodes."""


class _Scheduling:
    """`_node_s` (nodes,): seconds that each node adds to its partition; a group's first node stands for the group."""

    def __init__(self, problem: Problem, assignment: Assignment) -> None:
        self._problem = problem
        self._assignment = assignment
        self._group_of = {node: group for group in groups_in_use(problem, assignment) for node in group.nodes}
        self._node_s = [self._computing_s(node) for node in range(len(problem.nodes))]

    def _computing_s(self, node: int) -> float:
        group = self._group_of.get(node)
        if group is None:
            return self._problem.nodes[node].cost_s[self._assignment[node]]
        return group.cost_s if node == group.nodes[0] else 0.0

    def schedule(self, items: Items) -> Schedule:
        sections = list(self._sections(items))
        now, scheduled = 0.0, []
        for lanes, moving_s in zip(sections, self._moving_s(sections), strict=True):
            start, now = now, now + moving_s
            ends, timed = [], []
            for lane in lanes:
                end, partitions = now, []
                for nodes in lane:
                    begin, end = end, end + math.fsum([self._node_s[node] for node in nodes])
                    partitions.append(Partition(self._assignment[nodes[0]], nodes, begin, end))
                ends.append(end)
                timed.append(tuple(partitions))
            now = max(ends)
            scheduled.append(Section(tuple(timed), start, now))
        return Schedule(tuple(scheduled))

    def _sections(self, items: Items) -> Iterator[_Lanes]:
        """Yield a section of one lane for each sequence of nodes, and one of several lanes for overlapping branches."""
        device_of = self._assignment.__getitem__
        for is_run, steps in groupby(self._steps(items), key=lambda step: isinstance(step, int)):
            if is_run:
                nodes = [step for step in steps if isinstance(step, int)]
                yield [[tuple(run) for _, run in groupby(nodes, key=device_of)]]
            else:
                yield from (step for step in steps if not isinstance(step, int))

    def _steps(self, items: Items) -> Iterator[int | _Lanes]:
        """Yield nodes, and lanes of overlapping branches; the level's other branches follow these, in sequence."""
        for item in items:
            if not isinstance(item, Level):
                yield item
                continue
            lanes: dict[int, list[tuple[int, ...]]] = {}
            others = []
            for branch in item.branches:
                nodes = tuple(nodes_of(branch))
                if self._is_one_partition(nodes):
                    lanes.setdefault(self._problem.processor_of(self._assignment[nodes[0]]), []).append(nodes)
                else:
                    others.append(branch)
            if len(lanes) > 1:
                yield list(lanes.values())
            else:
                others = list(item.branches)
            for branch in others:
                yield from self._steps(branch)

    def _is_one_partition(self, nodes: Sequence[int]) -> bool:
        """Whether nodes are on one device, and in no group with nodes outside the branch."""
        if len({self._assignment[node] for node in nodes}) > 1:
            return False
        grouped = {other for node in nodes if node in self._group_of for other in self._group_of[node].nodes}
        return grouped <= set(nodes)

    def _moving_s(self, sections: Sequence[_Lanes]) -> list[float]:
        """(sections,) seconds of moves before each section begins; moves for one lane are added to `_node_s`."""
        before_s = [0.0 for _ in sections]
        place: dict[int, tuple[int, int]] = {}  # section and lane, in the order in which nodes run
        for index, lanes in enumerate(sections):
            place |= {
                node: (index, lane) for lane, lane_items in enumerate(lanes) for nodes in lane_items for node in nodes
            }
        turn = {node: number for number, node in enumerate(place)}
        for move in moves(self._problem, self._assignment):
            first = min(move.consumers, key=turn.__getitem__)
            section, lane = place[first]
            if any(place[node][0] == section and place[node][1] != lane for node in move.consumers):
                before_s[section] += move.cost_s
            else:
                self._node_s[first] += move.cost_s
        return before_s


def schedule_object(problem: Problem, schedule: Schedule) -> dict[str, Any]:
    """The schedule as `place --json` writes it: `makespan_s`, and the sections in order."""

    def partition(partition: Partition) -> dict[str, Any]:
        return {
            "device": problem.devices[partition.device],
            "nodes": [problem.nodes[node].name for node in partition.nodes],
            "start_s": partition.start_s,
            "end_s": partition.end_s,
        }

    return {
        "makespan_s": schedule.makespan_s,
        "schedule": [
            {
                "start_s": section.start_s,
                "end_s": section.end_s,
                "lanes": [[partition(scheduled) for scheduled in lane] for lane in section.lanes],
            }
            for section in schedule.sections
        ],
    }


@dataclass(frozen=True, slots=True)
class Move:
    """A tensor's move from device `source` into another memory, and the nodes that read it there; all by index."""

    tensor: int
    source: int
    memory: int
    consumers: tuple[int, ...]
    cost_s: float


def moves(problem: Problem, assignment: Assignment) -> tuple[Move, ...]:
    """Moves of an assignment, by tensor: one for each memory or, if counted `per_edge`, for each consumer."""
    moves_made = []
    for index, tensor in enumerate(problem.tensors):
        device = assignment[tensor.producer]
        readers: dict[int, list[int]] = {}
        for consumer in tensor.consumers:
            readers.setdefault(problem.memory_of[assignment[consumer]], []).append(consumer)
        readers.pop(problem.memory_of[device], None)
        for memory, consumers in readers.items():
            cost_s = tensor.transfer_s[device][memory]
            together = [tuple(consumers)] if problem.transfer_counting == "once" else [(c,) for c in consumers]
            moves_made += [Move(index, device, memory, group, cost_s) for group in together]
    return tuple(moves_made)
