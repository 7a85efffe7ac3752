"""Tiny ONNX networks, built in a line or two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from shisha_rt.model.graph import Graph
from shisha_rt.model.reader.onnx_reader import read_model

Array = npt.NDArray[Any]
Dims = Sequence[int | str | None]


def network(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Dims],
    outputs: Mapping[str, Dims | None],
    weights: Mapping[str, Array] | None = None,
    *,
    opset: int = 17,
    element: int = TensorProto.FLOAT,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info(name, element, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, element, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in (weights or {}).items()],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def odd_network() -> onnx.ModelProto:
    """Of three operators, the middle one of which (Det) OpenVINO does not know."""
    nodes = [
        helper.make_node("Relu", ["x"], ["ta"]),
        helper.make_node("Det", ["ta"], ["tb"]),
        helper.make_node("Relu", ["tb"], ["y"]),
    ]
    return network(nodes, {"x": [8, 3, 3]}, {"y": [8]})


def weight(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def write(model: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "tiny.onnx"
    onnx.save(model, path)
    return path


def graph_of(model: onnx.ModelProto, folder: Path) -> Graph:
    return read_model(write(model, folder)).graph


def run(model: onnx.ModelProto, *frames: Mapping[str, Array]) -> list[Array]:
    """The outputs for each frame, one after the other."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(value) for feeds in frames for value in session.run(None, dict(feeds))]
