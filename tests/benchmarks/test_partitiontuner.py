"""The PartitionTuner paper's board: what is sunk and counted, and that the descriptions hold the numbers fitted."""

from __future__ import annotations

from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.helper import make_node
from onnx.reference import ReferenceEvaluator

from benchmarks.partitiontuner.board import NETWORKS, board_costs, board_devices, cell, sunk, sunk_path
from benchmarks.partitiontuner.numbers import numbers_of, with_numbers
from benchmarks.report.results import RESULTS, read_csv
from shisha_rt.costs.operator_costs import described_costs
from shisha_rt.model.reader.onnx_reader import read_model
from tests.costs.networks import chain
from tests.model.networks import network


def ops(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


class TestSunk:
    @staticmethod
    def joined(*more: onnx.NodeProto, outputs: tuple[str, ...] = ("y",)) -> onnx.ModelProto:
        nodes = [
            make_node("Neg", ["x"], ["a"], "a"),
            make_node("Relu", ["a"], ["ra"], "ra"),
            make_node("Relu", ["x"], ["rx"], "rx"),
            make_node("Concat", ["ra", "rx"], ["y"], "y", axis=1),
            *more,
        ]
        return network(nodes, {"x": (1, 3)}, dict.fromkeys(outputs, (1, 6)), {})

    def test_one_relu_behind_in_place_of_those_before(self) -> None:
        model = self.joined()
        rebuilt = sunk(model)
        onnx.checker.check_model(rebuilt, full_check=True)
        assert ops(rebuilt) == ["Neg", "Concat", "Relu"]
        assert ops(model) == ["Neg", "Relu", "Relu", "Concat"]
        given = {"x": np.array([[1.0, -2.0, 3.0]], np.float32)}
        expected, got = (np.asarray(ReferenceEvaluator(form).run(None, given)) for form in (model, rebuilt))
        np.testing.assert_array_equal(got, expected)

    @pytest.mark.parametrize(
        "model",
        [
            joined(make_node("Abs", ["ra"], ["z"], "z")),
            joined(outputs=("y", "ra")),
            network(
                [make_node("Relu", ["x"], ["r"], "r"), make_node("Concat", ["r", "x"], ["y"], "y", axis=1)],
                {"x": (1, 3)},
                {"y": (1, 6)},
                {},
            ),
            network(
                [make_node("Relu", ["x"], ["r"], "r"), make_node("Concat", ["r", "r"], ["y"], "y", axis=1)],
                {"x": (1, 3)},
                {"y": (1, 6)},
                {},
            ),
        ],
    )
    def test_what_something_else_reads_stays(self, model: onnx.ModelProto) -> None:
        assert ops(sunk(model)) == ops(model)


@pytest.mark.parametrize(
    "name", ["squeezenet", *(pytest.param(name, marks=pytest.mark.long) for name in ("inception_v1", "resnext50"))]
)
def test_as_many_convs_and_branches_as_the_paper_counts(name: str, tmp_path: Path) -> None:
    """Table 3, under TypeSeq."""
    graph = read_model(sunk_path(name, tmp_path)).graph
    ours, published = cell(graph, "typeseq", board_costs(graph, board_devices())), NETWORKS[name]
    assert [operator.op_type for operator in graph.operators].count("Conv") == published.convs
    assert (ours.convs_on_npu, ours.parallel_branches) == (published.convs_on_npu[0], published.parallel_branches)
    assert ours.relus_on_npu == published.relus_on_npu[0]


class TestNumbers:
    def test_other_numbers_are_those_that_costs_then_have(self) -> None:
        devices = board_devices()
        before = numbers_of(devices)
        assert len(set(astuple(before))) == len(astuple(before))  # each stands where the one before it stood
        twice = replace(before, mac_s=2 * before.mac_s, element_s=3 * before.element_s, npu_call_s=1.0, npu_byte_s=0.5)
        cpu, npu = changed = with_numbers(devices, twice)
        assert numbers_of(changed) == twice
        graph = chain([16, 16])  # Conv and Relu on 8 x 8
        costs = described_costs(graph, [cpu, npu])
        assert costs.time_s[:, 0] - cpu.call_s == pytest.approx(
            [2 * before.mac_s * 64 * 144 * 16, 3 * before.element_s * 64 * 16]
        )
        assert costs.groups[0].time_s == pytest.approx(1.0, abs=1e-4)
        assert with_numbers(changed, before) == devices

    def test_the_descriptions_hold_what_was_fitted(self) -> None:
        rows = read_csv(RESULTS / "partitiontuner_fit_numbers.csv")
        written = [float(row["in the file"]) for row in rows]
        assert written == pytest.approx(astuple(numbers_of(board_devices())), rel=1e-3)
        assert written == pytest.approx([float(row["fit"]) for row in rows], rel=5e-3)
