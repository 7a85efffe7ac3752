"""Which layer each node of ONNX Runtime's optimised graph runs in.

The rule is the cleaned graph's: the largest of a node's own layer and its inputs'. It needs to know heavy nodes only,
and of these the optimiser leaves two traces. Constants that it does not rewrite keep their names: a bias does where
its weight is reordered or prepacked. And tensors do, or the node that makes one is called after it. What fuses several
heavy operators runs in the last one's layer; a change of format makes no layer of its own, so it goes with whatever
made the tensor. A heavy node that cannot be told at all goes with its inputs: a cut is lost then, never an answer.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from shisha_rt.graph.graph import Graph
from shisha_rt.graph.layers import HEAVY, Layer, largest_layers, layer_of_operator
from shisha_rt.graph.subgraphs import reads
from stages.engines.onnxruntime.covered import counterparts


def map_nodes(graph: Graph, layers: Sequence[Layer], optimised: onnx.GraphProto) -> tuple[int, ...]:
    """(nodes,): the layer of each node of `optimised`, in topological order, among `layers` of the cleaned `graph`."""
    layer_of = layer_of_operator(layers)
    own = _layers_of_constants(graph, layer_of)
    made_in = {name: layer_of[maker] for name, maker in graph.producer.items()}
    own |= {name: made_in.get(counterpart, 0) for name, counterpart in counterparts(graph, optimised).items()}
    return largest_layers(
        (reads(node), node.output, max((own.get(name, 0) for name in (*node.input, *node.output)), default=0))
        for node in optimised.node
    )


def _layers_of_constants(graph: Graph, layer_of: Sequence[int]) -> dict[str, int]:
    """The layer of each constant that one heavy operator alone reads: whatever reads it later stands for that."""
    found = {}
    for name in graph.constants:
        readers = graph.consumers.get(name, ())
        if len(readers) == 1 and graph.operators[readers[0]].op_type in HEAVY:
            found[name] = layer_of[readers[0]]
    return found
