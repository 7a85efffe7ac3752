"""The index of a cleaned graph: every cut legal, and every tensor that crosses one, whoever reads it last."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import helper

from shisha_rt.cache import LIST_FILE
from shisha_rt.daemon.sweep import passing_tensors
from shisha_rt.measure import compile as compile_module
from shisha_rt.measure.compile import compile_model
from shisha_rt.model.batches import follow_batch
from shisha_rt.model.graph import Graph, Operator
from shisha_rt.model.index import Crossing
from shisha_rt.model.indexing import plain_index, with_batches, with_splits
from shisha_rt.model.layers import group_layers
from shisha_rt.model.reader.index_file import FILE_NAME
from shisha_rt.plan.plan import Plan
from shisha_rt.tensors import Tensor
from tests.model.networks import network, weight, write


def graph() -> Graph:
    """Three MatMul layers: the input is read again by the last, `skip` passes over the second, `y` is read on."""
    operators = (
        Operator("one", "MatMul", "", ("x", "w"), ("a",), {}),
        Operator("light", "Relu", "", ("a",), ("skip",), {}),
        Operator("two", "MatMul", "", ("skip", "w"), ("y",), {}),
        Operator("split", "Split", "", ("y",), ("b", "unread"), {}),
        Operator("three", "MatMul", "", ("b", "w"), ("c",), {}),
        Operator("sum", "Sum", "", ("c", "skip", "x", "y"), ("z",), {}),
    )
    tensors = {name: Tensor(name, (2, 2), "FP32") for name in ("x", "a", "skip", "y", "b", "unread", "c", "z")}
    outputs = tensors["y"], tensors["z"]
    return Graph("net", operators, (tensors["x"],), outputs, tensors, {"w": Tensor("w", (2, 2), "FP32")})


def spec(name: str) -> Tensor:
    return Tensor(name, (2, 2), "FP32")


def test_the_index() -> None:
    built = graph()
    index = plain_index(built, group_layers(built))
    assert (index.engine, index.form) == ("plain", "as_is")
    assert index.layer_count == 3
    assert index.legal_cuts == (0, 1)
    assert index.node_layers == (0, 0, 1, 1, 2, 2)
    assert index.inputs == (spec("x"),)
    assert index.outputs == (spec("y"), spec("z"))
    assert index.crossing == (
        Crossing(spec("skip"), made=0, readers=(1, 2)),
        Crossing(spec("y"), made=1, readers=(2,)),
        Crossing(spec("b"), made=1, readers=(2,)),
    )
    assert [tensor.name for tensor in index.tensors] == ["x", "y", "z", "skip", "b"]
    plans = [Plan.of([(0, last, "a"), (last + 1, 2, "b")]) for last in (0, 1)]
    assert [passing_tensors(index, plan) for plan in plans] == [{"skip"}, {"skip", "b"}]
    assert [index.operators_of(first, last) for first, last in ((0, 0), (1, 2), (2, 2))] == [(0, 1), (2, 5), (4, 5)]


def test_each_operator_a_layer_of_its_own() -> None:
    built = graph()
    layers = group_layers(built, "operators")
    index = plain_index(built, layers)
    assert [(layer.name, layer.op, layer.weight) for layer in layers[:3]] == [
        ("one", "MatMul", 8),
        ("light", "Relu", 0),
        ("two", "MatMul", 8),
    ]
    assert index.legal_cuts == (0, 1, 2, 3, 4)
    assert index.node_layers == (0, 1, 2, 3, 4, 5)
    assert [entry.tensor.name for entry in index.crossing] == ["a", "skip", "y", "b", "c"]
    assert list(map(set, index.needs)) == [set(), {0}, {1}, {2}, {3}, {1, 2, 4}]


def test_a_plain_model_needs_no_engine_and_keeps_nothing_but_its_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(compile_module, "run_job", _must_not_run)
    nodes = [helper.make_node("MatMul", ["x", "v"], ["a"]), helper.make_node("MatMul", ["a", "w"], ["y"])]
    weights = {"v": weight(4, 4), "w": weight(4, 4, seed=1)}
    path = write(network(nodes, {"x": [1, 4]}, {"y": [1, 4]}, weights), tmp_path)
    compiled = compile_model(path, plain="heavy")
    assert compiled.legal_cuts == {0}
    graph = compiled.model.graph
    split = with_splits(plain_index(graph, compiled.layers), graph, compiled.layers)
    assert compiled.index == with_batches(split, graph, follow_batch(graph, {}))
    assert {file.name for file in compiled.engine_folder.iterdir()} == {FILE_NAME, LIST_FILE}
    assert compiled.engine_folder.parent.name == compiled.model.key
    assert (compiled.model_folder / "clean.onnx").is_file()
    assert compile_model(path, plain="heavy").index == compiled.index


def _must_not_run(model_folder: Path, target: Path) -> None:
    raise AssertionError("an engine was started")
