"""What is said of int8's answers: of as many Convs as the paper has on its NPU, and that a trained network reads on."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.partitiontuner.accuracy import Sides, closeness, reader_rows
from shisha_rt.model.reader.onnx_reader import read_model
from shisha_rt.model.zoo import zoo_path
from tests.real import REAL
from tests.stages.capable import capable


def test_squeezenet_is_near_fp32_and_has_the_paper_s_convs() -> None:
    path = zoo_path("squeezenet")
    graph = read_model(path).graph
    sides, generator = Sides.of(path, capable(graph)), np.random.default_rng(1)
    figures = closeness([sides.answers(generator.standard_normal(graph.inputs[0].shape, np.float32)) for _ in range(2)])
    assert 0.99 < figures["cosine"] < 1
    assert 15 < figures["signal_to_noise_db"] < 40


@pytest.mark.parametrize(
    ("name", "convs", "relus"),
    [
        ("squeezenet", 24, 24),
        ("resnet18", 19, 8),
        *(pytest.param(*counts, marks=pytest.mark.long) for counts in (("alexnet", 1, 1), ("resnet50", 52, 32))),
    ],
)
def test_the_paper_s_counts(name: str, convs: int, relus: int) -> None:
    """Table 3, Conv on NPU under TypeSeq and Relu under PartitionTuner."""
    graph = read_model(zoo_path(name)).graph
    chosen = [
        operator.op_type for operator, is_capable in zip(graph.operators, capable(graph), strict=True) if is_capable
    ]
    assert (chosen.count("Conv"), chosen.count("Relu")) == (convs, relus)


@REAL
@pytest.mark.long
def test_a_trained_reader_reads_most_lines() -> None:
    alone, typeseq, *_ = reader_rows(lines=12)
    assert (alone["Convs on NPU"], typeseq["Convs on NPU"]) == (0, 14)
    assert int(str(typeseq["lines right"])) >= 7
