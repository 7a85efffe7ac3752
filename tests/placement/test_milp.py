"""`milp` on larger problems than can be tried out, its proofs, and what it does with a solver that lies."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shisha_rt.errors import BadInput
from shisha_rt.outcome import Outcome
from shisha_rt.placement.brute import brute
from shisha_rt.placement.check import cost
from shisha_rt.placement.exact import exact_placement
from shisha_rt.placement.milp import milp
from shisha_rt.placement.problem import Node, Problem
from shisha_rt.placement.solution import Solution
from tests.placement.random_problems import SHAPES, random_problem, random_small_problem

LARGER = {"dense": 14}


def cost_s(problem: Problem, solution: Solution) -> float:
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


@pytest.mark.parametrize("scale", [1e-9, 1e-6, 1e6])
def test_seconds_may_be_of_any_size(scale: float) -> None:
    """HiGHS stops at absolute gaps; unscaled, nanoseconds would all look alike to it."""
    nodes = tuple(Node(f"n{i}", "", (3 * scale, (2 + i % 2 * 2) * scale)) for i in range(10))
    problem = Problem(("a", "b"), ("m", "n"), (0, 1), nodes, ())
    solution = milp(problem)
    assert solution.assignment == (1, 0) * 5
    assert solution.lower_bound_s == pytest.approx(25 * scale, rel=1e-5)


def test_nothing_costs_anything() -> None:
    problem = Problem(("a",), ("m",), (0,), (Node("n", "", (0.0,)),), ())
    assert (milp(problem).assignment, milp(problem).lower_bound_s) == ((0,), 0)


def test_a_time_limit_leaves_what_is_proven() -> None:
    problem = random_problem(random.Random(0), "dense", 30, 4, own_memories=True, incapable=0)
    solution = milp(problem, time_limit_s=0.0)
    assert solution.outcome in (Outcome.LIMIT, Outcome.FEASIBLE)
    assert (solution.assignment is None) == (solution.outcome is Outcome.LIMIT)
    assert solution.lower_bound_s is not None
    assert 0 <= solution.lower_bound_s <= cost_s(problem, milp(problem))


def test_without_scipy_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(BadInput, match=r"scipy is missing, expected the extra: pip install 'shisha-rt\[solve\]'"):
        milp(random_problem(random.Random(0), "chain", 3, 2))


class TestALyingSolver:
    PROBLEM = Problem(("a", "b"), ("m", "n"), (0, 1), (Node("n0", "", (1, 3)), Node("n1", "", (5, 2))), ())

    @pytest.fixture
    def answer(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[int, list[float] | None, float | None], Solution]:
        def solve(status: int, place: list[float] | None, mip_dual_bound: float | None) -> Solution:
            x = None if place is None else np.array(place)
            said = SimpleNamespace(status=status, x=x, mip_dual_bound=mip_dual_bound)

            def lie(*_: Any, **__: Any) -> SimpleNamespace:
                return said

            monkeypatch.setattr("scipy.optimize.milp", lie)
            return milp(self.PROBLEM)

        return solve

    def test_a_worse_point_than_its_bound_is_not_optimal(self, answer: Callable[..., Solution]) -> None:
        mean_s = (1 + 3 + 5 + 2) / 4  # the solver sees costs over this
        solution = answer(0, [0, 1, 0, 1], 3 / mean_s)
        assert (solution.assignment, solution.outcome) == ((1, 1), Outcome.FEASIBLE)
        assert solution.lower_bound_s == pytest.approx(3, abs=1e-5)
        assert type(solution.lower_bound_s) is float  # for JSON

    def test_a_point_outside_its_bounds_is_rounded_to_an_assignment(self, answer: Callable[..., Solution]) -> None:
        solution = answer(0, [0.4, -7, 0.1, 3], 0.0)
        assert (solution.assignment, solution.outcome) == ((0, 1), Outcome.FEASIBLE)

    def test_a_bound_above_its_own_point_is_cut(self, answer: Callable[..., Solution]) -> None:
        assert answer(0, [1, 0, 0, 1], 1e9).lower_bound_s == 3

    @pytest.mark.parametrize("bound", [math.inf, None, 12.0])
    def test_infeasible_is_never_true(self, answer: Callable[..., Solution], bound: float | None) -> None:
        solution = answer(2, None, bound)
        assert (solution.assignment, solution.outcome, solution.lower_bound_s) == (None, Outcome.LIMIT, 0)

    def test_no_bound_yet(self, answer: Callable[..., Solution]) -> None:
        assert answer(1, None, -math.inf).lower_bound_s == 0
