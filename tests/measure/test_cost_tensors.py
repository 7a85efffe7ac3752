"""What passes between layers: of a graph by hand, and that an engine's own form of a network says as much."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import helper

from shisha_rt.costs.links import AS_INPUT, CostTensor
from shisha_rt.measure.compile import compile_model
from shisha_rt.measure.costs_of_model import cost_tensors
from shisha_rt.model.indexing import plain_index
from shisha_rt.model.layers import group_layers
from tests.model.networks import network, weight, write
from tests.model.test_plain_index import graph


def test_by_hand() -> None:
    built = graph()  # three layers; the input is read again by the last one, and y is an output that is read on
    index = plain_index(built, group_layers(built))
    assert index.input_readers == ((0, 2),)
    assert index.output_makers == (1, 2)
    assert cost_tensors(index) == (
        CostTensor("x", 16, AS_INPUT, (0, 2)),
        CostTensor("skip", 16, 0, (1, 2)),
        CostTensor("y", 16, 1, (2, 3)),
        CostTensor("b", 16, 1, (2,)),
        CostTensor("z", 16, 2, (3,)),
    )


def test_an_engines_own_form_says_as_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["a"]),
        helper.make_node("MatMul", ["a", "w"], ["b"]),
        helper.make_node("Add", ["b", "x"], ["c"]),
        helper.make_node("MatMul", ["c", "v"], ["y"]),
    ]
    weights = {"v": weight(4, 4), "w": weight(4, 4, seed=1)}
    path = write(network(nodes, {"x": [1, 4]}, {"y": [1, 4]}, weights), tmp_path)
    tensors = cost_tensors(compile_model(path).index)
    first, *inner, last = [(tensor.size_bytes, tensor.made, tensor.readers) for tensor in tensors]
    assert first == (16, AS_INPUT, (0, 1))
    assert inner == [(16, 0, (1,)), (16, 1, (2,))]
    assert last == (16, 2, (3,))
