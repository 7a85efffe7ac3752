"""The four schemes on PartitionTuner's Figure 1, exactly; and what their rules say elsewhere."""

from __future__ import annotations

import math

import pytest

from shisha_rt.errors import BadInput, Error
from shisha_rt.outcome import Outcome
from shisha_rt.papers.partitiontuner.schemes import baseline, opseq, partitiontuner, typeseq
from shisha_rt.placement.check import cost
from shisha_rt.placement.problem import Group, Node, Problem, ProblemTensor
from shisha_rt.placement.solution import PlacementSolution
from tests.placement.figure_1 import figure_1
from tests.wording import raised, says

INF = math.inf
PAPER = figure_1()


def chain(*nodes: tuple[str, float, float], groups: tuple[Group, ...] = ()) -> Problem:
    """Nodes by type and seconds on the CPU and on the NPU, each of which reads the one before."""
    return Problem(
        ("cpu", "npu"),
        ("dram", "sram"),
        (0, 1),
        tuple(Node(f"n{i}", op, (cpu_s, npu_s)) for i, (op, cpu_s, npu_s) in enumerate(nodes)),
        tuple(ProblemTensor(f"t{i}", i, (i + 1,), ((0.0, 0.0), (0.0, 0.0))) for i in range(len(nodes) - 1)),
        groups,
    )


class TestFigure1:
    @pytest.mark.parametrize(
        ("solution", "on_npu", "seconds"),
        [
            (baseline(PAPER), [], 1 + 2 + 10 + 10.5 + 1.5 + 5),
            (typeseq(PAPER), ["v1", "v3", "v4", "v5", "v6", "v7"], 23.5),
            (opseq(PAPER), ["v3", "v4"], 14.5),
            (partitiontuner(PAPER), ["v3", "v4", "v5"], 14),
        ],
        ids=["baseline", "typeseq", "opseq", "partitiontuner"],
    )
    def test_in_sequence(self, solution: PlacementSolution, on_npu: list[str], seconds: float) -> None:
        assert solution.assignment is not None
        there = [node.name for node, device in zip(PAPER.nodes, solution.assignment, strict=True) if device == 1]
        assert (there, cost(PAPER, solution.assignment).total_s) == (on_npu, seconds)

    def test_in_parallel(self) -> None:
        solution = partitiontuner(PAPER)
        assert solution.schedule is not None
        assert solution.schedule.makespan_s == 12.5
        assert (solution.outcome, solution.lower_bound_s) == (Outcome.OPTIMAL, 14)
        counts = {
            name: solution.statistics[name] for name in ("partitions", "parallel_branches", "overlapping_branches")
        }
        assert counts == {"partitions": 4, "parallel_branches": 2, "overlapping_branches": 2}

    def test_the_accelerator_by_name(self) -> None:
        """With the CPU as the accelerator, what it leaves over is on the NPU, if that can run it."""
        assert typeseq(PAPER, "npu") == typeseq(PAPER)
        assert typeseq(PAPER, "cpu").assignment == (0,) * 8
        with raised(BadInput, Error.WRONG_OPTION, match=r'accelerator: "gpu": no such device,'):
            typeseq(PAPER, "gpu")


class TestTypeSeq:
    @pytest.mark.parametrize(
        ("problem", "assignment"),
        [
            (chain(("Conv", 1, 9), ("Relu", 1, 9)), (1, 1)),
            (chain(("Conv", 1, 9), ("Relu", 1, INF)), (1, 0)),  # the NPU has it neither alone nor in a group
            (chain(("Conv", 1, INF), ("Relu", 1, 1)), (0, 0)),
            (chain(("Conv", 1, 9), ("Relu", 1, 9), ("Relu", 1, 9)), (1, 1, 0)),
            (chain(("Conv", 1, 9), ("Add", 1, 0), ("Relu", 1, 0)), (1, 0, 0)),
            (chain(("Conv", INF, 9), ("Add", INF, 1)), (1, 1)),  # nothing else can run it
            # In a group alone, and that has a node more, which is not there.
            (chain(("Conv", 1, 9), ("Relu", 1, INF), ("Add", 1, 1), groups=(Group((0, 1, 2), 1, 1.0),)), (1, 0, 0)),
        ],
    )
    def test_convs_and_the_relus_after_them(self, problem: Problem, assignment: tuple[int, ...]) -> None:
        assert typeseq(problem).assignment == assignment

    def test_without_a_conv_nothing_is_there(self) -> None:
        assert typeseq(chain(("", 9, 1), ("Relu", 9, 1))).assignment == (0, 0)


def test_a_baseline_takes_the_cheapest_device_that_runs_all_even_in_groups() -> None:
    nodes = ("Conv", 9.0, 2.0), ("Relu", 9.0, INF)
    assert baseline(chain(*nodes)).assignment == (0, 0)
    assert baseline(chain(*nodes, groups=(Group((0, 1), 1, 2.5),))).assignment == (1, 1)
    nowhere = baseline(chain(("Conv", INF, 1.0), ("Relu", 1.0, INF)))
    assert (nowhere.assignment, nowhere.outcome) == (None, Outcome.INFEASIBLE)
    assert nowhere.reason == says("no device can …")
