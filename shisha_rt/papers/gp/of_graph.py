"""Layers of a graph as features of convolutions, or the reason why a layer has no such features or cannot be shared.

A matrix product is a 1 x 1 convolution with W = 1, whose rows H are those of the product. For kernels and strides whose
sides differ, k and s are square roots of the products of their sides; likewise for images of one or three dimensions.
Tiles go by the window of rows, in which dilation counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from shisha_rt.model.elementwise import BROADCAST
from shisha_rt.model.graph import Graph, Operator
from shisha_rt.model.heavy import HEAVY, operand_shapes
from shisha_rt.model.layers import Layer
from shisha_rt.model.spans import ends
from shisha_rt.papers.gp.problem import RowWindow, SplitDevice, SplitLayer, common_block
from shisha_rt.planner.strategies import SplitVariable

ENGINE_BLOCK = 16
"""Channels: shares in multiples of it need no copy, whatever layout an engine uses for tensors."""


_LIGHT_LOCAL: Final = BROADCAST | {"AveragePool", "BatchNormalization", "LpPool", "MaxPool"}
"""Operators that a device can run on its rows or channels alone, if they read nothing from elsewhere."""

_CHANNELS: Final[tuple[SplitVariable, ...]] = ("C", "N")


def split_layer_of(
    graph: Graph, layer: Layer, variable: SplitVariable, devices: Sequence[SplitDevice] = ()
) -> SplitLayer | str:
    """A layer in blocks of `ENGINE_BLOCK` channels or filters, or multiples that each device can run; or the reason why
    it cannot be split.

    The filters of a convolution in groups are shared in whole groups, so that both channels and filters of a share are
    whole blocks.
    """
    operator = _heavy(graph, layer)
    if operator is None:
        return "no operator in it is heavy"
    features = _features(graph, operator)
    if isinstance(features, str):
        return features
    whole = SplitLayer(layer.name, features, window=_window(graph, operator))
    if variable == "H":
        return replace(whole, variable="H")
    if whole.groups == 1:
        return replace(whole, variable=variable, block=_block(devices, variable))
    if variable == "C":
        return f"Conv of {whole.groups:g} groups: its filters read the channels of their group alone, expected N or H"
    return replace(whole, variable="G", block=math.lcm(*(_groups(features, each, devices) for each in _CHANNELS)))


def _block(devices: Sequence[SplitDevice], variable: SplitVariable) -> int:
    return math.lcm(common_block(devices, variable), ENGINE_BLOCK)


def _groups(features: Mapping[str, float], variable: SplitVariable, devices: Sequence[SplitDevice]) -> int:
    """The smallest number of groups whose channels, or filters, are whole blocks."""
    block = _block(devices, variable)
    return block // math.gcd(block, round(features[variable]))


def feeds_only(graph: Graph, layer: Layer, behind: Layer) -> bool:
    """Whether a layer's only output is read by the heavy operator of the layer `behind`, and by nothing else; and each
    device can make its share of that output from its share of what the layer's own heavy operator makes.
    """
    _, made = ends(graph, layer.first_operator, layer.last_operator)
    heavy = _heavy(graph, behind)
    if heavy is None or len(made) != 1 or any(tensor.name == made[0] for tensor in graph.outputs):
        return False
    readers = graph.consumers.get(made[0], ())
    alone = len(readers) == 1 and graph.operators[readers[0]] is heavy and heavy.inputs[0] == made[0]
    return alone and _is_local(graph, layer)


def _is_local(graph: Graph, layer: Layer) -> bool:
    """Whether the light operators behind a layer's heavy one are local, and read nothing but what it made."""
    operators = graph.operators[layer.first_operator : layer.last_operator + 1]
    own: set[str] = set()
    for operator in operators:
        if operator is _heavy(graph, layer):
            own.update(operator.outputs)
        elif own.intersection(operator.inputs):
            others = {name for name in operator.inputs if name in graph.tensors} - own
            if operator.op_type not in _LIGHT_LOCAL or others:
                return False
            own.update(operator.outputs)
    return True


def _heavy(graph: Graph, layer: Layer) -> Operator | None:
    operators = graph.operators[layer.first_operator : layer.last_operator + 1]
    return next((operator for operator in operators if operator.op_type in HEAVY), None)


def _features(graph: Graph, operator: Operator) -> Mapping[str, float] | str:
    if operator.op_type == "Conv":
        return _convolution(graph, operator)
    if operator.op_type in ("Gemm", "MatMul"):
        return _product(graph, operator)
    return f"{operator.op_type}: its costs are not those of a Conv, Gemm or MatMul"


def _convolution(graph: Graph, operator: Operator) -> Mapping[str, float] | str:
    image, kernel, made = operand_shapes(graph, operator)
    groups = operator.attributes.get("group", 1)
    assert isinstance(groups, int), "ONNX defines `group` as an integer"
    if operator.inputs[1] not in graph.constants:
        return "Conv whose kernel is made at run time: no device has it beforehand"
    return {
        "H": float(made[2]),
        "W": float(math.prod(made[3:]) * made[0]),
        "C": float(image[1] // groups),
        "k": math.sqrt(math.prod(kernel[2:])),
        "N": float(made[1] // groups),
        "s": math.sqrt(math.prod(_sides(operator, "strides"))),
        "G": float(groups),
    }


def _window(graph: Graph, operator: Operator) -> RowWindow | None:
    if operator.op_type != "Conv":
        return None
    _, kernel, _ = operand_shapes(graph, operator)
    stride, dilation = (next(iter(_sides(operator, name)), 1) for name in ("strides", "dilations"))
    return RowWindow(float((kernel[2] - 1) * dilation + 1), float(stride))


def _sides(operator: Operator, name: str) -> tuple[int, ...]:
    """An attribute of a number for each dimension of an image; (): all are 1."""
    sides = operator.attributes.get(name, ())
    assert isinstance(sides, tuple), f"ONNX defines `{name}` as integers"
    return tuple(map(int, sides))


def _product(graph: Graph, operator: Operator) -> Mapping[str, float] | str:
    left, right, made = operand_shapes(graph, operator)
    if operator.inputs[1] not in graph.constants:
        return f"{operator.op_type} of two tensors made at run time: no device has either beforehand"
    if len(right) != 2:
        return f"{operator.op_type} by weights of rank {len(right)}, expected a matrix"
    inner = left[-2] if operator.attributes.get("transA", 0) else left[-1]
    rows = math.prod(made[:-1])
    return {"H": float(rows), "W": 1.0, "C": float(inner), "k": 1.0, "N": float(made[-1]), "s": 1.0, "G": 1.0}
