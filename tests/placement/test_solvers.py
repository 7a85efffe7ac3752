"""Every solver on every small problem: valid, never below the optimum, and its claims true."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from typing import get_args

import pytest

from shisha_rt.errors import BadInput
from shisha_rt.outcome import Outcome
from shisha_rt.placement.check import cost
from shisha_rt.placement.problem import Problem
from shisha_rt.placement.solver_names import SolverName
from shisha_rt.placement.solvers import SolverOptions, solve
from tests.placement.figure_1 import figure_1
from tests.placement.random_problems import SHAPES, random_small_problem

PROVERS = {"exact", "milp", "brute", "partitiontuner"}
SOMETIMES_PROVEN = {"als", "als_literal", "forkjoin"}
PROBLEMS = 40


@cache
def solved(shape: str) -> tuple[tuple[Problem, float], ...]:
    """Problems of a shape, each with the optimum that trying every assignment finds."""

    def draw() -> Iterator[tuple[Problem, float]]:
        rng = random.Random(shape)
        for _ in range(PROBLEMS):
            problem = random_small_problem(rng, shape)
            assignment = solve("brute", problem).assignment
            assert assignment is not None
            yield problem, cost(problem, assignment).total_s

    return tuple(draw())


def random_options(rng: random.Random, problem: Problem) -> SolverOptions:
    order = rng.sample(problem.devices, rng.randint(0, len(problem.devices)))
    accelerator = rng.choice((None, *problem.devices))
    return SolverOptions(priority=tuple(order), duet_x=rng.choice((0, 25, 50, 100)), accelerator=accelerator)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", get_args(SolverName))
def test_every_solver_on_every_problem(name: SolverName, shape: str) -> None:
    rng = random.Random(name)
    for problem, optimum_s in solved(shape):
        solution = solve(name, problem, random_options(rng, problem))
        if name == "baseline" and not any(all(d in able for able in problem.devices_of) for d in range(4)):
            assert (solution.assignment, solution.outcome) == (None, Outcome.INFEASIBLE)
            continue
        assert solution.assignment is not None
        assert all(d in able for able, d in zip(problem.devices_of, solution.assignment, strict=True))
        cost_s = cost(problem, solution.assignment).total_s
        assert cost_s >= optimum_s
        assert solution.lower_bound_s is None or solution.lower_bound_s <= optimum_s
        if solution.outcome is Outcome.OPTIMAL and solution.bounds == "cost":
            assert cost_s == optimum_s
            assert solution.lower_bound_s == pytest.approx(optimum_s, abs=1e-4)  # less milp's tolerances
        assert name not in PROVERS or solution.outcome is Outcome.OPTIMAL
        assert name in PROVERS or name in SOMETIMES_PROVEN or solution.outcome is Outcome.FEASIBLE


@pytest.mark.parametrize("name", ["exact", "milp", "brute"])
def test_the_provers_find_the_least_sum_of_figure_1(name: SolverName) -> None:
    """v5, which the NPU cannot run by itself, is there in a group: without that the least is 14.5."""
    problem = figure_1()
    solution = solve(name, problem)
    assert solution.assignment is not None
    assert (cost(problem, solution.assignment).total_s, solution.outcome) == (14, Outcome.OPTIMAL)
    assert solution.assignment == (0, 0, 1, 1, 1, 0, 0, 0)


def test_the_heuristics_do_miss_optima() -> None:
    """Else the test above shows nothing of them."""
    for name in ("als", "als_literal", "priority", "duet", "typeseq", "opseq"):
        costs_s = [(solve(name, problem).assignment, optimum_s, problem) for problem, optimum_s in solved("dense")]
        assert any(cost(problem, a or ()).total_s > optimum_s for a, optimum_s, problem in costs_s)


def test_options_reach_the_solvers() -> None:
    problem = max((problem for problem, _ in solved("chain")), key=lambda problem: len(problem.nodes))
    backwards = solve("priority", problem, SolverOptions(priority=problem.devices[::-1]))
    assert backwards.assignment == tuple(node.capable[-1] for node in problem.nodes)
    with pytest.raises(BadInput, match="x = 200"):
        solve("duet", problem, SolverOptions(duet_x=200))
