"""Placing by an order of devices: capability decides, costs never do."""

from __future__ import annotations

import math

import pytest

from shisha_rt.errors import BadInput, Error
from shisha_rt.papers.dcg.priority import priority
from shisha_rt.placement.problem import Node, Problem
from tests.wording import raised

INF = math.inf
PROBLEM = Problem(
    devices=("cpu_s", "cpu_p", "pim"),
    memories=("dram", "pim"),
    memory_of=(0, 0, 1),
    nodes=(Node("all", "Add", (1, 2, 3)), Node("cpus", "Erf", (1, 9, INF)), Node("serial", "Tanh", (5, INF, INF))),
    tensors=(),
)


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ((), (0, 0, 0)),
        (("pim", "cpu_p", "cpu_s"), (2, 1, 0)),
        (("cpu_p", "pim", "cpu_s"), (1, 1, 0)),
        (("pim",), (2, 0, 0)),
        (("pim", "cpu_p"), (2, 1, 0)),
    ],
)
def test_each_node_takes_the_first_device_that_can_run_it(order: tuple[str, ...], expected: tuple[int, ...]) -> None:
    solution = priority(PROBLEM, order)
    assert (solution.assignment, solution.outcome, solution.lower_bound_s) == (expected, "feasible", None)


def test_an_unknown_device() -> None:
    with raised(BadInput, Error.WRONG_OPTION, match=r'priority: "gpu": no such device, .* cpu_s, cpu_p, pim'):
        priority(PROBLEM, ("pim", "gpu"))


def test_a_device_named_twice() -> None:
    with raised(BadInput, Error.WRONG_OPTION, match='priority = "pim,cpu_s,pim":'):
        priority(PROBLEM, ("pim", "cpu_s", "pim"))
