"""Cutting the optimised graph: every legal cut gives, bit for bit, what the whole graph gives.

These run the engine itself on small networks that are built to be fused across layers, and on zoo models.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

from shisha_rt.fabric.arena import Arena
from shisha_rt.fabric.layout import layout_of
from shisha_rt.graph.datatypes import NUMPY_OF
from shisha_rt.graph.zoo import zoo_path
from shisha_rt.ready.compile import Compiled, compile_model
from stages.engines.onnxruntime.compile import MODEL_FILE
from stages.engines.onnxruntime.options import as_built_options
from stages.engines.onnxruntime.segment import OptimisedModel

Arrays = dict[str, npt.NDArray[Any]]


def _conv(name: str, x: str, y: str, channels: tuple[int, int], rng: np.random.Generator) -> list[Any]:
    """A 3x3 convolution node and its weight."""
    weight = rng.standard_normal((channels[1], channels[0], 3, 3)).astype(np.float32) * 0.2
    return [
        helper.make_node("Conv", [x, f"{name}_w"], [y], name=name, pads=[1, 1, 1, 1]),
        onnx.numpy_helper.from_array(weight, f"{name}_w"),
    ]


def _save(folder: Path, name: str, parts: Sequence[Any], outputs: dict[str, list[int]]) -> Path:
    nodes = [part for part in parts if isinstance(part, onnx.NodeProto)]
    constants = [part for part in parts if isinstance(part, onnx.TensorProto)]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 8, 12, 12])
    ends = [helper.make_tensor_value_info(end, onnx.TensorProto.FLOAT, shape) for end, shape in outputs.items()]
    graph = helper.make_graph(nodes, name, [x], ends, constants)
    path = folder / f"{name}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def residual(folder: Path) -> Path:
    """A projection shortcut whose addition the engine takes into the *first* of two convolutions."""
    rng = np.random.default_rng(0)
    parts = [
        *_conv("stem", "x", "a", (8, 16), rng),
        helper.make_node("Relu", ["a"], ["b"]),
        *_conv("main", "b", "c", (16, 16), rng),
        *_conv("shortcut", "b", "d", (16, 16), rng),
        helper.make_node("Add", ["c", "d"], ["e"]),
        helper.make_node("Relu", ["e"], ["f"]),
        *_conv("head", "f", "g", (16, 8), rng),
        helper.make_node("GlobalAveragePool", ["g"], ["y"]),
    ]
    return _save(folder, "residual", parts, {"y": [1, 8, 1, 1]})


def early_output(folder: Path) -> Path:
    """A graph output that is made in the middle and read on, an identity skip, and a branch that joins late."""
    rng = np.random.default_rng(1)
    parts = [
        *_conv("one", "x", "a", (8, 8), rng),
        helper.make_node("Sigmoid", ["a"], ["early"]),
        *_conv("two", "early", "b", (8, 8), rng),
        helper.make_node("LeakyRelu", ["b"], ["c"], alpha=0.1),
        *_conv("three", "c", "d", (8, 8), rng),
        helper.make_node("Add", ["d", "x"], ["e"]),
        helper.make_node("Concat", ["e", "early"], ["f"], axis=1),
        *_conv("four", "f", "late", (16, 4), rng),
    ]
    return _save(folder, "early_output", parts, {"early": [1, 8, 12, 12], "late": [1, 4, 12, 12]})


def blocked_and_plain(folder: Path) -> Path:
    """Operators that have no blocked form between convolutions, so that tensors change format on the way."""
    rng = np.random.default_rng(2)
    parts = [
        *_conv("one", "x", "a", (8, 16), rng),
        helper.make_node("LRN", ["a"], ["b"], size=3),
        *_conv("two", "b", "c", (16, 16), rng),
        helper.make_node("Softmax", ["c"], ["d"], axis=1),
        helper.make_node("Transpose", ["d"], ["e"], perm=[0, 1, 3, 2]),
        *_conv("three", "e", "f", (16, 16), rng),
        helper.make_node("Flatten", ["f"], ["g"]),
        onnx.numpy_helper.from_array(rng.standard_normal((16 * 144, 10)).astype(np.float32), "dense_w"),
        helper.make_node("MatMul", ["g", "dense_w"], ["y"], name="dense"),
    ]
    return _save(folder, "blocked_and_plain", parts, {"y": [1, 10]})


def _whole(compiled: Compiled, inputs: Arrays) -> Arrays:
    folder = compiled.engine_folder
    session = ort.InferenceSession(str(folder / MODEL_FILE), as_built_options(1, str(folder)))
    names = [spec.name for spec in compiled.index.outputs]
    return dict(zip(names, session.run(names, inputs), strict=True))


def _in_stages(compiled: Compiled, inputs: Arrays, cuts: Sequence[int]) -> Arrays:
    layout = layout_of(compiled.index)
    arena = Arena.create(layout, slot_count=1, place_count=1)
    model = OptimisedModel(compiled.engine_folder, compiled.index)
    for name, value in inputs.items():
        arena.view(0, layout.regions[name])[...] = value
    firsts = [0, *(cut + 1 for cut in cuts)]
    lasts = [*cuts, len(compiled.layers) - 1]
    for first, last in zip(firsts, lasts, strict=True):
        model.segment(((first, last),), threads=1).run(arena, slot=0)
    found = {spec.name: arena.view(0, layout.regions[spec.name]).copy() for spec in compiled.index.outputs}
    arena.close()
    return found


def _random_inputs(compiled: Compiled, seed: int) -> Arrays:
    rng = np.random.default_rng(seed)
    return {s.name: rng.standard_normal(s.shape).astype(NUMPY_OF[s.datatype]) for s in compiled.index.inputs}


def _check(compiled: Compiled, cuts: Sequence[int], seed: int = 0) -> None:
    inputs = _random_inputs(compiled, seed)
    expected, found = _whole(compiled, inputs), _in_stages(compiled, inputs, cuts)
    assert expected.keys() == found.keys()
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name], err_msg=f"{name} with cuts {list(cuts)}")
        assert expected[name].std() > 0


@pytest.mark.parametrize("build", [residual, early_output, blocked_and_plain])
def test_every_legal_cut_alone_and_all_together(build: Any, tmp_path: Path) -> None:
    compiled = compile_model(build(tmp_path), {})
    legal = sorted(compiled.legal_cuts)
    assert legal
    for cut in legal:
        _check(compiled, [cut])
    _check(compiled, legal)


def test_a_fused_addition_forbids_the_cut_inside_it_and_no_other(tmp_path: Path) -> None:
    compiled = compile_model(residual(tmp_path), {})
    assert [layer.name for layer in compiled.layers] == ["stem", "main", "shortcut", "head"]
    assert compiled.legal_cuts == {0, 2}


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet", "inception_v1"])
def test_random_cuts_of_zoo_models(name: str) -> None:
    compiled = compile_model(zoo_path(name), {})
    assert len(compiled.legal_cuts) == len(compiled.layers) - 1
    rng = random.Random(name)
    for stage_count in (2, 3, 4):
        _check(compiled, sorted(rng.sample(sorted(compiled.legal_cuts), stage_count - 1)), seed=stage_count)


def test_a_tensor_whose_room_is_another_size_is_refused(tmp_path: Path) -> None:
    compiled, other = compile_model(residual(tmp_path), {}), compile_model(early_output(tmp_path), {})
    arena = Arena.create(layout_of(other.index), slot_count=1, place_count=1)
    segment = OptimisedModel(compiled.engine_folder, compiled.index).segment(((0, 3),), threads=1)
    with pytest.raises((ValueError, KeyError)):
        segment.run(arena, slot=0)
    arena.close()
