"""Stages with a split in an arena: shards and joins, each in its turn, make what the whole graph makes."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from shisha_rt.measure.compile import compile_model
from shisha_rt.measure.compiled import Compiled
from shisha_rt.model.split import AXES, Split, Splittable
from shisha_rt.model.zoo import zoo_path
from shisha_rt.process.arena import Arena
from shisha_rt.process.layout import layouts_of
from shisha_rt.tensors import NUMPY_OF
from stages.engines.onnxruntime.segment import OptimisedModel
from stages.engines.onnxruntime.split_segment import split_segment
from stages.engines.session import untimed
from tests.serving.random_plans import random_shares
from tests.stages.test_segments import Arrays, blocked_and_plain, branches, early_output, residual, whole
from tests.wild.odd_networks import numbers_and_truths_cross


def wide(folder: Path) -> Path:
    """Channels in several blocks; a shortcut, pooling, what needs all channels, groups, and products at the end."""
    rng = np.random.default_rng(0)

    def conv(name: str, x: str, y: str, shape: tuple[int, ...], **attributes: Any) -> list[Any]:
        weight = (rng.standard_normal(shape) * (2 / np.prod(shape[1:])) ** 0.5).astype(np.float32)
        bias = rng.standard_normal(shape[0]).astype(np.float32)
        return [
            helper.make_node("Conv", [x, f"{name}_w", f"{name}_b"], [y], name=name, **attributes),
            numpy_helper.from_array(weight, f"{name}_w"),
            numpy_helper.from_array(bias, f"{name}_b"),
        ]

    def dense(name: str, x: str, y: str, rows: int, columns: int) -> list[Any]:
        weight = (rng.standard_normal((columns, rows)) / rows**0.5).astype(np.float32)
        bias = rng.standard_normal(columns).astype(np.float32)
        return [
            helper.make_node("Gemm", [x, f"{name}_w", f"{name}_b"], [y], name=name, transB=1),
            numpy_helper.from_array(weight, f"{name}_w"),
            numpy_helper.from_array(bias, f"{name}_b"),
        ]

    parts = [
        *conv("stem", "x", "a0", (32, 3, 5, 5), strides=[2, 2], pads=[2, 2, 2, 2]),
        helper.make_node("Relu", ["a0"], ["a1"]),
        helper.make_node("LRN", ["a1"], ["a2"], size=5),
        helper.make_node("MaxPool", ["a2"], ["a3"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        *conv("main", "a3", "b0", (32, 32, 3, 3), pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["b0", "a3"], ["b1"]),
        helper.make_node("Relu", ["b1"], ["b2"]),
        *conv("wide", "b2", "c0", (64, 32, 3, 3), pads=[2, 2, 2, 2], dilations=[2, 2]),
        helper.make_node("Relu", ["c0"], ["c1"]),
        helper.make_node("MaxPool", ["c1"], ["c2"], kernel_shape=[2, 2], strides=[2, 2]),
        *conv("depthwise", "c2", "d0", (64, 1, 3, 3), pads=[1, 1, 1, 1], group=64),
        helper.make_node("LeakyRelu", ["d0"], ["d1"], alpha=0.1),
        *conv("grouped", "d1", "e0", (64, 16, 1, 1), group=4),
        helper.make_node("Flatten", ["e0"], ["e1"]),
        *dense("first", "e1", "f0", 64 * 5 * 5, 50),
        helper.make_node("Relu", ["f0"], ["f1"]),
        *dense("second", "f1", "g0", 50, 10),
        helper.make_node("Softmax", ["g0"], ["y"]),
    ]
    nodes = [part for part in parts if isinstance(part, onnx.NodeProto)]
    constants = [part for part in parts if isinstance(part, onnx.TensorProto)]
    ends = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x", [1, 3, 40, 40]), ("y", [1, 10]), ("c1", [1, 64, 10, 10]))
    ]
    graph = helper.make_graph(nodes, "wide", ends[:1], ends[1:], constants)
    path = folder / "wide.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def blocked_branches(folder: Path) -> Path:
    """Each begins with a change of the input's format."""
    return branches(folder, channels=16)


NETWORKS = {
    build.__name__: build for build in (wide, residual, early_output, blocked_and_plain, branches, blocked_branches)
}


@contextmanager
def arena_of(compiled: Compiled) -> Iterator[Arena]:
    arena = Arena.create(layouts_of([compiled.index.tensors]), slot_count=2, place_count=1)
    try:
        yield arena
    finally:
        arena.close()


def in_shards(compiled: Compiled, arena: Arena, inputs: Arrays, split: Splittable, shares: Sequence[int]) -> Arrays:
    """Layers before, each shard, the join with all that is behind it; last part first, as order does not matter."""
    folder, index = compiled.engine_folder, compiled.index
    model, last = OptimisedModel(folder, index), index.layer_count - 1
    regions = arena.layout.regions
    for region in regions.values():
        arena.view(1, region)[...] = 7  # nothing of an earlier frame is taken for this one's
    for name, value in inputs.items():
        arena.view(1, regions[name])[...] = value
    if split.first:
        model.segment([(0, split.first - 1)]).on_slot(arena, 1)(untimed)
    span = split.first, split.last
    for part in reversed(range(len(shares))):
        shard = Split(span, split.axis, tuple(shares), part)
        split_segment(folder, index, [span], shard).on_slot(arena, 1)(untimed)
    if split.joined or split.summed:
        join = Split(span, split.axis, tuple(shares), len(shares))
        split_segment(folder, index, [(split.first, last)], join).on_slot(arena, 1)(untimed)
    elif split.last < last:
        model.segment([(split.last + 1, last)]).on_slot(arena, 1)(untimed)
    return {spec.name: arena.view(1, regions[spec.name]).copy() for spec in index.outputs}


def check(compiled: Compiled, splits: Sequence[Splittable], rng: random.Random) -> None:
    generator = np.random.default_rng(0)
    inputs = {
        spec.name: generator.standard_normal(spec.shape).astype(NUMPY_OF[spec.datatype])
        for spec in compiled.index.inputs
    }
    expected = whole(compiled, inputs)
    with arena_of(compiled) as arena:
        for split in splits:
            shares = random_shares(split, rng.randint(2, 4), rng)
            answers = in_shards(compiled, arena, inputs, split, shares)
            for name, value in expected.items():
                np.testing.assert_allclose(
                    answers[name], value, rtol=1e-4, atol=2e-5 * np.abs(value).max(), err_msg=f"{split} {shares}"
                )


@pytest.mark.parametrize("name", NETWORKS)
def test_every_split_of_small_networks(name: str, tmp_path: Path) -> None:
    compiled = compile_model(NETWORKS[name](tmp_path))
    splits = compiled.index.splits
    assert {split.axis for split in splits} >= ({*AXES} if name == "wide" else {"rows"})
    check(compiled, splits, random.Random(0))


def test_outputs_of_open_shape_behind_a_join(tmp_path: Path) -> None:
    path = tmp_path / "values.onnx"
    onnx.save(numbers_and_truths_cross(), path)
    compiled = compile_model(path)
    assert any(spec.open_axes for spec in compiled.index.outputs)
    splits = [split for split in compiled.index.splits if split.joined]
    assert splits
    check(compiled, splits, random.Random(0))


@pytest.mark.parametrize(
    "name", ["squeezenet", *(pytest.param(name, marks=pytest.mark.long) for name in ("shufflenet", "alexnet"))]
)
def test_some_splits_of_the_zoo(name: str) -> None:
    compiled = compile_model(zoo_path(name))
    splits = compiled.index.splits
    rng = random.Random(1)
    check(compiled, rng.sample(splits, 8), rng)
