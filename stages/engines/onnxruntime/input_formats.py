"""Conversions of a network input's format: each layer that reads the input in another format converts it by itself.

The optimiser puts a conversion node before operators that need a tensor in another format: ReorderInput before blocked
convolutions (blocks of 8 or of 16 channels, by processor), Transpose before convolutions whose channels come last, Cast
if there is no kernel for the datatype. All readers of the tensor share that node. If a layer makes the tensor, the node
goes with that layer, which the readers need anyway. But no layer makes a network input. A shared node would be in layer
0, and every branch that begins at the input would depend on layer 0, on some processors only and for no reason.

So each layer that reads the input gets a conversion node of its own. A stage with several of these layers converts
several times, each time at the cost of a copy of the input: measured at a tenth to a thirtieth of the 3x3 convolution
that reads it, a quarter to two thirds of a 1x1 convolution (16 to 64 channels, images of 56x56 and 112x112). No network
of the zoo gains a node, with blocks of 8 or of 16 channels: convolutions read inputs of few channels unconverted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import onnx

from shisha_rt.model.graph import Graph
from shisha_rt.model.subgraphs import all_nodes, new_name, reads, rename_reads

_CONVERSIONS: Final = ("ReorderInput", "Transpose", "Cast")


def convert_in_each_layer(graph: Graph, optimised: onnx.GraphProto, node_layers: Sequence[int]) -> tuple[int, ...]:
    """Give each layer of `optimised` that reads a converted input its own conversion node; return all nodes' layers.

    `node_layers`: the layers of the nodes of `optimised` as given. `graph`: the cleaned graph; a node that makes one of
    its tensors is an operator and stays in its layer.
    """
    conversions = _input_conversions(graph, optimised)
    if not conversions:
        return tuple(node_layers)
    taken = {name for node in all_nodes(optimised.node) for name in (node.name, *node.input, *node.output)}
    readers: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
    rewritten: list[tuple[onnx.NodeProto, int]] = []
    for i in range(len(optimised.node) - 1, -1, -1):  # backwards: readers are placed before the node that they read
        node, layer = optimised.node[i], node_layers[i]
        placed = [(node, layer)]
        if i in conversions:
            (result,) = node.output
            placed = _one_for_each_layer(node, readers.get(result, []), taken) or placed
        for made, own_layer in placed:
            for name in dict.fromkeys(reads(made)):
                readers.setdefault(name, []).append((made, own_layer))
        rewritten += reversed(placed)
    rewritten.reverse()
    nodes = onnx.GraphProto(node=[node for node, _ in rewritten])
    optimised.ClearField("node")
    optimised.node.extend(nodes.node)
    return tuple(layer for _, layer in rewritten)


def _input_conversions(graph: Graph, optimised: onnx.GraphProto) -> set[int]:
    """Indices of conversions that the optimiser has added, and that read only network inputs and constants."""
    known = {value.name for value in optimised.input} | {constant.name for constant in optimised.initializer}
    conversions = set()
    for i, node in enumerate(optimised.node):
        is_added = graph.tensors.keys().isdisjoint(node.output) and len(node.output) == 1
        if is_added and node.op_type in _CONVERSIONS and known.issuperset(reads(node)):
            conversions.add(i)
            known.update(node.output)
    return conversions


def _one_for_each_layer(
    node: onnx.NodeProto, readers: Sequence[tuple[onnx.NodeProto, int]], taken: set[str]
) -> list[tuple[onnx.NodeProto, int]]:
    """The node, in the first layer that reads it, and a copy in each further layer; that layer then reads the copy."""
    (result,) = node.output
    placed: list[tuple[onnx.NodeProto, int]] = []
    for layer in sorted({layer for _, layer in readers}):
        if not placed:
            placed.append((node, layer))
            continue
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.name, copy.output[0] = (new_name(f"{name}_{layer}", taken) for name in (node.name, result))
        for reader, reader_layer in readers:
            if reader_layer == layer:
                rename_reads(reader, {result: copy.output[0]})
        placed.append((copy, layer))
    return placed
