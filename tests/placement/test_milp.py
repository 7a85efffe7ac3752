"""`milp` on larger problems than can be tried out, what is claimed of it, and what it does with a solver that lies."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shisha_rt.arrays import Floats
from shisha_rt.errors import BadInput, Error
from shisha_rt.outcome import Outcome, never
from shisha_rt.papers.dcg.brute import brute
from shisha_rt.placement.check import cost
from shisha_rt.placement.exact import exact_placement
from shisha_rt.placement.milp import milp
from shisha_rt.placement.narrowing import quick_assignment
from shisha_rt.placement.problem import Node, Problem, ProblemTensor
from shisha_rt.placement.solution import PlacementSolution
from tests.placement.random_problems import SHAPES, random_problem, random_small_problem
from tests.wording import raised, says

LARGER = {"dense": 14}


def cost_s(problem: Problem, solution: PlacementSolution) -> float:
    assert solution.assignment is not None
    return cost(problem, solution.assignment).total_s


@pytest.mark.parametrize("shape", SHAPES)
def test_equals_exact_on_larger_problems(shape: str) -> None:
    """54 in all, of 60 nodes (dense ones of 14) on 2 to 4 devices."""
    rng = random.Random(f"milp {shape}")
    for number in range(9):
        problem = random_problem(rng, shape, LARGER.get(shape, 60), 2 + number % 3, groups=rng.choice((0, 12)))
        by_elimination, solution = exact_placement(problem), milp(problem)
        assert by_elimination.statistics["over_limit"] == 0
        assert solution.outcome is Outcome.OPTIMAL
        assert solution.lower_bound_s is not None
        assert cost_s(problem, solution) == cost_s(problem, by_elimination)
        assert solution.lower_bound_s <= cost_s(problem, solution)
        assert solution.lower_bound_s == pytest.approx(cost_s(problem, solution), abs=0.01)


@pytest.mark.parametrize("shape", SHAPES)
def test_equals_brute_on_small_problems(shape: str) -> None:
    rng = random.Random(f"milp {shape}")
    for _ in range(20):
        problem = random_small_problem(rng, shape)
        assert cost_s(problem, milp(problem)) == cost_s(problem, brute(problem))


def crossed(scale: float = 1.0) -> Problem:
    """All on the first device costs 21, which nothing that is quick betters; the best is 19."""
    seconds = (2, 3), (1, 1), (2, 24), (16, 1)
    transfers = [(0, (1, 3), 8, 24), (1, (2,), 0, 4), (2, (3,), 8, 3)]
    return Problem(
        ("a", "b"),
        ("m", "n"),
        (0, 1),
        tuple(Node(f"n{i}", "", (first * scale, other * scale)) for i, (first, other) in enumerate(seconds)),
        tuple(
            ProblemTensor(f"t{i}", producer, consumers, ((0.0, there * scale), (back * scale, 0.0)))
            for i, (producer, consumers, there, back) in enumerate(transfers)
        ),
        transfer_counting="per_edge",
    )


def over_ten_decades(rng: random.Random, problem: Problem) -> Problem:
    """The same with other costs, from 1e-5 to 1e5; what is free or cannot run stays so."""

    def other(seconds: float) -> float:
        return seconds if seconds in (0, math.inf) else 10 ** rng.uniform(-5, 5)

    def others(row: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(map(other, row))

    return replace(
        problem,
        nodes=tuple(replace(node, cost_s=others(node.cost_s)) for node in problem.nodes),
        tensors=tuple(replace(t, transfer_s=tuple(map(others, t.transfer_s))) for t in problem.tensors),
        groups=tuple(replace(group, cost_s=other(group.cost_s)) for group in problem.groups),
    )


@pytest.mark.parametrize("shape", SHAPES)
def test_costs_that_spread_over_ten_decades(shape: str) -> None:
    """HiGHS's tolerances are absolute; by them, an answer many times off was once called optimal."""
    rng = random.Random(f"decades {shape}")
    claimed = 0
    for _ in range(40):
        problem = over_ten_decades(rng, random_small_problem(rng, shape))
        solution, optimum_s = milp(problem), cost_s(problem, brute(problem))
        assert solution.lower_bound_s is not None
        assert solution.lower_bound_s <= optimum_s * (1 + 1e-12)
        assert cost_s(problem, solution) == pytest.approx(optimum_s, rel=1e-6)
        if solution.outcome is Outcome.OPTIMAL:
            claimed += 1
            assert cost_s(problem, solution) <= optimum_s * (1 + 2e-9)
    assert claimed >= 39


@pytest.mark.parametrize("scale", [1e-320, 1e-9, 1e-6, 1e6, 1e300])
def test_seconds_may_be_of_any_size(scale: float) -> None:
    """HiGHS stops at absolute gaps; unscaled, nanoseconds would all look alike to it."""
    problem = crossed(scale)
    solution = milp(problem)
    assert solution.outcome is Outcome.OPTIMAL
    assert solution.assignment == (1, 1, 0, 1)
    assert solution.lower_bound_s == pytest.approx(19 * scale, rel=1e-5)


def test_nothing_costs_anything() -> None:
    problem = Problem(("a",), ("m",), (0,), (Node("n", "", (0.0,)),), ())
    assert (milp(problem).assignment, milp(problem).lower_bound_s) == ((0,), 0)


def test_a_time_limit_leaves_what_is_proven() -> None:
    problem = random_problem(random.Random(0), "dense", 30, 4, own_memories=True, incapable=0)
    solution = milp(problem, lambda: 0.0)
    assert solution.outcome in (Outcome.LIMIT, Outcome.FEASIBLE)
    assert solution.reason == says("stopped by the …")
    assert (solution.assignment is None) == (solution.outcome is Outcome.LIMIT)
    assert solution.lower_bound_s is not None
    assert 0 < solution.lower_bound_s <= cost(problem, quick_assignment(problem, never)).total_s


def test_a_program_that_would_take_too_much_memory_is_not_made() -> None:
    each = range(64)
    moves = tuple(tuple(float(a != b) for b in each) for a in each)
    nodes = tuple(Node(f"n{i}", "", tuple(float((i + d) % 7) for d in each)) for i in range(60))
    tensors = tuple(ProblemTensor(f"t{i}", i, (i + 1,), moves) for i in range(59))
    problem = Problem(tuple(f"d{d}" for d in each), tuple(f"m{d}" for d in each), tuple(each), nodes, tensors)
    solution = milp(problem)
    assert (solution.assignment, solution.outcome) == (None, Outcome.LIMIT)
    assert solution.reason == "a program of 245504 columns, and 131072 are the most"


def test_without_scipy_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with raised(BadInput, Error.EXTRA_MISSING, match=r"scipy is missing, .* pip install 'shisha-rt\[solve\]'"):
        milp(crossed())


class TestALyingSolver:
    PROBLEM = crossed()

    @pytest.fixture
    def answer(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[int, list[float] | None], PlacementSolution]:
        def solve(status: int, place: list[float] | None) -> PlacementSolution:
            def lie(cost: Floats, **_: Any) -> SimpleNamespace:
                x = None if place is None else np.array(place + [0.0] * (len(cost) - len(place)))
                return SimpleNamespace(status=status, x=x, mip_dual_bound=0.0)

            monkeypatch.setattr("scipy.optimize.milp", lie)
            return milp(self.PROBLEM)

        return solve

    # Columns: n0 and n1 on either device, n2 on the first (the other is too dear), n3 on either; then moves.

    def test_the_best(self, answer: Callable[..., PlacementSolution]) -> None:
        solution = answer(0, [0, 1, 0, 1, 1, 0, 1])
        assert (solution.assignment, solution.outcome, solution.lower_bound_s) == ((1, 1, 0, 1), Outcome.OPTIMAL, 19)
        assert type(solution.lower_bound_s) is float  # for JSON

    def test_a_worse_point_is_not_optimal_whatever_it_says(self, answer: Callable[..., PlacementSolution]) -> None:
        solution = answer(0, [1, 0, 1, 0, 1, 1, 0])
        assert (solution.assignment, solution.outcome) == ((0, 0, 0, 0), Outcome.FEASIBLE)
        assert solution.lower_bound_s == 19
        assert solution.reason == says("not the best: one found … costs 2 s less")

    def test_a_point_outside_its_bounds_is_rounded_to_an_assignment(
        self, answer: Callable[..., PlacementSolution]
    ) -> None:
        solution = answer(0, [0.4, -7, 0.1, 3, 0, -2, -1])
        assert (solution.assignment, solution.outcome) == ((0, 1, 0, 1), Outcome.FEASIBLE)

    @pytest.mark.parametrize("status", [1, 2, 4])
    def test_infeasible_is_never_true(self, answer: Callable[..., PlacementSolution], status: int) -> None:
        solution = answer(status, None)
        assert (solution.assignment, solution.outcome) == (None, Outcome.LIMIT)
        assert solution.lower_bound_s == pytest.approx(6)
        assert solution.reason == "HiGHS has found nothing"
