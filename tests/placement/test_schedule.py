"""Schedules: what overlaps and what does not, checked apart on random graphs."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from shisha_rt.placement.check import cost
from shisha_rt.placement.problem import Assignment, Group, Node, Problem, ProblemTensor
from shisha_rt.placement.schedule import Schedule, schedule_of
from tests.placement.random_problems import SHAPES, random_assignment, random_problem


def fork(*branches: tuple[float, ...], transfer_s: float = 0.0, shared: bool = False) -> Problem:
    """Nodes of so many seconds on any of three devices, between a fork and a join of 1 second each.

    Devices 0 and 1 share a memory, if `shared`. A transfer into another one takes `transfer_s`.
    """
    memory_of = (0, 0, 1) if shared else (0, 1, 2)
    memories = tuple(dict.fromkeys(memory_of))
    moves = tuple(tuple(transfer_s * (own != memory) for memory in memories) for own in memory_of)
    seconds, first = [1.0], []
    edges: list[tuple[int, tuple[int, ...]]] = []
    for branch in branches:
        first.append(len(seconds))
        edges += [(len(seconds) + i, (len(seconds) + i + 1,)) for i in range(len(branch) - 1)]
        seconds += branch
    seconds.append(1.0)
    last = [node - 1 for node in [*first[1:], len(seconds) - 1]]
    edges += [(node, (len(seconds) - 1,)) for node in last] + [(0, tuple(first))]
    nodes = tuple(Node(f"n{i}", "", (node_s, node_s, node_s)) for i, node_s in enumerate(seconds))
    tensors = tuple(ProblemTensor(f"t{i}", node, read_by, moves) for i, (node, read_by) in enumerate(edges))
    return Problem(("a", "b", "c"), tuple(f"m{m}" for m in memories), memory_of, nodes, tensors)


class TestOverlap:
    @pytest.mark.parametrize(
        ("assignment", "makespan_s"),
        [
            ((0, 0, 0, 1, 0, 0), 1 + 7 + 1),  # 2 + 2 and 3 in turn, beside 5
            ((0, 0, 0, 0, 0, 0), 1 + 4 + 5 + 3 + 1),
            ((0, 0, 0, 1, 2, 0), 1 + 5 + 1),
            ((0, 0, 0, 1, 1, 0), 1 + 8 + 1),  # 5 and 3 in turn, beside 2 + 2
            ((0, 0, 1, 1, 1, 0), 1 + 4 + 5 + 3 + 1),  # the first branch is two partitions, the others are on one device
            ((0, 0, 1, 1, 2, 0), 1 + 4 + 5 + 1),  # the first is two partitions, 5 beside 3
        ],
    )
    def test_branches_on_different_devices(self, assignment: tuple[int, ...], makespan_s: float) -> None:
        problem = fork((2.0, 2.0), (5.0,), (3.0,))
        assert schedule_of(problem, assignment).makespan_s == makespan_s

    def test_two_ways_to_use_the_same_cores_take_turns(self) -> None:
        problem = replace(fork((2.0,), (4.0,)), processors=(0, 0, 1))
        assert schedule_of(problem, (0, 0, 1, 0)).makespan_s == 1 + 2 + 4 + 1
        assert schedule_of(problem, (0, 0, 2, 0)).makespan_s == 1 + 4 + 1
        three = replace(fork((2.0,), (4.0,), (5.0,)), processors=(0, 0, 1))
        assert schedule_of(three, (0, 0, 1, 2, 0)).makespan_s == 1 + 6 + 1

    def test_a_group_across_a_join_keeps_its_branch_in_sequence(self) -> None:
        problem = fork((2.0,), (4.0,))
        assert schedule_of(problem, (0, 1, 0, 1)).makespan_s == 1 + 4 + 1
        grouped = replace(problem, groups=(Group((1, 3), 1, 2.5),))
        assert schedule_of(grouped, (0, 1, 0, 1)).makespan_s == 1 + 4 + 2.5

    def test_transfers_are_paid_in_the_lane_that_reads(self) -> None:
        """Into the second lane 0.5 s, and 0.5 s from it to the join."""
        schedule = schedule_of(fork((2.0,), (4.0,), transfer_s=0.5), (0, 0, 1, 0))
        assert [partition.end_s for partition in schedule.overlapping] == [1 + 2, 1 + 0.5 + 4]
        assert schedule.makespan_s == 1 + 4.5 + 0.5 + 1

    def test_a_copy_for_two_lanes_is_there_before_they_begin(self) -> None:
        schedule = schedule_of(fork((2.0,), (4.0,), transfer_s=0.5, shared=True), (2, 0, 1, 0))
        assert [partition.start_s for partition in schedule.overlapping] == [1.5, 1.5]
        assert schedule.makespan_s == 1 + 0.5 + 4 + 1


@pytest.mark.parametrize("shape", SHAPES)
def test_schedules_may_run(shape: str) -> None:
    rng = random.Random(shape)
    overlapping = 0
    for _ in range(80):
        problem = random_problem(rng, shape, rng.randint(1, 14), rng.randint(2, 3), groups=rng.choice((0, 4)))
        assignment = random_assignment(rng, problem)
        schedule = schedule_of(problem, assignment)
        check(problem, assignment, schedule)
        overlapping += len(schedule.overlapping)
    assert overlapping or shape in ("chain", "skip", "dense")


def check(problem: Problem, assignment: Assignment, schedule: Schedule) -> None:
    """Times are sums of eighths: exact."""
    partitions = schedule.partitions
    assert sorted(node for partition in partitions for node in partition.nodes) == list(range(len(problem.nodes)))
    at = {
        node: (number, turn) for number, partition in enumerate(partitions) for turn, node in enumerate(partition.nodes)
    }
    for partition in partitions:
        assert {assignment[node] for node in partition.nodes} == {partition.device}
    for device in range(len(problem.devices)):
        own = [partition for partition in partitions if partition.device == device]
        assert all(before.end_s <= after.start_s for before, after in pairwise(own))
    for tensor in problem.tensors:
        for node in tensor.consumers:
            (maker, made), (reader, read) = at[tensor.producer], at[node]
            assert made < read if maker == reader else partitions[maker].end_s <= partitions[reader].start_s
    hidden_s = 0.0
    for section in schedule.sections:
        lanes_s = [lane[-1].end_s - lane[0].start_s for lane in section.lanes]
        hidden_s += sum(lanes_s) - max(lanes_s)
        assert len({lane[0].device for lane in section.lanes}) == len(section.lanes)
    assert schedule.makespan_s + hidden_s == cost(problem, assignment).total_s
