"""A compiled model taken apart into serialised pieces, once for all workers (`parts.py`)."""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from shisha_rt.model.index import ModelIndex
from shisha_rt.model.reader.external_data import weight_datatype
from shisha_rt.model.subgraphs import reads, subgraphs
from shisha_rt.tensors import Tensor, size_bytes
from stages.built.clean_model import value_info
from stages.engines.onnxruntime.parts import ConstantPart, NodePart, Parts


def take_apart(model: onnx.ModelProto, index: ModelIndex) -> Parts:
    """Serialise each node, constant and tensor description of `model` by itself, to be merged into segments.

    `model` lacks the values of its weights, except for the few that are embedded. If `model` leaves the sizes of its
    inputs open (`without_sizes`), so do its parts.
    """
    graph = model.graph
    unsized = any(dim.dim_param for value in graph.input for dim in value.type.tensor_type.shape.dim)
    header = onnx.ModelProto(
        ir_version=model.ir_version, opset_import=model.opset_import, graph=onnx.GraphProto(name="segment")
    )
    nodes = (
        NodePart(layer, _named(reads(node)), _named(node.output), _part(onnx.GraphProto(node=[node])))
        for node, layer in zip(graph.node, index.node_layers, strict=True)
    )
    constants = {
        constant.name: ConstantPart(
            size_bytes(weight_datatype(constant), constant.dims), _part(onnx.GraphProto(initializer=[constant]))
        )
        for constant in graph.initializer
    }
    ends = [value_info(spec, _named_sizes(spec) if unsized else None) for spec in index.tensors]
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


def without_sizes(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """The model with its inputs' and outputs' sizes left open, equal sizes under one name; None without control flow.

    A branch that is never taken need not fit the inputs' sizes. The engine refuses a model with such a branch only if
    the sizes are fixed.
    """
    if not any(True for node in model.graph.node for _ in subgraphs(node)):
        return None
    unsized = onnx.ModelProto()
    unsized.CopyFrom(model)
    del unsized.graph.value_info[:]
    for value in (*unsized.graph.input, *unsized.graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.HasField("dim_value"):
                dim.dim_param = f"of {dim.dim_value}"
    return unsized


def _named_sizes(spec: Tensor) -> list[int | str] | None:
    return None if spec.open_axes else [f"of {size}" for size in spec.shape]


def _named(tensors: Iterable[str]) -> tuple[str, ...]:
    """The names that are not empty: an empty name stands for an optional input or output that is not used."""
    return tuple(filter(None, tensors))


def _part(graph: onnx.GraphProto) -> bytes:
    """A serialised model whose graph has only the given fields. Serialised models are merged by concatenation."""
    return bytes(onnx.ModelProto(graph=graph).SerializeToString())


def _of_many(spec: Tensor, axis: int) -> onnx.ValueInfoProto:
    """The tensor's description with an open batch axis; the engine takes axes of equal names to be of equal size."""
    return value_info(
        spec, [f"{size} frames" if position == axis else size for position, size in enumerate(spec.shape)]
    )
