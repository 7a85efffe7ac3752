"""Cutting a compiled graph: every cut of the engine's own gives, bit for bit, what the whole graph gives.

These run the engine itself on small networks that are built to be fused across layers, and on zoo models.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

from shisha_rt.measure.compile import compile_model
from shisha_rt.measure.compiled import Compiled
from shisha_rt.model.spans import Span, groups_of
from shisha_rt.model.zoo import NAMES, zoo_path
from shisha_rt.process.arena import Arena
from shisha_rt.process.layout import layouts_of
from shisha_rt.tensors import NUMPY_OF
from stages.engines.onnxruntime.optimised_graph import MODEL_FILE
from stages.engines.onnxruntime.options import as_built_options
from stages.engines.onnxruntime.segment import OptimisedModel
from stages.engines.session import untimed

Arrays = dict[str, npt.NDArray[Any]]


def _conv(name: str, x: str, y: str, channels: tuple[int, int], rng: np.random.Generator) -> list[Any]:
    """A 3x3 convolution node and its weight."""
    weight = rng.standard_normal((channels[1], channels[0], 3, 3)).astype(np.float32) * 0.2
    return [
        helper.make_node("Conv", [x, f"{name}_w"], [y], name=name, pads=[1, 1, 1, 1]),
        onnx.numpy_helper.from_array(weight, f"{name}_w"),
    ]


def _save(folder: Path, name: str, parts: Sequence[Any], outputs: dict[str, list[int]], channels: int = 8) -> Path:
    nodes = [part for part in parts if isinstance(part, onnx.NodeProto)]
    constants = [part for part in parts if isinstance(part, onnx.TensorProto)]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, channels, 12, 12])
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


def branches(folder: Path, channels: int = 8) -> Path:
    """Three branches of three convolutions each, whose middles are joined a second time, and one is an output too."""
    rng = np.random.default_rng(3)
    parts: list[Any] = []
    for branch in "abc":
        parts += _conv(f"{branch}1", "x", f"{branch}_first", (channels, 8), rng)
        parts.append(helper.make_node("Relu", [f"{branch}_first"], [f"{branch}_middle"]))
        parts += _conv(f"{branch}2", f"{branch}_middle", f"{branch}_second", (8, 8), rng)
        parts += _conv(f"{branch}3", f"{branch}_second", f"{branch}_last", (8, 8), rng)
    parts += [
        helper.make_node("Concat", ["a_last", "b_last", "c_last"], ["joined"], axis=1),
        *_conv("head", "joined", "late", (24, 8), rng),
        helper.make_node("Sum", ["late", "a_middle", "b_middle"], ["y"]),
    ]
    return _save(folder, "branches", parts, {"y": [1, 8, 12, 12], "c_middle": [1, 8, 12, 12]}, channels)


def whole(compiled: Compiled, inputs: Arrays) -> Arrays:
    folder = compiled.engine_folder
    session = ort.InferenceSession(str(folder / MODEL_FILE), as_built_options(str(folder)))
    names = [spec.name for spec in compiled.index.outputs]
    return dict(zip(names, session.run(names, inputs), strict=True))


def _in_stages(compiled: Compiled, inputs: Arrays, stages: Sequence[Sequence[Span]]) -> Arrays:
    """`stages`: the work of each, in an order in which they can run."""
    layouts = layouts_of([compiled.index.tensors])
    arena = Arena.create(layouts, slot_count=1, place_count=1)
    model = OptimisedModel(compiled.engine_folder, compiled.index)
    for name, value in inputs.items():
        arena.view(0, arena.layout.regions[name])[...] = value
    for work in stages:
        model.segment(work).on_slot(arena, 0)(untimed)
    answers = {spec.name: arena.view(0, arena.layout.regions[spec.name]).copy() for spec in compiled.index.outputs}
    arena.close()
    return answers


def chain(compiled: Compiled, cuts: Sequence[int]) -> list[list[Span]]:
    return [[run] for run in groups_of(len(compiled.layers), cuts)]


def _random_inputs(compiled: Compiled, seed: int) -> Arrays:
    rng = np.random.default_rng(seed)
    return {s.name: rng.standard_normal(s.shape).astype(NUMPY_OF[s.datatype]) for s in compiled.index.inputs}


def _check(compiled: Compiled, *plans: Sequence[Sequence[Span]], seed: int = 0) -> None:
    check_answers(compiled, _random_inputs(compiled, seed), *plans)


def check_answers(compiled: Compiled, inputs: Arrays, *plans: Sequence[Sequence[Span]]) -> None:
    """All plans answer these inputs as the whole graph does."""
    expected = whole(compiled, inputs)
    assert all(value.std() > 0 for value in expected.values())
    for stages in plans:
        answers = _in_stages(compiled, inputs, stages)
        assert expected.keys() == answers.keys()
        for name in expected:
            np.testing.assert_array_equal(answers[name], expected[name], err_msg=f"{name} of {stages}")


def random_stages(compiled: Compiled, count: int, rng: random.Random) -> list[list[Span]]:
    """Groups joined at random, neighbours or not, to `count` stages none of which needs what needs it."""
    groups = groups_of(len(compiled.layers), compiled.legal_cuts)
    stage_of = [number for number, (first, last) in enumerate(groups) for _ in range(first, last + 1)]
    while len({*stage_of}) > count:
        kept, joined = rng.sample(sorted({*stage_of}), 2)
        tried = [kept if stage == joined else stage for stage in stage_of]
        if _in_order(compiled, tried) is not None:
            stage_of = tried
    order = _in_order(compiled, stage_of)
    assert order is not None
    return [[group for group in groups if stage_of[group[0]] == stage] for stage in order]


def _in_order(compiled: Compiled, stage_of: Sequence[int]) -> list[int] | None:
    """Stages in an order in which they can run; None if there is none."""
    sorter = TopologicalSorter({stage: set[int]() for stage in stage_of})
    for layer, needed in enumerate(compiled.index.needs):
        for stage in {stage_of[other] for other in needed} - {stage_of[layer]}:
            sorter.add(stage_of[layer], stage)
    try:
        return list(sorter.static_order())
    except CycleError:
        return None


@pytest.mark.parametrize("build", [residual, early_output, blocked_and_plain])
def test_every_legal_cut_alone_and_all_together(build: Any, tmp_path: Path) -> None:
    compiled = compile_model(build(tmp_path))
    legal = sorted(compiled.legal_cuts)
    assert legal
    _check(compiled, *(chain(compiled, [cut]) for cut in legal), chain(compiled, legal))


def test_a_fused_addition_forbids_the_cut_inside_it_and_no_other(tmp_path: Path) -> None:
    compiled = compile_model(residual(tmp_path))
    assert [layer.name for layer in compiled.layers] == ["stem", "main", "shortcut", "head"]
    optimised = onnx.load(compiled.engine_folder / MODEL_FILE, load_external_data=False)
    is_fused = "Add" not in {node.op_type for node in optimised.graph.node}  # which the engine does on x86 only
    assert compiled.legal_cuts == ({0, 2} if is_fused else {0, 1, 2})


def _long_but(*short: str) -> list[Any]:
    """All networks of the zoo."""
    return [pytest.param(name, marks=[] if name in short else [pytest.mark.long]) for name in NAMES]


@pytest.mark.parametrize("name", _long_but("squeezenet", "shufflenet"))
def test_every_position_of_a_zoo_model_that_parts_its_nodes_in_its_own_way_is_a_legal_cut(name: str) -> None:
    compiled = compile_model(zoo_path(name))
    layers = compiled.index.node_layers
    before = {frozenset(i for i, layer in enumerate(layers) if layer <= cut) for cut in range(len(compiled.layers))}
    assert len(compiled.legal_cuts) == len(before - {frozenset(), frozenset(range(len(layers)))})
    # Some networks have convolutions that are fused into later ones' layers: 4 of ResNet-50's 53 cuts go with them.
    assert len(compiled.legal_cuts) >= 0.8 * (len(compiled.layers) - 1)


@pytest.mark.parametrize(
    "name", ["squeezenet", *(pytest.param(name, marks=pytest.mark.long) for name in ("shufflenet", "inception_v1"))]
)
def test_every_legal_cut_of_zoo_models(name: str) -> None:
    compiled = compile_model(zoo_path(name))
    legal = sorted(compiled.legal_cuts)
    _check(compiled, *(chain(compiled, [cut]) for cut in legal), chain(compiled, legal))


def _check_stages_of_several_runs(compiled: Compiled, seed: int) -> None:
    rng = random.Random(seed)
    plans = [random_stages(compiled, count, rng) for count in (2, 3, 5, 8)]
    apart = [work for stages in plans for work in stages if work[-1][1] - work[0][0] >= sum(b - a + 1 for a, b in work)]
    assert apart  # else all of them were but chains
    _check(compiled, *plans, seed=seed)


@pytest.mark.parametrize("seed", range(4))
def test_stages_of_several_runs(seed: int, tmp_path: Path) -> None:
    _check_stages_of_several_runs(compile_model(branches(tmp_path)), seed)


@pytest.mark.parametrize("name", ["inception_v1", pytest.param("bert", marks=pytest.mark.long)])
def test_stages_of_several_runs_of_zoo_models(name: str) -> None:
    _check_stages_of_several_runs(compile_model(zoo_path(name)), seed=0)


def test_a_tensor_whose_room_is_another_size_is_refused(tmp_path: Path) -> None:
    compiled, other = compile_model(residual(tmp_path)), compile_model(early_output(tmp_path))
    arena = Arena.create(layouts_of([other.index.tensors]), slot_count=1, place_count=1)
    segment = OptimisedModel(compiled.engine_folder, compiled.index).segment(((0, 3),))
    with pytest.raises((ValueError, KeyError)):
        segment.on_slot(arena, 0)(untimed)
    arena.close()
