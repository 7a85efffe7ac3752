"""Ids of partitions: partitions that take the same time have the same id, and are measured once (PartitionTuner, 3.1).

An operator's id lists its type, its inputs, its attributes and its outputs, tensors by shape and datatype, in order. A
group's id is the ids of its operators in order. Names, values of weights and the model are not part of it, so networks
share ids. Besides shapes, three things distinguish operators:

- whether an input is a constant, which an engine prepares beforehand, and whether it repeats an earlier input;
- values of small constants of whole numbers that are no weights: shapes, axes, starts, indices;
- the exponent of a power, as engines treat squares specially.

Two operators with subgraphs have the same id only if names in the subgraphs are the same, too.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Final

import onnx
from onnx import AttributeProto, numpy_helper

from shisha_rt.model.graph import Graph, Operator, Tensor
from shisha_rt.model.rounding import DEQUANTIZE, rounds

_WHOLE: Final = ("BOOL", "INT32", "INT64")
_MOST_VALUES: Final = 64
"""A larger constant is taken as a table of weights, and only its shape counts."""
_PLAIN: Final = (
    *(AttributeProto.INT, AttributeProto.FLOAT, AttributeProto.STRING),
    *(AttributeProto.INTS, AttributeProto.FLOATS, AttributeProto.STRINGS),
)


def operator_ids(graph: Graph, model: onnx.ModelProto) -> tuple[str, ...]:
    """(operators,) ids; `graph` is that of the cleaned `model`, whose large weights may be in other files."""
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    constants = {constant.name: constant for constant in model.graph.initializer}
    return tuple(
        _operator_id(graph, operator, node, opsets, constants)
        for operator, node in zip(graph.operators, model.graph.node, strict=True)
    )


def partition_id(ids: Sequence[str], operators: Sequence[int]) -> str:
    return " + ".join(ids[operator] for operator in operators)


def _operator_id(
    graph: Graph,
    operator: Operator,
    node: onnx.NodeProto,
    opsets: Mapping[str, int],
    constants: Mapping[str, onnx.TensorProto],
) -> str:
    name = f"{operator.domain}.{operator.op_type}" if operator.domain else operator.op_type
    read = (_read(graph, operator, position, constants) for position in range(len(operator.inputs)))
    attributes = (_attribute(attribute) for attribute in sorted(node.attribute, key=lambda attribute: attribute.name))
    made = (_shaped(graph.tensors[name]) if name in graph.needed_until else "" for name in operator.outputs)
    return f"{name}-{_version(operator, opsets)}({', '.join(read)}; {', '.join(attributes)}) -> {', '.join(made)}"


def _version(operator: Operator, opsets: Mapping[str, int]) -> int:
    """The version of its domain that defines the operator as it is used here."""
    opset = opsets.get(operator.domain, 1)
    try:
        return int(onnx.defs.get_schema(operator.op_type, opset, operator.domain).since_version)
    except onnx.defs.SchemaError:  # of a domain that is not ONNX's own
        return opset


def _read(graph: Graph, operator: Operator, position: int, constants: Mapping[str, onnx.TensorProto]) -> str:
    name = operator.inputs[position]
    if not name:
        return ""
    first = operator.inputs.index(name)
    if first < position:
        return f"={first}"
    if name in graph.tensors:
        return _shaped(graph.tensors[name])
    constant = graph.constants[name]
    values = f"={_values(constants[name])}" if _counts(operator, constant) else ""
    return f"constant {_shaped(constant)}{values}"


def _counts(operator: Operator, constant: Tensor) -> bool:
    """Whether an operator's time depends on a constant's values."""
    if constant.datatype not in _WHOLE:
        return operator.op_type == "Pow" and math.prod(constant.shape) == 1
    stands_for_reals = rounds(operator) or operator.op_type == DEQUANTIZE
    return not stands_for_reals and math.prod(constant.shape) <= _MOST_VALUES


def _values(stored: onnx.TensorProto) -> str:
    return str(numpy_helper.to_array(stored).tolist()).replace(" ", "")


def _attribute(attribute: AttributeProto) -> str:
    if attribute.type in _PLAIN:
        return f"{attribute.name}={onnx.helper.get_attribute_value(attribute)}".replace(" ", "")
    return f"{attribute.name}={hashlib.sha256(attribute.SerializeToString()).hexdigest()}"


def _shaped(tensor: Tensor) -> str:
    return f"{tensor.datatype}[{'x'.join(map(str, tensor.shape))}]"
