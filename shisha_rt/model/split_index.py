"""What an index says beyond layers and cuts: how layers may be split, and which can compute batches.

Shards need buffers besides those of tensors that cross cuts.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from shisha_rt.model.batches import FollowedBatch, layers_in_batches, lies_apart
from shisha_rt.model.graph import Graph
from shisha_rt.model.index import ModelIndex
from shisha_rt.model.layers import Layer
from shisha_rt.model.plain_index import spec_of
from shisha_rt.model.shards.of_model import splits_of
from shisha_rt.model.split import MOST_SUMMED
from shisha_rt.tensors import TensorSpec


def with_splits(index: ModelIndex, graph: Graph, layers: Sequence[Layer]) -> ModelIndex:
    """`index` with what is known of splits; `graph` is the one that stages are cut from, `layers` are its layers."""
    macs = [layer.macs for layer in layers]
    splits, kept_whole = splits_of(graph, index.node_layers, index.legal_cuts, macs)
    known = {spec.name for spec in index.tensors}
    inner: dict[str, TensorSpec] = {}
    for split in splits:
        for name in split.makes:
            spec = spec_of(graph.tensors[name])
            rooms = split.rooms(name, MOST_SUMMED)
            inner |= {room: structs.replace(spec, name=room) for room in rooms if room not in known}
    return structs.replace(index, splits=splits, kept_whole=kept_whole, inner=tuple(inner.values()))


def with_batches(index: ModelIndex, graph: Graph, followed: FollowedBatch) -> ModelIndex:
    """`index` with what is known of batches; `graph` as above, `followed` what was found in it."""
    layers = layers_in_batches(graph, index.node_layers, index.layer_count, followed)
    axes = {spec.name: followed.axes[spec.name] for spec in index.tensors if spec.name in followed.axes}
    apart = {name: axis for name, axis in axes.items() if lies_apart(graph, name, axis)}
    return structs.replace(index, batch_axes=apart, mixing=layers.mixing, tied=layers.tied, whole=layers.whole)
