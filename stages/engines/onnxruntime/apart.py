"""Takes a compiled model apart, once for all workers (see `parts`)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx

from shisha_rt.model.index import ModelIndex
from shisha_rt.model.subgraphs import reads
from shisha_rt.tensors import Tensor
from stages.built.clean_model import value_info
from stages.engines.onnxruntime.parts import ConstantPart, NodePart, Parts


def take_apart(model: onnx.ModelProto, index: ModelIndex) -> Parts:
    """`model` has no values of weights, except for the few that are embedded."""
    graph = model.graph
    header = onnx.ModelProto(
        ir_version=model.ir_version, opset_import=model.opset_import, graph=onnx.GraphProto(name="segment")
    )
    nodes = (
        NodePart(layer, _named(reads(node)), _named(node.output), _part(onnx.GraphProto(node=[node])))
        for node, layer in zip(graph.node, index.node_layers, strict=True)
    )
    constants = {
        constant.name: ConstantPart(_size_bytes(constant), _part(onnx.GraphProto(initializer=[constant])))
        for constant in graph.initializer
    }
    ends = [value_info(spec) for spec in index.tensors]
    of_many = [_of_many(spec, index.batch_axes[spec.name]) for spec in index.tensors if spec.name in index.batch_axes]
    return Parts(
        header=header.SerializeToString(),
        nodes=tuple(nodes),
        constants=constants,
        inputs={value.name: _part(onnx.GraphProto(input=[value])) for value in ends},
        outputs={value.name: _part(onnx.GraphProto(output=[value])) for value in ends},
        inputs_of_many={value.name: _part(onnx.GraphProto(input=[value])) for value in of_many},
        outputs_of_many={value.name: _part(onnx.GraphProto(output=[value])) for value in of_many},
    )


def _named(tensors: Iterable[str]) -> tuple[str, ...]:
    """The names without empty ones, which mean that an optional input or output is missing."""
    return tuple(filter(None, tensors))


def _part(graph: onnx.GraphProto) -> bytes:
    """A serialised model with only these fields of its graph, to be merged with others."""
    return bytes(onnx.ModelProto(graph=graph).SerializeToString())


def _of_many(spec: Tensor, axis: int) -> onnx.ValueInfoProto:
    """The description for any number of frames; the engine takes axes of equal names to be of equal size."""
    return value_info(
        spec, [f"{size} frames" if position == axis else size for position, size in enumerate(spec.shape)]
    )


def _size_bytes(constant: onnx.TensorProto) -> int:
    return int(np.prod(constant.dims)) * int(onnx.helper.tensor_dtype_to_np_dtype(constant.data_type).itemsize)
