"""The index of a model: from the graph that stages are cut from, and the layer of each of its nodes.

That is an engine's own form of the network, or the cleaned graph. If a place has several engines, their tensor formats
differ, so tensors pass between stages as in the cleaned graph: every cut is legal, except across open axes, and every
tensor is plain. The price is what an engine gains by fusing operators or keeping blocked formats across a cut.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from shisha_rt.model.batches import FollowedBatch, layers_in_batches, lies_apart
from shisha_rt.model.graph import Graph
from shisha_rt.model.index import NO_LAYER, Crossing, Form, ModelIndex
from shisha_rt.model.layers import Layer, layer_of_operator
from shisha_rt.model.shards.of_model import splits_of
from shisha_rt.model.split import MOST_SUMMED
from shisha_rt.tensors import Tensor


def plain_index(graph: Graph, layers: Sequence[Layer]) -> ModelIndex:
    """The index of a cleaned graph, whose nodes are its operators; `layers` are all of its layers."""
    return cut_index(graph, layer_of_operator(layers), len(layers), "plain", "as_is")


def cut_index(graph: Graph, node_layers: Sequence[int], layer_count: int, engine: str, form: Form) -> ModelIndex:
    """Where a graph can be cut, and what passes there. `node_layers` (operators,): the layer of each.

    A layer whose nodes were all fused into a later layer has no cut behind it. The buffer of a tensor with open axes
    would have no fixed size, so its maker and its readers stay in one stage: no cut that it crosses is legal.
    """
    readers: dict[str, set[int]] = {}
    makers: dict[str, int] = {}
    for operator, layer in zip(graph.operators, node_layers, strict=True):
        for name in operator.inputs:
            readers.setdefault(name, set()).add(layer)
        makers |= dict.fromkeys(filter(None, operator.outputs), layer)
    passing = [
        Crossing(graph.tensors[name], layer, tuple(later))
        for name, layer in makers.items()
        if (later := sorted(readers.get(name, set()) - {layer}))
    ]
    held = {cut for entry in passing if entry.tensor.open_axes for cut in range(entry.made, entry.last_read)}
    return ModelIndex(
        engine=engine,
        form=form,
        layer_count=layer_count,
        legal_cuts=tuple(cut for cut in sorted({*node_layers})[:-1] if cut not in held),
        node_layers=tuple(node_layers),
        inputs=graph.inputs,
        outputs=graph.outputs,
        crossing=tuple(entry for entry in passing if not entry.tensor.open_axes),
        input_readers=tuple(tuple(sorted(readers.get(tensor.name, ()))) for tensor in graph.inputs),
        output_makers=tuple(makers.get(tensor.name, NO_LAYER) for tensor in graph.outputs),
    )


def with_splits(index: ModelIndex, graph: Graph, layers: Sequence[Layer]) -> ModelIndex:
    """`index` with what is known of splits; `graph` is the one that stages are cut from, `layers` are its layers.

    Shards need buffers besides those of tensors that cross cuts.
    """
    macs = [layer.macs for layer in layers]
    splits, kept_whole = splits_of(graph, index.node_layers, index.legal_cuts, macs)
    known = {tensor.name for tensor in index.tensors}
    inner: dict[str, Tensor] = {}
    for split in splits:
        for name in split.makes:
            rooms = split.rooms(name, MOST_SUMMED)
            inner |= {room: structs.replace(graph.tensors[name], name=room) for room in rooms if room not in known}
    return structs.replace(index, splits=splits, kept_whole=kept_whole, inner=tuple(inner.values()))


def with_batches(index: ModelIndex, graph: Graph, followed: FollowedBatch) -> ModelIndex:
    """`index` with what is known of batches; `graph` as above, `followed` what was found in it."""
    layers = layers_in_batches(graph, index.node_layers, index.layer_count, followed)
    axes = {tensor.name: followed.axes[tensor.name] for tensor in index.tensors if tensor.name in followed.axes}
    apart = {name: axis for name, axis in axes.items() if lies_apart(graph, name, axis)}
    return structs.replace(index, batch_axes=apart, mixing=layers.mixing, tied=layers.tied, whole=layers.whole)
