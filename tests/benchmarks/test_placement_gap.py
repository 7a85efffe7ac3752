"""What counts as missed, and how results are added up."""

from __future__ import annotations

import math
import random

from benchmarks.paper.placement_gap import Case, Gap, Result, drawn, kind_row, result, solver_rows
from shisha_rt.placement.problem import Node, Problem, ProblemTensor

# The first node's tensor is read by the second and, from far back, by the third. Best is d0, d1, d0: 3.5 and 6 for two
# transfers. ALS as printed thinks that the third reads it free on d1, as the second is there too: 7, and truly 10.
SKIP = Problem(
    devices=("d0", "d1"),
    memories=("m0", "m1"),
    memory_of=(0, 1),
    nodes=(Node("a", "Op", (1, math.inf)), Node("b", "Op", (9, 1)), Node("c", "Op", (1.5, 2))),
    tensors=tuple(
        ProblemTensor(f"t{producer}", producer, consumers, ((0.0, 3.0), (3.0, 0.0)))
        for producer, consumers in ((0, (1, 2)), (1, (2,)))
    ),
    transfer_counting="per_edge",
)


def test_each_rival_over_the_optimum() -> None:
    solved = result(Case("by hand", "", SKIP))
    assert solved.optimum_s == 9.5
    assert solved.gaps == {
        "als": Gap(1.0, False),
        "als_literal": Gap(10 / 9.5, True),
        "priority 1": Gap(11.5 / 9.5, None),
        "priority 2": Gap(10 / 9.5, None),
        **{f"duet {x}": Gap(1.0, None) for x in (0, 25, 50, 100)},
    }


def test_results_of_a_kind_are_added_up() -> None:
    case = Case("by hand", "", SKIP)
    ratios_and_wrong = ((1.0, False), (1.2, True), (1.5, True), (3.0, False))
    results = [Result(case, 1.0, {"als": Gap(*gap), "duet 0": Gap(1.0, None)}) for gap in ratios_and_wrong]
    als, duet = rows = list(solver_rows("by hand", results))
    assert als == {
        "problems": "by hand",
        "number": 4,
        "solver": "als",
        "missed": 3,
        "missed %": 75.0,
        "median ratio where missed": 1.5,
        "worst ratio": 3.0,
        "own value wrong": 2,
    }
    assert (duet["missed"], duet["worst ratio"], duet["own value wrong"]) == (0, 1.0, None)
    assert kind_row(rows) == {
        "problems": "by hand",
        "number": 4,
        "als": "75% 1.500 3.000",
        "duet 0": "0%",
        "value wrong": "2",
    }


def test_drawn_costs_keep_the_graph() -> None:
    problem = drawn(random.Random(0), SKIP)
    assert [tensor.consumers for tensor in problem.tensors] == [(1, 2), (2,)]
    assert problem.transfer_counting == "per_edge"
    assert all(0 < seconds < 1 for node in problem.nodes for seconds in node.cost_s)
    assert all(row[memory] == 0 for t in problem.tensors for row, memory in zip(t.transfer_s, (0, 1), strict=True))
