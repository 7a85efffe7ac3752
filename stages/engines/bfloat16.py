"""bfloat16 on an engine that computes in float32: inputs and outputs of each operator are really rounded.

bfloat16 is the upper half of a float32: 8 bits of exponent, 7 of mantissa. Weights are rounded beforehand; inputs and
operators' outputs pass through a Cast to bfloat16 and back, to the nearest value, ties to even. Inside an operator, and
in its subgraphs if it has any, values are float32, as in accelerators that multiply bfloat16 and accumulate wider.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper, version_converter

from shisha_rt.model.subgraphs import rename_reads

_FIRST_OPSET: Final = 13  # the first whose Cast has bfloat16
# These are the same in all served opsets up to that one, and need no converter, which takes 7 ms for any model.
_UNCHANGED: Final = frozenset({"Add", "Conv", "Div", "Gemm", "MatMul", "Mul", "Relu", "Sub"})
_SELECTING: Final = frozenset(
    {"Concat", "Flatten", "Gather", "MaxPool", "Relu", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"}
)  # their outputs are values that are rounded already


def rounded(array: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The nearest bfloat16 of each value, ties to even, as float32. NaN stays NaN; overflow is infinity."""
    bits = np.ascontiguousarray(array).view(np.uint32)
    is_odd = (bits >> 16) & 1
    nearest = (bits + 0x7FFF + is_odd) & 0xFFFF0000
    return np.where(np.isnan(array), array, nearest.view(np.float32).reshape(array.shape))


def with_casts(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model in an opset whose Cast has bfloat16. Raises RuntimeError if an operator cannot be converted."""
    versions = {entry.domain: entry.version for entry in model.opset_import}
    if versions[""] >= _FIRST_OPSET:
        return model
    if not all(node.op_type in _UNCHANGED for node in model.graph.node):
        return version_converter.convert_version(model, _FIRST_OPSET)
    versions[""] = _FIRST_OPSET
    opsets = [helper.make_opsetid(*entry) for entry in versions.items()]
    return onnx.ModelProto(ir_version=model.ir_version, opset_import=opsets, graph=model.graph)


def with_rounding(model: onnx.ModelProto, floats: Collection[str]) -> onnx.ModelProto:
    """The model with every value rounded to bfloat16. `floats`: the run-time tensors of float32.

    `model` must be of opset 13 or later, and embed its weights.
    """
    graph = model.graph
    model_proto = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    model_proto.graph.name = graph.name
    model_proto.graph.input.extend(graph.input)
    model_proto.graph.output.extend(graph.output)
    model_proto.graph.initializer.extend(map(_rounded_weight, graph.initializer))
    inputs = {value.name: f"{value.name}:rounded" for value in graph.input if value.name in floats}
    for given, name in inputs.items():
        model_proto.graph.node.extend(_casts(given, name))
    for node in graph.node:
        model_proto.graph.node.extend(_rounded_operator(node, inputs, floats))
    return model_proto


def _rounded_operator(node: onnx.NodeProto, inputs: dict[str, str], floats: Collection[str]) -> list[onnx.NodeProto]:
    """The operator on rounded inputs, and Casts of its outputs, which get the outputs' names."""
    operator = onnx.NodeProto()
    operator.CopyFrom(node)
    rename_reads(operator, inputs)
    casts: list[onnx.NodeProto] = []
    if node.op_type not in _SELECTING:
        for position, name in enumerate(node.output):
            if name in floats:
                operator.output[position] = f"{name}:exact"
                casts += _casts(f"{name}:exact", name)
    return [operator, *casts]


def _casts(source: str, target: str) -> list[onnx.NodeProto]:
    half = f"{target}:bfloat16"
    return [
        helper.make_node("Cast", [source], [half], to=TensorProto.BFLOAT16),
        helper.make_node("Cast", [half], [target], to=TensorProto.FLOAT),
    ]


def _rounded_weight(weight: TensorProto) -> TensorProto:
    if weight.data_type != TensorProto.FLOAT:
        return weight
    return numpy_helper.from_array(rounded(numpy_helper.to_array(weight)), weight.name)
