"""Both readings of Eq. 2 on graphs worked by hand, on chains against brute force, and what holds of every result."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Final

import pytest
from hypothesis import given, settings

from shisha_rt.outcome import Outcome
from shisha_rt.placement.als import als, als_literal
from shisha_rt.placement.check import cost
from shisha_rt.placement.problem import Group, Node, Problem, ProblemTensor, TransferCounting
from shisha_rt.placement.solution import PlacementSolution
from tests.placement.strategies import problems

INF: Final = math.inf
BOTH_READINGS: Final = (als, als_literal)

Solver = Callable[[Problem], PlacementSolution]


def problem_of(
    costs_s: Sequence[tuple[float, ...]],
    edges: Sequence[tuple[int, tuple[int, ...], float]],
    counting: TransferCounting = "once",
) -> Problem:
    """A memory for each device; an edge is a producer, its consumers and the price between any two memories."""
    devices = tuple(f"d{i}" for i in range(len(costs_s[0])))
    each = range(len(devices))
    return Problem(
        devices=devices,
        memories=devices,
        memory_of=tuple(each),
        nodes=tuple(Node(f"n{i}", "", row) for i, row in enumerate(costs_s)),
        tensors=tuple(
            ProblemTensor(f"t{i}", producer, consumers, tuple(tuple(s * (a != b) for b in each) for a in each))
            for i, (producer, consumers, s) in enumerate(edges)
        ),
        transfer_counting=counting,
    )


def optimum_s(problem: Problem) -> float:
    return min(cost(problem, assignment).total_s for assignment in product(*(node.capable for node in problem.nodes)))


def cost_s(problem: Problem, solution: PlacementSolution) -> float:
    assert solution.assignment is not None
    return cost(problem, solution.assignment).total_s


class TestByHand:
    # n0 -> n1 -> n2 and n0 -> n2. Only d0 runs n0 and only d1 runs n1: f_1[1] = 1 + (1 + 1) = 3.
    # n2 on d1 costs 1 and must bring n0's tensor at 9; on d0 it costs 4 and must bring n1's at 1.
    SKIP = problem_of([(1, INF), (INF, 1), (4, 1)], [(0, (1,), 1), (0, (2,), 9), (1, (2,), 1)])

    def test_staying_costs_nothing_to_the_literal_one(self) -> None:
        literal = als_literal(self.SKIP)
        assert (literal.assignment, literal.outcome) == ((0, 1, 1), Outcome.FEASIBLE)
        assert literal.statistics["recurrence_s"] == 4
        assert cost_s(self.SKIP, literal) == 13

    def test_als_sees_where_the_tensor_is(self) -> None:
        solution = als(self.SKIP)
        assert (solution.assignment, solution.outcome, solution.lower_bound_s) == ((0, 1, 0), Outcome.FEASIBLE, None)
        assert solution.statistics["recurrence_s"] == cost_s(self.SKIP, solution) == optimum_s(self.SKIP) == 8

    def test_literal_brings_to_a_device_what_was_made_there(self) -> None:
        # n0 on d0, n1 on d1; back on d0, n2 is charged for n0's tensor too, as if it were where n1 is.
        problem = problem_of([(1, 90), (INF, 1), (1, INF)], [(0, (1,), 1), (0, (2,), 5), (1, (2,), 1)])
        literal = als_literal(problem)
        assert literal.assignment == (0, 1, 0)
        assert (literal.statistics["recurrence_s"], cost_s(problem, literal)) == (10, 5)

    def test_literal_leaves_out_what_the_previous_device_could_not_make(self) -> None:
        problem = problem_of([(1, INF), (INF, 1), (1, INF)], [(0, (1,), 1), (0, (2,), 5), (1, (2,), 1)])
        assert als_literal(problem).statistics["recurrence_s"] == 5

    def test_als_misses_the_optimum_where_a_tensor_matters_later(self) -> None:
        # Alone n0 is cheaper on d0, and n1 needs nothing; but n2, on d1 only, needs what n0 made.
        problem = problem_of([(1, 2), (0, INF), (INF, 1)], [(0, (2,), 5)])
        solution = als(problem)
        assert (solution.assignment, cost_s(problem, solution), optimum_s(problem)) == ((0, 0, 1), 7, 3)

    @pytest.mark.parametrize(("counting", "total_s"), [("once", 7), ("per_edge", 13)])
    def test_a_tensor_of_several_consumers(self, counting: TransferCounting, total_s: float) -> None:
        problem = problem_of([(1, INF), (INF, 1), (INF, 1), (INF, 1)], [(0, (1, 2, 3), 3)], counting)
        assert als(problem).statistics["recurrence_s"] == total_s == cost_s(problem, als(problem))

    def test_a_copy_in_a_memory_serves_all_its_devices(self) -> None:
        tensor = ProblemTensor("t", 0, (1, 2), ((0.0, 3.0), (3.0, 0.0), (3.0, 0.0)))
        rows = (0, INF, INF), (INF, 1, INF), (INF, INF, 1)
        nodes = tuple(Node(name, "", row) for name, row in zip("abc", rows, strict=True))
        problem = Problem(("a", "b", "c"), ("m", "n"), (0, 1, 1), nodes, (tensor,))
        assert als(problem).statistics["recurrence_s"] == 5


@pytest.mark.parametrize("solve", BOTH_READINGS)
class TestOutcome:
    CHAIN = problem_of([(1, 2), (3, 1), (1, 2)], [(0, (1,), 1), (1, (2,), 1)])

    def test_a_chain_is_proven(self, solve: Solver) -> None:
        solution = solve(self.CHAIN)
        assert (solution.outcome, solution.lower_bound_s) == (Outcome.OPTIMAL, 5)

    def test_a_bound_is_no_rounding_error_above_the_cost(self, solve: Solver) -> None:
        # One by one these sum up to a little more than their sum.
        problem = problem_of([(0.1,), (0.2,), (0.3,)], [(0, (1,), 1), (1, (2,), 1)])
        solution = solve(problem)
        assert (solution.outcome, solution.lower_bound_s) == (Outcome.OPTIMAL, cost_s(problem, solution))

    def test_groups_are_ignored_and_void_the_proof(self, solve: Solver) -> None:
        problem = replace(self.CHAIN, groups=(Group((0, 1), 1, 0.5),))
        solution = solve(problem)
        assert (solution.outcome, solution.lower_bound_s) == (Outcome.FEASIBLE, None)
        assert solution.assignment == solve(self.CHAIN).assignment

    def test_one_operator(self, solve: Solver) -> None:
        assert solve(problem_of([(INF, 2)], [])) == PlacementSolution(
            (1,), Outcome.OPTIMAL, 2, statistics={"recurrence_s": 2}
        )


@settings(deadline=None)
@given(problem=problems(max_nodes=6, shapes=("chain",)))
def test_both_are_optimal_on_chains(problem: Problem) -> None:
    for solve in BOTH_READINGS:
        solution = solve(problem)
        assert solution.outcome == Outcome.OPTIMAL
        assert solution.lower_bound_s == cost_s(problem, solution) == optimum_s(problem)


@settings(deadline=None)
@given(problem=problems())
def test_als_counts_what_its_assignment_costs(problem: Problem) -> None:
    solution = als(problem)
    assert solution.statistics["recurrence_s"] == cost_s(problem, solution) >= optimum_s(problem)
    assert solution.outcome == Outcome.FEASIBLE or cost_s(problem, solution) == optimum_s(problem)


@settings(deadline=None)
@given(problem=problems())
def test_als_is_eq_2_with_whole_paths_kept(problem: Problem) -> None:
    """A second reading: each device keeps its cheapest path as a list, and the checker prices it."""

    def price_s(path: tuple[int, ...]) -> float:
        tensors = [
            replace(tensor, consumers=tuple(consumer for consumer in tensor.consumers if consumer < len(path)))
            for tensor in problem.tensors
            if tensor.producer < len(path)
        ]
        return cost(replace(problem, nodes=problem.nodes[: len(path)], tensors=tuple(tensors)), path).total_s

    kept: list[tuple[int, ...]] = [()]
    for node in problem.nodes:
        kept = [min(((*path, device) for path in kept), key=price_s) for device in range(len(node.cost_s))]
    assert als(problem).statistics["recurrence_s"] == min(map(price_s, kept))


@settings(deadline=None)
@given(problem=problems())
def test_literal_places_every_node_where_it_can_run(problem: Problem) -> None:
    solution = als_literal(problem)
    assert solution.assignment is not None
    assert all(device in node.capable for device, node in zip(solution.assignment, problem.nodes, strict=True))


@pytest.mark.parametrize("solve", BOTH_READINGS)
def test_a_long_chain(solve: Solver) -> None:
    # Devices take turns at being fast, for 10 operators each; a change costs 3 and saves 10 or more.
    costs_s = [(1.0, 2.0) if i // 10 % 2 == 0 else (2.0, 1.0) for i in range(20_000)]
    problem = problem_of(costs_s, [(i, (i + 1,), 3.0) for i in range(19_999)])
    solution = solve(problem)
    assert solution.outcome == Outcome.OPTIMAL
    assert cost_s(problem, solution) == solution.lower_bound_s == 20_000 + 1_999 * 3


def test_a_long_graph_with_far_skips() -> None:
    """Each of the first 10,000 operators is read by one of the last: a cut of 10,000 tensors, none moved in vain."""
    half = 10_000
    costs_s = [(1.0, 2.0) if i % half < half // 2 else (2.0, 1.0) for i in range(2 * half)]
    problem = problem_of(costs_s, [(i, (i + half,), 9.0) for i in range(half)])
    solution = als(problem)
    assert solution.statistics["recurrence_s"] == cost_s(problem, solution) == 2 * half
