"""Layers, of which stages are made: one heavy operator, and the light ones that depend on it and on no later one.

Heavy operators are numbered in the file's order. The layer of an operator is the largest of its own number and its
inputs' layers. Some operators *wait* instead and go with their first reader: those that need nothing at run time (such
as the conversion of an integer weight to floats), and those that make floats of integers (DequantizeLinear). So a stage
holds the integer weight itself, and receives integers. The layer never falls along an edge, so every position between
two layers is a legal cut. A cleaned graph has its operators in the order of their layers (`model.clean`), so a layer is
a run of operators: those that wait for the heavy one, the heavy one, and what follows, up to the next layer. Every
tensor that is made before a cut and needed after it crosses the cut, skip connections included. A stage has to hand on
all of these, not only the heavy operator's output.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from shisha_rt.model.graph import Graph, Operator, Tensor
from shisha_rt.model.heavy import CONVOLUTIONS, HEAVY, operand_shapes
from shisha_rt.model.layer_kinds import LayerKind
from shisha_rt.model.rounding import DEQUANTIZE
from shisha_rt.model.spans import Span, live_bytes, weight_bytes


@dataclass(frozen=True, slots=True)
class Layer:
    """Operators `first_operator` to `last_operator` (inclusive) of a graph, named after the heavy one, else the first.

    `weight` is Shisha's Eq. 1; `macs` is its variant for the output's size, divided by the groups. `in_bytes` and
    `out_bytes` count all tensors live at the cut before and after the layer; `weight_bytes` counts each constant once.
    """

    index: int
    name: str
    op: str
    weight: int
    macs: int
    weight_bytes: int
    in_bytes: int
    out_bytes: int
    first_operator: int
    last_operator: int


def group_layers(graph: Graph, kind: LayerKind = "heavy") -> tuple[Layer, ...]:
    """The layers of a cleaned graph, in pipeline order; together they hold each operator exactly once.

    Light operators that depend on no heavy one are in layer 0; a graph without heavy operators is one layer of weight
    0. With `kind` "operators" each operator is a layer.
    """
    numbers: Sequence[int] = range(len(graph.operators))
    if kind == "heavy":
        nodes = [(operator.op_type, operator.inputs, operator.outputs) for operator in graph.operators]
        numbers = layer_numbers(nodes, [tensor.name for tensor in graph.inputs])
    starts = [0, *(i for i in range(1, len(numbers)) if numbers[i] != numbers[i - 1])]
    ends = [*(start - 1 for start in starts[1:]), len(graph.operators) - 1]
    crossing = live_bytes(graph)
    bytes_before = [_total_bytes(graph.inputs), *(crossing[end] for end in ends[:-1])]
    bytes_after = [*bytes_before[1:], _total_bytes(graph.outputs)]
    layers = []
    for index, (first, last) in enumerate(zip(starts, ends, strict=True)):
        run = graph.operators[first : last + 1]
        named_after = next((operator for operator in run if operator.op_type in HEAVY), run[0])
        weight, macs = _weight_and_macs(graph, named_after) if named_after.op_type in HEAVY else (0, 0)
        layers.append(
            Layer(
                index=index,
                name=named_after.name,
                op=named_after.op_type,
                weight=weight,
                macs=macs,
                weight_bytes=weight_bytes(graph, first, last),
                in_bytes=bytes_before[index],
                out_bytes=bytes_after[index],
                first_operator=first,
                last_operator=last,
            )
        )
    return tuple(layers)


class LayeredNode(NamedTuple):
    """A node of a cleaned or an engine's graph: the tensors that it reads and makes, and its own layer, 0 if none."""

    op_type: str
    reads: Sequence[str]
    makes: Sequence[str]
    own: int = 0


def layer_numbers(
    nodes: Iterable[tuple[str, Sequence[str], Sequence[str]]], inputs: Collection[str]
) -> tuple[int, ...]:
    """As `largest_layers`; `nodes` (type, reads, makes) are in the file's order, in which heavy ones are numbered."""
    heavy_count = 0
    numbered = []
    for op_type, reads, makes in nodes:
        numbered.append(LayeredNode(op_type, reads, makes, heavy_count if op_type in HEAVY else 0))
        heavy_count += op_type in HEAVY
    return largest_layers(numbered, inputs)


def largest_layers(nodes: Sequence[LayeredNode], inputs: Collection[str]) -> tuple[int, ...]:
    """The layer of each node. `nodes` are in topological order; `inputs` are the graph's run-time inputs.

    A node's layer is the largest of its own and those of the nodes that make its inputs. A node that waits gets the
    smallest layer of its readers, if it has any; as readers' layers are never smaller than their inputs', no other node
    has to move.
    """
    layer_of: dict[str, int] = {}
    layers_made = []
    for node in nodes:
        layers_made.append(max(node.own, *(layer_of.get(name, 0) for name in node.reads), 0))
        layer_of.update((name, layers_made[-1]) for name in node.makes if name)
    first_read: dict[str, int] = {}
    waiting = _waiting(nodes, inputs)
    for i, node in zip(range(len(nodes) - 1, -1, -1), reversed(nodes), strict=True):
        if waiting[i]:
            layers_made[i] = min(
                (first_read[name] for name in node.makes if name in first_read), default=layers_made[i]
            )
        first_read.update((name, min(layers_made[i], first_read.get(name, layers_made[i]))) for name in node.reads)
    return tuple(layers_made)


def _waiting(nodes: Sequence[LayeredNode], inputs: Collection[str]) -> list[bool]:
    """Whether each node waits for its first reader. Heavy nodes do not: each starts a layer."""
    at_run_time = {*inputs}
    is_waiting = []
    for node in nodes:
        needs_a_frame = not at_run_time.isdisjoint(node.reads)
        if needs_a_frame:
            at_run_time.update(filter(None, node.makes))
        is_waiting.append(node.op_type == DEQUANTIZE or not (needs_a_frame or node.op_type in HEAVY))
    return is_waiting


def operators_of(layers: Sequence[Layer], first: int, last: int) -> Span:
    return layers[first].first_operator, layers[last].last_operator


def layer_of_operator(layers: Iterable[Layer]) -> tuple[int, ...]:
    return tuple(layer.index for layer in layers for _ in range(layer.first_operator, layer.last_operator + 1))


def _total_bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.size_bytes for tensor in tensors)


def _weight_and_macs(graph: Graph, operator: Operator) -> tuple[int, int]:
    """Convolutions: `weight` is Shisha's Eq. 1 (`H*W*C * R*S*K`, for any number of spatial dimensions, times the
    batch), by the input's size and without groups; `macs` goes by the output's size, and is divided by the groups.

    Products (Gemm, MatMul): both are rows x inner x columns x leading dimensions.
    """
    first, kernel, made = operand_shapes(graph, operator)
    if operator.op_type not in CONVOLUTIONS:
        inner = first[-2] if operator.attributes.get("transA", 0) and len(first) > 1 else first[-1]
        return inner * math.prod(made), inner * math.prod(made)
    batch, in_channels, *in_sizes = first
    groups = operator.integer("group", 1)
    # Conv has (K, C/group, R, S), ConvTranspose (C, K/group, R, S).
    filters = kernel[1] * groups if operator.op_type == "ConvTranspose" else kernel[0]
    per_position = batch * in_channels * filters * math.prod(kernel[2:])
    return math.prod(in_sizes) * per_position, math.prod(made[2:]) * per_position // groups
