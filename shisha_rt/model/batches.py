"""Which operators can compute a batch: several frames in one run, each with the results that it has alone.

Every tensor that depends on the inputs has a **batch axis**, along which the frames of a batch follow each other. It is
axis 0 of each input, and operators carry it on, perhaps to a different axis. In a batch of n frames that axis is n
times as long; all other sizes stay. A tensor without a batch axis follows from constants alone and is the same for all
frames. An operator that mixes frames, or that has no rule (`batch_axes`), computes one frame at a time; the batch axis
of its outputs is axis 0 again.

A model's shapes are those of one frame. The only shapes that operators read as values, and that may have to change for
a batch, are those of Reshape: -1 at the batch axis fits any number of frames (`free_batch`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from shisha_rt.model.batch_axes import Integers, MixesFrames, batch_axes_made
from shisha_rt.model.graph import Graph, Operator
from shisha_rt.model.spans import Span

_MOST_NAMED: Final = 8


@dataclass(frozen=True, slots=True)
class FollowedBatch:
    """`axes`: the batch axis of each run-time tensor; a tensor that is the same for all frames is absent.

    `mixing`: for each operator (index) that computes one frame at a time, the reason. `reshaped`: for each Reshape
    operator (index), the axis at which its shape input must be -1.
    """

    axes: Mapping[str, int]
    mixing: Mapping[int, str]
    reshaped: Mapping[int, int]


def follow_batch(graph: Graph, integers: Integers) -> FollowedBatch:
    """Follow the batch axis through a graph. `integers`: values of constants that operators read as axes or bounds."""
    axes = {tensor.name: 0 for tensor in graph.inputs}
    mixing: dict[int, str] = {}
    reshaped: dict[int, int] = {}
    for number, operator in enumerate(graph.operators):
        read = tuple(axes.get(name) if name else None for name in operator.inputs)
        try:
            _check_tensors(graph, operator, axes)
            made = batch_axes_made(graph, operator, read, integers)
        except MixesFrames as reason:
            mixing[number] = f"{operator.op_type}: {reason}"
            made = (0,) * len(operator.outputs)
        for name, axis in zip(operator.outputs, made, strict=False):
            if name and axis is not None:
                axes[name] = axis
        if operator.op_type == "Reshape" and number not in mixing and made[0] is not None:
            reshaped[number] = made[0]
    return FollowedBatch(axes, mixing, reshaped)


def lies_apart(graph: Graph, name: str, axis: int) -> bool:
    """Whether the tensor of a batch is its frames' tensors one after another in memory."""
    shape = graph.tensors[name].shape
    return axis < len(shape) and math.prod(shape[:axis]) == 1


@dataclass(frozen=True, slots=True)
class LayersInBatches:
    """`mixing` (layers,): why a layer computes one frame at a time; empty if it can compute a batch.

    `tied`: groups of layers between which a tensor passes whose frames are not one after another in memory; a stage
    that computes a batch has all layers of a group or none. `whole`: why a request of several frames cannot be
    separated into frames; empty if it can.
    """

    mixing: tuple[str, ...]
    tied: tuple[tuple[int, ...], ...]
    whole: str


def layers_in_batches(
    graph: Graph, node_layers: Sequence[int], layer_count: int, followed: FollowedBatch
) -> LayersInBatches:
    """Sum up by layer. `graph` is the one that stages are cut from, `node_layers` (operators,) the layer of each."""
    mixing = [""] * layer_count
    for number, reason in followed.mixing.items():
        mixing[node_layers[number]] = mixing[node_layers[number]] or reason
    tied: list[tuple[int, ...]] = []
    whole = next(filter(None, mixing), "")
    handed_out = {tensor.name for tensor in graph.outputs}
    for number, operator in enumerate(graph.operators):
        for name in filter(None, operator.outputs):
            axis, layer = followed.axes.get(name), node_layers[number]
            if name in handed_out:
                if axis is None or not lies_apart(graph, name, axis):
                    mixing[layer] = mixing[layer] or f"output {name!r}: its frames do not lie apart"
                if axis != 0:
                    whole = whole or f"output {name!r}: its first axis does not go with the inputs'"
            layers = {layer, *(node_layers[reader] for reader in graph.consumers.get(name, ()))}
            if len(layers) > 1 and (axis is None or not lies_apart(graph, name, axis)):
                tied.append(tuple(sorted(layers)))
    made = {name for operator in graph.operators for name in operator.outputs}
    if not whole and not handed_out <= made:
        whole = "an output is an input as it is"
    return LayersInBatches(tuple(mixing), tuple(dict.fromkeys(tied)), whole)


def why_not_together(work: Sequence[Span], mixing: Sequence[str], tied: Sequence[Sequence[int]]) -> str:
    """Why a stage of these layers computes one frame at a time; empty if it can compute a batch."""
    layers = {layer for first, last in work for layer in range(first, last + 1)}
    for layer in sorted(layers):
        if mixing[layer]:
            return f"layer {layer} computes one frame at a time ({mixing[layer]})"
    for group in tied:
        if not layers.isdisjoint(group) and not layers.issuperset(group):
            return f"frames of what passes between layers {', '.join(map(str, group))} do not lie apart"
    return ""


def _check_tensors(graph: Graph, operator: Operator, axes: Mapping[str, int]) -> None:
    for name in (*operator.inputs, *operator.outputs):
        tensor = graph.tensors.get(name)
        if tensor is not None and tensor.open_axes:
            raise MixesFrames(f"the size of {name!r} depends on the data")
    for name in operator.inputs:
        if name in axes and axes[name] >= len(graph.tensors[name].shape):
            raise MixesFrames(f"{name!r} has no axis for frames")


def batches_in_words(mixing: Sequence[str]) -> str:
    """Say which layers can compute a batch, and why the first of the others cannot."""
    alone = [layer for layer, reason in enumerate(mixing) if reason]
    if not alone:
        return "every layer may compute several frames in one run"
    named = ", ".join(map(str, alone[:_MOST_NAMED])) + (", ..." if len(alone) > _MOST_NAMED else "")
    reason = mixing[alone[0]]
    if len(alone) == len(mixing):
        return f"no layer may compute several frames in one run: {reason}"
    layers = "layer" if len(alone) == 1 else "layers"
    able = len(mixing) - len(alone)
    return f"{able} of {len(mixing)} layers may compute several frames in one run, not {layers} {named}: {reason}"
