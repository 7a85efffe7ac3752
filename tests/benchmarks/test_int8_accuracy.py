"""What is said of int8's answers: of as many Convs as the paper has on its NPU, and that a trained network reads on."""

from __future__ import annotations

import pytest

from benchmarks.partitiontuner.accuracy import accuracy_row, capable, reader_rows
from shisha_rt.model.reader.onnx_reader import read_model
from shisha_rt.model.zoo import zoo_path
from tests.real import REAL


def test_squeezenet_is_near_fp32_and_has_the_paper_s_convs() -> None:
    row = accuracy_row("squeezenet", frames=2)
    assert (row["Convs in int8"], row["of"]) == (24, 26)
    assert 0.99 < float(str(row["cosine"])) < 1
    assert 15 < float(str(row["signal_to_noise_db"])) < 40


@pytest.mark.parametrize(
    ("name", "convs", "relus"),
    [
        ("resnet18", 19, 8),
        *(pytest.param(*its, marks=pytest.mark.long) for its in (("alexnet", 1, 1), ("resnet50", 52, 32))),
    ],
)
def test_the_paper_s_counts(name: str, convs: int, relus: int) -> None:
    """Table 3, Conv on NPU under TypeSeq and Relu under PartitionTuner."""
    graph = read_model(zoo_path(name)).graph
    chosen = [operator.op_type for operator, its in zip(graph.operators, capable(graph), strict=True) if its]
    assert (chosen.count("Conv"), chosen.count("Relu")) == (convs, relus)


@REAL
@pytest.mark.long
def test_a_trained_reader_reads_most_lines() -> None:
    on_noise, on_lines = reader_rows(lines=12)
    for row in (on_noise, on_lines):
        assert row["Convs in int8"] == 14
        assert 7 < float(str(row["signal_to_noise_db"])) < 20
    assert int(str(on_noise["lines right in int8"])) >= 9
