"""Cleaned models on disk, what goes into their segments, and what should come out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from shisha_rt.model.reader.onnx_reader import read_model
from shisha_rt.placement.segments import Segment, segment
from shisha_rt.tensors import NUMPY_OF
from stages.built.clean_model import CleanModel
from stages.engines.evaluate import evaluate
from tests.model.networks import Array, network, weight, write

Arrays = dict[str, Array]


def saved(model: onnx.ModelProto, folder: Path) -> CleanModel:
    return saved_file(write(model, folder), folder)


def saved_file(path: Path, folder: Path) -> CleanModel:
    read_model(path).save(folder)
    return CleanModel.read(folder)


def branching(opset: int = 17) -> onnx.ModelProto:
    """Two inputs, two outputs (one of them read on), a skip over two operators; weights large and small.

    Operators: 0 stem, 1 Relu, 2 body, 3 Add (of the skip), 4 Mul (by the second input), 5 pool, 6 Flatten, 7 MatMul.
    """
    nodes = [
        helper.make_node("Conv", ["x", "stem_w"], ["a"], name="stem", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "body_w", "body_b"], ["c"], name="body", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c", "b"], ["early"]),
        helper.make_node("Mul", ["early", "gain"], ["d"]),
        helper.make_node("GlobalAveragePool", ["d"], ["e"]),
        helper.make_node("Flatten", ["e"], ["f"]),
        helper.make_node("MatMul", ["f", "dense_w"], ["y"]),
    ]
    weights = {
        "stem_w": weight(8, 3, 3, 3, seed=1),
        "body_w": weight(8, 8, 3, 3, seed=2),
        "body_b": weight(8, seed=3),
        "dense_w": weight(8, 10, seed=4),
    }
    inputs = {"x": (1, 3, 12, 12), "gain": (1, 8, 1, 1)}
    return network(nodes, inputs, {"early": (1, 8, 12, 12), "y": (1, 10)}, weights, opset=opset)


def whole(model: CleanModel) -> Segment:
    return segment(model.graph, 0, len(model.graph.operators) - 1, "whole")


def random_feeds(model: CleanModel, cut: Segment, seed: int = 0) -> Arrays:
    """Floats are normal, integers 0 or 1."""
    rng = np.random.default_rng(seed)
    feeds = {}
    for tensor in (model.graph.tensors[name] for name in cut.inputs):
        dtype = NUMPY_OF[tensor.datatype]
        values = rng.standard_normal(tensor.shape) if dtype.kind == "f" else rng.integers(0, 2, tensor.shape)
        feeds[tensor.name] = np.asarray(values, dtype)
    return feeds


def empty_outputs(model: CleanModel, cut: Segment) -> Arrays:
    """Filled with what no test expects."""
    tensors = (model.graph.tensors[name] for name in cut.outputs)
    return {tensor.name: np.full(tensor.shape, 77, NUMPY_OF[tensor.datatype]) for tensor in tensors}


def evaluated(model: CleanModel, cut: Segment, feeds: Arrays) -> Arrays:
    """What the segment gives operator by operator, unoptimised."""
    proto = model.with_weights(model.cut(cut))
    return dict(zip(cut.outputs, evaluate(proto.SerializeToString(), feeds), strict=True))
