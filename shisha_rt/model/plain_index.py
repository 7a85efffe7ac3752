"""The index of a model whose stages are cut from its cleaned graph, not from an engine's own form of it.

If a place has several engines, their tensor formats differ, so tensors pass between stages as in the cleaned graph:
every cut is legal, except across open axes, and every tensor is plain. The price is what an engine gains by fusing
operators or keeping blocked formats across a cut.
"""

from __future__ import annotations

from collections.abc import Sequence

from shisha_rt.model.graph import Graph, Tensor
from shisha_rt.model.index import Crossing, ModelIndex, crossing_tensors, input_readers, output_makers, without_open
from shisha_rt.model.layers import Layer, layer_of_operator
from shisha_rt.tensors import TensorSpec


def plain_index(graph: Graph, layers: Sequence[Layer], engine: str = "plain") -> ModelIndex:
    """The index of a cleaned graph, whose nodes are its operators; `layers` are all of its layers.

    `engine`: the engine that runs all stages, if it is the only one.
    """
    layer_of = layer_of_operator(layers)
    nodes = [(operator.inputs, operator.outputs) for operator in graph.operators]
    crossing = [
        Crossing(spec_of(graph.tensors[name]), made, readers)
        for name, made, readers in crossing_tensors(nodes, layer_of)
    ]
    legal_cuts, passing = without_open(range(len(layers) - 1), crossing)
    return ModelIndex(
        engine=engine,
        form="as_is",
        layer_count=len(layers),
        legal_cuts=legal_cuts,
        node_layers=layer_of,
        inputs=tuple(map(spec_of, graph.inputs)),
        outputs=tuple(map(spec_of, graph.outputs)),
        crossing=passing,
        input_readers=input_readers((tensor.name for tensor in graph.inputs), nodes, layer_of),
        output_makers=output_makers((tensor.name for tensor in graph.outputs), nodes, layer_of),
    )


def spec_of(tensor: Tensor) -> TensorSpec:
    return TensorSpec(tensor.name, tensor.shape, tensor.datatype, tensor.open_axes)
