"""The index of a model that is served from its cleaned graph, without any engine's own form of it.

Where a place has several engines, none of their formats is the other's, so what passes between stages is as the
cleaned graph has it: every cut is legal, and every tensor is plain. The price is what an engine gains by fusing
operators or keeping blocked formats across a cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shisha_rt.fabric.model_index import Crossing, ModelIndex, TensorSpec
from shisha_rt.graph.graph import Graph, Tensor
from shisha_rt.graph.layers import Layer, layer_of_operator

PLAIN_VERSION: Final = 1  # raise it when `plain_index` would give another index for the same model


def plain_index(graph: Graph, layers: Sequence[Layer]) -> ModelIndex:
    """The index of a cleaned graph, whose nodes are its operators; `layers` are all of its layers."""
    layer_of = layer_of_operator(layers)
    spans = (
        (name, layer_of[maker], layer_of[graph.consumers.get(name, (maker,))[-1]])
        for name, maker in graph.producer.items()
    )
    return ModelIndex(
        engine="plain",
        layer_count=len(layers),
        legal_cuts=tuple(range(len(layers) - 1)),
        node_layers=layer_of,
        inputs=tuple(map(_spec, graph.inputs)),
        outputs=tuple(map(_spec, graph.outputs)),
        crossing=tuple(
            Crossing(_spec(graph.tensors[name]), made, last_read) for name, made, last_read in spans if made < last_read
        ),
    )


def _spec(tensor: Tensor) -> TensorSpec:
    return TensorSpec(tensor.name, tensor.shape, tensor.datatype)
