"""DUET's correction worked by hand, and against a reading that prices the whole assignment for every choice."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from shisha_rt.errors import BadInput, Error
from shisha_rt.placement.check import cost
from shisha_rt.placement.duet import duet
from shisha_rt.placement.problem import Node, Problem, ProblemTensor, TransferCounting
from tests.placement.random_problems import SHAPES, random_problem
from tests.wording import raised


def problem_of(
    costs_s: Sequence[tuple[float, float]],
    readers: Sequence[tuple[int, ...]],
    transfer_s: float = 1.0,
    transfer_counting: TransferCounting = "once",
) -> Problem:
    """Two devices with a memory each; node i makes one tensor for `readers[i]`."""
    return Problem(
        devices=("d0", "d1"),
        memories=("m0", "m1"),
        memory_of=(0, 1),
        nodes=tuple(Node(f"n{i}", "Op", cost_s) for i, cost_s in enumerate(costs_s)),
        tensors=tuple(
            ProblemTensor(f"t{i}", i, consumers, ((0.0, transfer_s), (transfer_s, 0.0)))
            for i, consumers in enumerate(readers)
        ),
        transfer_counting=transfer_counting,
    )


def by_whole_cost(problem: Problem, x: float) -> tuple[int, ...]:
    """Each choice by the checker's cost of everything."""
    assignment = [node.cost_s.index(min(node.cost_s)) for node in problem.nodes]
    for index in range(int(len(assignment) * x / 100)):
        for device in problem.nodes[index].capable:
            other = [*assignment[:index], device, *assignment[index + 1 :]]
            if cost(problem, other).total_s < cost(problem, assignment).total_s:
                assignment = other
    return tuple(assignment)


class TestByHand:
    CHAIN = problem_of([(1, 3), (3, 2), (1, 5), (9, 8.5)], [(1,), (2,), (3,)])

    @pytest.mark.parametrize(
        ("x", "expected"),
        [
            (0, (0, 1, 0, 1)),  # the fastest of each
            (25, (0, 1, 0, 1)),  # the first: 1 + 1 here, 3 there
            (50, (0, 0, 0, 1)),  # the second: 2 + 1 + 1 here, 3 there
            (99, (0, 0, 0, 1)),  # three of four nodes, as a node counts whole
            (100, (0, 0, 0, 0)),  # the last: 8.5 + 1 here, 9 there
        ],
    )
    def test_the_first_x_percent_are_chosen_again(self, x: float, expected: tuple[int, ...]) -> None:
        solution = duet(self.CHAIN, x)
        assert (solution.assignment, solution.outcome, solution.lower_bound_s) == (expected, "feasible", None)

    def test_half_by_default(self) -> None:
        assert duet(self.CHAIN) == duet(self.CHAIN, 50)

    def test_a_neighbour_counts_where_it_is_now(self) -> None:
        # The third leaves its reader for its two producers; the reader then follows it.
        problem = problem_of([(math.inf, 0), (math.inf, 0), (2, 2.5), (2, 2.5)], [(2,), (2,), (3,)])
        assert duet(problem, 50).assignment == (1, 1, 0, 0)
        assert duet(problem, 75).assignment == (1, 1, 1, 0)
        assert duet(problem, 100).assignment == (1, 1, 1, 1)

    @pytest.mark.parametrize(("transfer_counting", "last"), [("once", 1), ("per_edge", 0)])
    def test_a_copy_that_is_there_already_is_free_only_where_it_is_paid_once(
        self, transfer_counting: TransferCounting, last: int
    ) -> None:
        # The last is faster on d1, where another reads the same tensor.
        problem = problem_of([(0, math.inf), (math.inf, 0), (2, 1.5)], [(1, 2)], transfer_counting=transfer_counting)
        assert duet(problem, 100).assignment == (0, 1, last)

    @pytest.mark.parametrize(("transfer_counting", "first"), [("once", 1), ("per_edge", 0)])
    def test_two_readers_in_one_memory_count_twice_only_where_every_edge_is_paid(
        self, transfer_counting: TransferCounting, first: int
    ) -> None:
        problem = problem_of([(2.5, 1), (0, math.inf), (0, math.inf)], [(1, 2)], transfer_counting=transfer_counting)
        assert duet(problem, 100).assignment == (first, 0, 0)

    def test_nodes_that_would_pay_only_in_company_stay(self) -> None:
        # Both on d1 cost 1 more and save two transfers of 1.5; either alone moves only its transfer to the other side.
        problem = problem_of([(math.inf, 0), (2, 2.5), (2, 2.5), (math.inf, 0)], [(1,), (2,), (3,)], transfer_s=1.5)
        assert duet(problem, 100).assignment == (1, 0, 0, 1)
        assert cost(problem, (1, 1, 1, 1)).total_s < cost(problem, (1, 0, 0, 1)).total_s


@pytest.mark.parametrize("shape", SHAPES)
def test_it_chooses_as_if_everything_were_priced_each_time(shape: str) -> None:
    rng = random.Random(shape)
    for _ in range(100):
        problem = random_problem(rng, shape, nodes=rng.randint(1, 20), devices=rng.randint(2, 4))
        x = rng.choice((0, 25, 50, 100))
        assert duet(problem, x).assignment == by_whole_cost(problem, x)


@pytest.mark.parametrize("x", [-1, 100.5, math.nan, math.inf])
def test_x_is_a_percentage(x: float) -> None:
    with raised(BadInput, Error.WRONG_OPTION, match=r"x = .*: .* 0 to 100"):
        duet(TestByHand.CHAIN, x)
