"""Which layer each node of ONNX Runtime's optimised graph runs in.

The rule is the cleaned graph's: the largest of a node's own layer and its inputs'. Only heavy nodes must be identified,
and the optimiser leaves two traces of them. Constants that it does not rewrite keep their names, such as a bias whose
weight is reordered or prepacked; of equal ones, such as zero points, it keeps one, which says nothing if several nodes
read it. Tensors keep their names, too, or have names that tell the original (see `covered`). A node that fuses several
heavy operators runs in the last one's layer. A change of format makes no layer of its own, so it goes with the node
that made the tensor (no layer makes a network's input: see `input_formats`). A heavy node that cannot be identified
goes with its inputs: this loses a cut, but never makes an answer wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import onnx

from shisha_rt.model.graph import Graph
from shisha_rt.model.heavy import HEAVY
from shisha_rt.model.layers import Layer, LayeredNode, largest_layers, layer_of_operator
from shisha_rt.model.rounding import DEQUANTIZE
from shisha_rt.model.subgraphs import reads
from stages.engines.onnxruntime.covered import counterparts


def map_nodes(graph: Graph, layers: Sequence[Layer], optimised: onnx.GraphProto) -> tuple[int, ...]:
    """(nodes,): the layer of each node of `optimised`, in topological order, among `layers` of the cleaned `graph`."""
    layer_of = layer_of_operator(layers)
    read_by = Counter(name for node in optimised.node for name in {*reads(node)})
    own = {name: layer for name, layer in _layers_of_constants(graph, layer_of).items() if read_by[name] == 1}
    made_in = {name: layer_of[maker] for name, maker in graph.producer.items()}
    own |= {name: made_in.get(counterpart, 0) for name, counterpart in counterparts(graph, optimised).items()}

    def own_layer(node: onnx.NodeProto) -> int:
        return max((own.get(name, 0) for name in (*node.input, *node.output)), default=0)

    nodes = [LayeredNode(node.op_type, reads(node), node.output, own_layer(node)) for node in optimised.node]
    return largest_layers(nodes, [tensor.name for tensor in graph.inputs])


def _layers_of_constants(graph: Graph, layer_of: Sequence[int]) -> dict[str, int]:
    """The layer of each constant that only one heavy operator reads: an optimised node that reads it stands for that.

    The operator may read it through a DequantizeLinear.
    """
    mapped = {}
    for name in graph.constants:
        reader = _only_reader(graph, name)
        if reader is not None and graph.operators[reader].op_type == DEQUANTIZE:
            reader = _only_reader(graph, graph.operators[reader].outputs[0])
        if reader is not None and graph.operators[reader].op_type in HEAVY:
            mapped[name] = layer_of[reader]
    return mapped


def _only_reader(graph: Graph, name: str) -> int | None:
    readers = graph.consumers.get(name, ())
    return readers[0] if len(readers) == 1 else None
