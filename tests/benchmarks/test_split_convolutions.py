"""The convolutions that cost models are fitted to: as large as they say, and models that an engine takes."""

from __future__ import annotations

from pathlib import Path

from benchmarks.splits.convolutions import LEAST_MACS, MOST_MACS, convolutions, multiply_adds, write_convolution
from shisha_rt.model.dimensions import dimensions
from shisha_rt.model.reader.onnx_reader import read_model


def test_they_are_drawn_by_the_seed_alone_and_within_bounds() -> None:
    drawn = convolutions(200, seed=5)
    assert drawn == convolutions(200, seed=5)
    assert drawn != convolutions(200, seed=6)
    assert all(LEAST_MACS <= multiply_adds(features) <= MOST_MACS for features in drawn)
    assert {(features["k"], features["s"]) for features in drawn} == {(k, s) for k in (1, 3, 5, 7) for s in (1, 2)}


def test_the_model_has_these_features(tmp_path: Path) -> None:
    for features in convolutions(30, seed=1):
        write_convolution(features, tmp_path / "conv.onnx")
        graph = read_model(tmp_path / "conv.onnx").graph
        (conv,) = graph.operators
        sizes = dimensions(graph, conv)
        assert graph.outputs[0].shape == (1, features["N"], features["H"], features["W"])
        assert sizes["rows"] * sizes["inner"] * sizes["columns"] == multiply_adds(features)
        assert sizes["elements_in"] == (
            features["H"] * features["W"] * features["C"] * features["s"] ** 2
            + features["C"] * features["k"] ** 2 * features["N"]
            + features["N"]
        )
