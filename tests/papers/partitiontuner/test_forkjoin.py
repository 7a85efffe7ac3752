"""Makespans: on fork-join graphs those of trying everything, on others no further from it than the bound says."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from shisha_rt.outcome import Outcome
from shisha_rt.papers.dcg.brute import assignment_at, assignment_count, every_cost_s
from shisha_rt.papers.partitiontuner.forkjoin import forkjoin
from shisha_rt.papers.partitiontuner.schemes import partitiontuner
from shisha_rt.placement.branches import structure
from shisha_rt.placement.problem import Group, Node, Problem, ProblemTensor
from shisha_rt.placement.problem_file import chain_links
from shisha_rt.placement.schedule import schedule_of
from tests.drawn import chunks
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
        found = forkjoin(problem)
        assert found.schedule is not None
        assert found.schedule.makespan_s == found.lower_bound_s == least_s(problem), seed
        assert found.outcome is Outcome.OPTIMAL
        paper = partitiontuner(problem).schedule
        assert paper is not None
        assert found.schedule.makespan_s <= paper.makespan_s
        gained += found.schedule.makespan_s < paper.makespan_s
    assert gained > len(seeds) / 4


@pytest.mark.parametrize("seeds", chunks(1000, 60, short=60))
def test_the_bound_holds_on_any_graph(seeds: range) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        problem = random_problem(rng, SHAPES[seed % len(SHAPES)], rng.randint(2, 6), 2, groups=rng.choice((0, 3)))
        found = forkjoin(problem)
        assert found.schedule is not None
        assert found.assignment is not None
        assert found.schedule == schedule_of(problem, found.assignment)
        assert found.lower_bound_s is not None
        best_s = least_s(problem)
        assert found.lower_bound_s <= best_s <= found.schedule.makespan_s, seed
        if found.outcome is Outcome.OPTIMAL:
            assert found.schedule.makespan_s == best_s


def test_figure_1() -> None:
    found = forkjoin(figure_1())
    assert (found.lower_bound_s, found.outcome, found.bounds) == (12.5, Outcome.OPTIMAL, "makespan")


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
    found = forkjoin(problem)
    assert found.schedule is not None
    assert found.lower_bound_s is not None
    assert found.lower_bound_s < found.schedule.makespan_s < 1.4 * found.lower_bound_s
    assert found.outcome is Outcome.FEASIBLE


def test_it_ends_where_the_time_is_over() -> None:
    found = forkjoin(wide(random.Random(0), 60), lambda: 0.0)
    assert found.schedule is not None
    assert (found.outcome, found.reason) == (Outcome.FEASIBLE, says("stopped by the …"))
