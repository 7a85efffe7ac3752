"""Makespans: on fork-join graphs those of trying everything, on others no further from it than the bound says."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from shisha_rt.outcome import Outcome
from shisha_rt.papers.dcg.brute import assignment_at, assignment_count, every_cost_s
from shisha_rt.papers.partitiontuner.forkjoin import fork_join_blocks, forkjoin
from shisha_rt.papers.partitiontuner.schemes import partitiontuner
from shisha_rt.papers.partitiontuner.unbarred import any_order_bound_s, can_be_tried, unbarred
from shisha_rt.placement.branches import structure
from shisha_rt.placement.problem import Group, Node, Problem, ProblemTensor
from shisha_rt.placement.problem_file import chain_links
from shisha_rt.placement.schedule import Schedule, schedule_of
from shisha_rt.placement.solution import ANY_ORDER_BOUND
from tests.drawn import chunks
from tests.papers.partitiontuner.every_order import least_of_any_order_s, small_problem
from tests.placement.figure_1 import figure_1
from tests.placement.random_problems import SHAPES, random_problem
from tests.wording import says

INF = float("inf")


def fork_join(rng: random.Random) -> Problem:
    """Small enough for every assignment to be tried."""
    while assignment_count(problem := any_fork_join(rng)) > 300:
        pass
    return problem


def any_fork_join(rng: random.Random) -> Problem:
    """Blocks of branches, some within branches, on two devices, or three if small; groups within branches alone.

    Costs have what moves in them, as the paper's do.
    """
    edges: list[tuple[int, int]] = []
    branch_of = [0]

    def grow(source: int, depth: int, branch: int) -> int:
        """A block after `source`; its join, which is in the same branch."""
        ends = []
        for _ in range(rng.randint(2, 3)):
            own, last = rng.random(), source
            number = len(branch_of) + 1000 * depth
            for _ in range(rng.randint(1, 2)):
                branch_of.append(number)
                edges.append((last, len(branch_of) - 1))
                last = len(branch_of) - 1
            ends.append(grow(last, depth + 1, number) if own < 0.15 and depth < 1 and len(branch_of) < 5 else last)
        branch_of.append(branch)
        edges.extend((end, len(branch_of) - 1) for end in ends)
        return len(branch_of) - 1

    grow(0, 0, 0)
    if len(branch_of) < 5:
        grow(len(branch_of) - 1, 0, 0)
    count, devices = len(branch_of), 2 if len(branch_of) > 6 else 3

    def seconds() -> tuple[float, ...]:
        cost_s = [rng.choice((INF, *range(1, 17))) / 8 for _ in range(devices)]
        cost_s[rng.randrange(devices)] = rng.randint(1, 16) / 8
        return tuple(cost_s)

    free = tuple((0.0,) * devices for _ in range(devices))
    problem = Problem(
        tuple(f"d{i}" for i in range(devices)),
        tuple(f"m{i}" for i in range(devices)),
        tuple(range(devices)),
        tuple(Node(f"n{i}", "", seconds()) for i in range(count)),
        tuple(ProblemTensor(f"t{i}", a, (b,), free) for i, (a, b) in enumerate(edges)),
    )
    links = sorted((a, b) for a, b in chain_links(problem) if branch_of[a] == branch_of[b])
    wanted = {(link, rng.randrange(devices)) for link in links for _ in range(2)}
    return replace(problem, groups=tuple(Group(link, d, rng.randint(1, 24) / 8) for link, d in sorted(wanted)))


def least_s(problem: Problem) -> float:
    """Of all assignments, cheapest first: no schedule takes less than the sum shared by all devices."""
    items, costs_s = structure(problem), every_cost_s(problem)
    best_s = INF
    for index in costs_s.argsort(kind="stable"):
        if costs_s[index] >= best_s * len(problem.devices):
            break
        best_s = min(best_s, schedule_of(problem, assignment_at(problem, int(index)), items).makespan_s)
    return best_s


@pytest.mark.parametrize("seeds", chunks(1000, 50, short=50))
def test_fork_join_graphs_as_trying_everything(seeds: range) -> None:
    gained = 0
    for seed in seeds:
        problem = fork_join(random.Random(seed))
        solution = fork_join_blocks(problem)
        assert solution.schedule is not None
        assert solution.schedule.makespan_s == solution.lower_bound_s == least_s(problem), seed
        assert solution.outcome is Outcome.OPTIMAL
        paper = partitiontuner(problem).schedule
        assert paper is not None
        assert solution.schedule.makespan_s <= paper.makespan_s
        gained += solution.schedule.makespan_s < paper.makespan_s
    assert gained > len(seeds) / 4


@pytest.mark.parametrize("seeds", chunks(1000, 60, short=60))
def test_the_bound_holds_on_any_graph(seeds: range) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        problem = random_problem(rng, SHAPES[seed % len(SHAPES)], rng.randint(2, 6), 2, groups=rng.choice((0, 3)))
        solution = fork_join_blocks(problem)
        assert solution.schedule is not None
        assert solution.assignment is not None
        assert solution.schedule == schedule_of(problem, solution.assignment)
        assert solution.lower_bound_s is not None
        best_s = least_s(problem)
        assert solution.lower_bound_s <= best_s <= solution.schedule.makespan_s, seed
        if solution.outcome is Outcome.OPTIMAL:
            assert solution.schedule.makespan_s == best_s


@pytest.mark.parametrize("seeds", chunks(500, 25, short=50))
def test_small_graphs_as_any_assignment_in_any_order(seeds: range) -> None:
    """Without barriers there is none better, and what is found keeps to the order and to the processors."""
    barred = 0
    for seed in seeds:
        problem = small_problem(seed)
        solution = forkjoin(problem)
        assert solution.schedule is not None
        assert solution.assignment is not None
        assert solution.outcome is Outcome.OPTIMAL, seed
        least = least_of_any_order_s(problem)
        assert (
            solution.schedule.makespan_s == solution.lower_bound_s == solution.statistics[ANY_ORDER_BOUND] == least
        ), seed
        if len(solution.schedule.sections) == 1:  # then it may be one without barriers
            follows(problem, solution.schedule, solution.assignment)
        paper = partitiontuner(problem)
        assert paper.schedule is not None
        rounding_s = 1e-15  # of nodes that take nothing the bound may be so much more
        assert paper.statistics[ANY_ORDER_BOUND] - rounding_s <= least <= paper.schedule.makespan_s
        blocks = fork_join_blocks(problem).schedule
        assert blocks is not None
        barred += blocks.makespan_s > least
    assert barred or len(seeds) < 50  # of few there may be none


def follows(problem: Problem, schedule: Schedule, assignment: Sequence[int]) -> None:
    """Partitions of a device follow each other, and none begins before what it reads has been made."""
    end_of = {node: partition.end_s for partition in schedule.partitions for node in partition.nodes}
    assert sorted(end_of) == list(range(len(problem.nodes)))
    for section in schedule.sections:
        for lane in section.lanes:
            assert all(before.end_s <= after.start_s for before, after in pairwise(lane))
    for partition in schedule.partitions:
        assert {assignment[node] for node in partition.nodes} == {partition.device}
        for tensor in problem.tensors:
            if tensor.producer not in partition.nodes and set(tensor.consumers).intersection(partition.nodes):
                assert end_of[tensor.producer] <= partition.start_s or assignment[tensor.producer] == partition.device


def test_what_could_have_been_tried_is_a_bound_still() -> None:
    problem = small_problem(30)
    assert unbarred(problem, most=3).bound_s <= least_of_any_order_s(problem)
    assert any_order_bound_s(problem) <= least_of_any_order_s(problem)
    assert unbarred(problem, known_s=0.0).runs is None


def test_nodes_between_those_of_a_group_are_not_tried() -> None:
    """Whoever reads the first and makes what the last reads cannot run while both run as one."""
    free = ((0.0, 0.0), (0.0, 0.0))
    nodes = tuple(Node(f"n{i}", "", (1.0, 1.0)) for i in range(3))
    edges = ((0, 1), (0, 2), (1, 2))
    tensors = tuple(ProblemTensor(f"t{i}", a, (b,), free) for i, (a, b) in enumerate(edges))
    problem = Problem(("a", "b"), ("m", "n"), (0, 1), nodes, tensors, (Group((0, 2), 0, 0.5),))
    assert not can_be_tried(problem)
    assert can_be_tried(replace(problem, groups=(Group((1, 2), 0, 0.5),)))
    solution = forkjoin(problem)
    assert solution.schedule is not None
    assert solution.statistics[ANY_ORDER_BOUND] <= solution.schedule.makespan_s


def test_figure_1() -> None:
    solution = forkjoin(figure_1())
    assert (solution.lower_bound_s, solution.outcome, solution.bounds) == (12.5, Outcome.OPTIMAL, "makespan")


def wide(rng: random.Random, branches: int) -> Problem:
    """One fork of many branches of one node each, all unlike."""
    nodes = [Node(f"n{i}", "", (rng.uniform(1, 2), rng.uniform(1, 2))) for i in range(branches + 2)]
    free = ((0.0, 0.0), (0.0, 0.0))
    inner = tuple(range(1, branches + 1))
    out = (ProblemTensor(f"t{i}", i, (branches + 1,), free) for i in inner)
    return Problem(("a", "b"), ("m", "n"), (0, 1), tuple(nodes), (ProblemTensor("t0", 0, inner, free), *out))


def test_more_choices_than_are_kept() -> None:
    """The split of many branches over two devices is a good one, and the bound is one still."""
    problem = wide(random.Random(0), 60)
    solution = forkjoin(problem)
    assert solution.schedule is not None
    assert solution.lower_bound_s is not None
    assert solution.lower_bound_s < solution.schedule.makespan_s < 1.4 * solution.lower_bound_s
    assert solution.outcome is Outcome.FEASIBLE


def test_it_ends_where_the_time_is_over() -> None:
    solution = forkjoin(wide(random.Random(0), 60), lambda: 0.0)
    assert solution.schedule is not None
    assert (solution.outcome, solution.reason) == (Outcome.FEASIBLE, says("stopped by the …"))
