"""What is proven of problems too wide to be eliminated, each held against elimination within wider limits."""

from __future__ import annotations

import math
import random

import pytest

from shisha_rt.outcome import forever, never
from shisha_rt.papers.dcg.brute import brute
from shisha_rt.placement.check import cost
from shisha_rt.placement.exact import exact_placement
from shisha_rt.placement.narrowing import WidthLimits, bounded, narrowed, quick_assignment
from shisha_rt.placement.problem import Group, Node, Problem, ProblemTensor
from tests.placement.random_problems import SHAPES, random_assignment, random_problem, random_small_problem

NARROW = WidthLimits(entries=1, held=1)


def optimum_s(problem: Problem) -> float:
    solution = brute(problem)
    assert solution.assignment is not None
    return cost(problem, solution.assignment).total_s


@pytest.mark.parametrize("shape", SHAPES)
def test_bounds_hold_and_what_is_dropped_is_of_no_use(shape: str) -> None:
    rng = random.Random(shape)
    for _ in range(40):
        problem = random_small_problem(rng, shape)
        least_s = optimum_s(problem)
        for start in (quick_assignment(problem, never), random_assignment(rng, problem)):
            first = bounded(problem, start)
            then = narrowed(first, NARROW, forever)
            assert first.lower_bound_s <= then.lower_bound_s <= least_s <= then.cost_s <= first.cost_s
            assert min(optimum_s(then.left), then.cost_s) == least_s
            if then.is_settled:
                assert then.cost_s == least_s


def test_shares_of_groups_are_no_more_than_groups_cost() -> None:
    """The first node costs 8 alone and the second 2; together 1, of which 0.8 and 0.2 are theirs."""
    nodes = Node("n0", "", (8.0, 9.0)), Node("n1", "", (2.0, 1.0))
    tensor = ProblemTensor("t", 0, (1,), ((0.0, 0.0), (0.0, 0.0)))
    problem = Problem(("a", "b"), ("m", "n"), (0, 1), nodes, (tensor,), (Group((0, 1), 0, 1.0),))
    assert bounded(problem, (0, 0)).lower_bound_s == pytest.approx(1.0)
    assert bounded(problem, (1, 1)).lower_bound_s == pytest.approx(1.0)


def test_a_device_that_costs_more_than_all_the_rest_is_dropped_at_once() -> None:
    nodes = tuple(Node(f"n{i}", "", (1.0, 1e9 if i % 2 else 1.5)) for i in range(6))
    problem = Problem(("a", "b"), ("m", "n"), (0, 1), nodes, ())
    narrowing = bounded(problem, (1, 0) * 3)
    assert [node.capable for node in narrowing.left.nodes] == [(0, 1), (0,)] * 3


def test_moves_find_what_single_nodes_do_not() -> None:
    """Twelve nodes in a ring of transfers: all on the other device is cheaper, and each alone pays two transfers."""
    nodes = tuple(Node(f"n{i}", "", (3.0, 2.0, 9.0)) for i in range(12))
    moves = tuple(tuple(5.0 * (a != b) for b in range(3)) for a in range(3))
    tensors = tuple(ProblemTensor(f"t{i}{j}", i, (j,), moves) for i in range(12) for j in range(i + 1, 12))
    problem = Problem(("a", "b", "c"), ("m", "n", "o"), (0, 1, 2), nodes, tensors)
    narrowing = narrowed(bounded(problem, (0,) * 12), WidthLimits(1 << 12, 1 << 12), forever)
    assert (narrowing.cost_s, narrowing.is_settled) == (24, True)


@pytest.mark.parametrize(("shape", "nodes", "devices"), [("fan_out", 60, 6), ("skip", 60, 6), ("dense", 11, 4)])
def test_what_is_narrowed_far_enough_has_the_optimum_of_the_whole(shape: str, nodes: int, devices: int) -> None:
    problem = random_problem(random.Random(2), shape, nodes, devices, own_memories=True, transfer_counting="once")
    whole = exact_placement(problem)
    assert whole.assignment is not None
    entries = int(whole.statistics["table_entries"])
    solution = exact_placement(problem, WidthLimits(entries - 1, entries))
    assert solution.statistics["over_limit"] == 1
    assert solution.assignment is not None
    assert cost(problem, solution.assignment).total_s == cost(problem, whole.assignment).total_s
    assert solution.reason is None


def test_costs_too_large_to_be_told_apart_from_the_rest() -> None:
    """What cannot be in a better assignment counts as just too dear: 1e15 beside 1e-9 loses nothing."""
    nodes = tuple(Node(f"n{i}", "", (1e-9, 2e-9, 1e15)) for i in range(8))
    moves = ((0.0, 1e15, 1e-9), (1e15, 0.0, 1e15), (1e15, 1e15, 0.0))
    tensors = tuple(ProblemTensor(f"t{i}", i, (i + 1,), moves) for i in range(7))
    problem = Problem(("a", "b", "c"), ("m", "n", "o"), (0, 1, 2), nodes, tensors)
    narrowing = narrowed(bounded(problem, (1,) * 8), NARROW, forever)
    assert narrowing.assignment == (0,) * 8
    assert narrowing.lower_bound_s == pytest.approx(8e-9)
    assert math.isclose(narrowing.cost_s, 8e-9)
