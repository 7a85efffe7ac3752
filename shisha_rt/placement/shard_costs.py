"""Times of shards, and of stages that have them, on described devices: by formula, for the operators' sizes there."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from shisha_rt.costs.operator_costs import described_costs
from shisha_rt.costs.split_costs import PricedSplit, ShardTime
from shisha_rt.machine.device import Device
from shisha_rt.model.graph import Graph
from shisha_rt.model.shards.shard_graphs import stage_graph
from shisha_rt.model.spans import Span
from shisha_rt.model.split import Split, Splittable, partial_name
from shisha_rt.placement.segment_times import segment_times_s
from shisha_rt.placement.segments import segment

_PRICED: Final = ("channels", "columns", "groups")
"""Axes along which shards have formulas."""


def shard_times(
    graph: Graph, node_layers: Sequence[int], splittables: Iterable[Splittable], devices: Mapping[str, Device]
) -> dict[PricedSplit, ShardTime]:
    """Times of shards by layers, axis and place, for splits without partial sums.

    `node_layers` (operators,) of the cleaned graph; `devices`: by place, for places whose only device is a described
    one. Each time is a line through those of the smallest shard and of the largest that the device can run.
    """
    first_with = {
        place: next(first for first, other in devices.items() if other == device) for place, device in devices.items()
    }
    times_of: dict[PricedSplit, ShardTime] = {}
    for splittable in splittables:
        if splittable.summed or splittable.axis not in _PRICED:
            continue
        span, axis = splittable.along
        for place, first in first_with.items():
            if place == first:
                times_of[span, axis, place] = _shard_time(graph, node_layers, splittable, devices[place])
            else:
                times_of[span, axis, place] = times_of[span, axis, first]
    return times_of


def _shard_time(graph: Graph, node_layers: Sequence[int], splittable: Splittable, device: Device) -> ShardTime:
    def stage_s(units: int, part: int) -> float:
        split = Split(splittable.span, splittable.axis, (units, splittable.units - units), part)
        return split_stage_s(graph, node_layers, split, [splittable.span], device) or 0.0

    line = _line(splittable, lambda blocks: stage_s(blocks * splittable.block, 0))
    return replace(line, join_s=stage_s(splittable.block, 2)) if splittable.joined else line


def _line(splittable: Splittable, seconds: Callable[[int], float]) -> ShardTime:
    """The line through `seconds`, a function of the number of blocks that is inf beyond what the device can run."""
    most_blocks = splittable.blocks - 1  # another shard has the last one
    first_s, last_s = seconds(1), seconds(most_blocks)
    last = most_blocks
    if math.isinf(first_s):
        return ShardTime(0.0, 0.0, 0)
    if math.isinf(last_s):
        last = bisect_left(range(1, most_blocks + 1), True, key=lambda blocks: math.isinf(seconds(blocks)))
        last_s = seconds(last)
    unit_s = (last_s - first_s) / ((last - 1) * splittable.block) if last > 1 else 0.0
    most_units = splittable.units if last == most_blocks else last * splittable.block
    return ShardTime(max(0.0, first_s - unit_s * splittable.block), unit_s, most_units)


def split_stage_s(
    graph: Graph, node_layers: Sequence[int], split: Split, work: Sequence[Span], device: Device
) -> float | None:
    """Seconds of the stage; inf if the device cannot run it; None if it is measured: other shapes' times are unknown.

    An int8 device has no scales for tensors that only shards or joins have, except that a shard's own partial sums need
    none.

    `node_layers` (operators,) of the cleaned graph. Raises ValueError for what cannot be split.
    """
    if not device.described and device.precision != "int8":
        return None
    shard_graph = stage_graph(graph, node_layers, split, work)
    own = set() if split.joins else {partial_name(name, split.part) for name in graph.tensors}
    if device.precision == "int8" and not shard_graph.tensors.keys() <= graph.tensors.keys() | own:
        return math.inf
    if not device.described:
        return None
    if not shard_graph.operators:
        return 0.0
    whole = segment(shard_graph, 0, len(shard_graph.operators) - 1, device.name)
    (seconds,) = segment_times_s(shard_graph, (whole,), described_costs(shard_graph, (device,)))
    return seconds
