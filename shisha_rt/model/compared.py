"""Integers that a network compares its inputs with: a sample rate, say, by which it selects a branch.

With made-up inputs, such a network may run only if it gets such a number. Pure.
"""

from __future__ import annotations

import math
from typing import Final

import onnx
from onnx import TensorProto, numpy_helper

_WHOLE: Final = (TensorProto.INT32, TensorProto.INT64)
_SAME_VALUE: Final = frozenset({"Cast", "Gather", "Identity", "Reshape", "Squeeze", "Unsqueeze"})


def compared_values(graph: onnx.GraphProto) -> dict[str, int]:
    """Map each input that is one whole number to the first constant that the input is compared with."""
    constants = {weight.name: weight for weight in graph.initializer}
    source = {
        value.name: value.name
        for value in graph.input
        if value.name not in constants
        and value.type.tensor_type.elem_type in _WHOLE
        and all(dim.dim_value == 1 for dim in value.type.tensor_type.shape.dim)
    }
    first_constant: dict[str, int] = {}
    for node in graph.node:
        if node.op_type in _SAME_VALUE and node.input[0] in source:
            source[node.output[0]] = source[node.input[0]]
        if node.op_type != "Equal":
            continue
        for given, other in (node.input, reversed(node.input)):
            if given in source and other in constants and math.prod(constants[other].dims) == 1:
                first_constant.setdefault(source[given], int(numpy_helper.to_array(constants[other]).item()))
    return first_constant
