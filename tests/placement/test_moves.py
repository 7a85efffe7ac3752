"""Moves, for people: together they are what the checker counts."""

from __future__ import annotations

import math
import random

import pytest

from shisha_rt.placement.check import cost
from shisha_rt.placement.problem import Node, Problem, ProblemTensor, TransferCounting
from shisha_rt.placement.schedule import Move, moves


def fan_out(counting: TransferCounting) -> Problem:
    """Node 0 feeds 1 to 4; devices 0 and 1 share memory 0, devices 2 and 3 have their own."""
    nodes = tuple(Node(f"n{i}", "Add", (0.0,) * 4) for i in range(5))
    transfer_s = ((0.0, 1.0, 2.0), (0.0, 4.0, 8.0), (16.0, 0.0, 32.0), (64.0, 128.0, 0.0))
    tensor = ProblemTensor("t", 0, (1, 2, 3, 4), transfer_s)
    return Problem(tuple("abcd"), ("m", "c", "d"), (0, 0, 1, 2), nodes, (tensor,), (), counting)


def test_once_for_each_memory() -> None:
    assert moves(fan_out("once"), [1, 0, 2, 3, 2]) == (Move(0, 1, 1, (2, 4), 4.0), Move(0, 1, 2, (3,), 8.0))


def test_once_for_each_consumer() -> None:
    transfers = moves(fan_out("per_edge"), [1, 0, 2, 3, 2])
    assert [(move.memory, move.consumers) for move in transfers] == [(1, (2,)), (1, (4,)), (2, (3,))]


@pytest.mark.parametrize("counting", ["once", "per_edge"])
def test_their_sum_is_the_checker_s(counting: TransferCounting) -> None:
    problem = fan_out(counting)
    rng = random.Random(7)
    for _ in range(50):
        assignment = [rng.randrange(4) for _ in problem.nodes]
        found_s = math.fsum(move.cost_s for move in moves(problem, assignment))
        assert found_s == cost(problem, assignment).transfer_s
