"""Time of a stage with a split on a described device, by formula for its operators with their sizes in that stage."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
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


def shard_times(
    graph: Graph, node_layers: Sequence[int], ways: Iterable[Splittable], devices: Mapping[str, Device]
) -> dict[PricedSplit, ShardTime]:
    """Times of shards on places whose only device is a described one (`devices`), for splits without partial sums.

    Each is a line through the times of the smallest shard and of the largest that the device can run.
    """
    times_of: dict[PricedSplit, ShardTime] = {}
    alike = {
        place: next(name for name, other in devices.items() if other == device) for place, device in devices.items()
    }
    for way in ways:
        if way.summed or way.axis not in _PRICED:
            continue
        span = way.first, way.last

        def seconds(blocks: int, place: str, way: Splittable = way, span: Span = span) -> float:
            units = blocks * way.block
            split = Split(span, way.axis, (units, way.units - units), 0)
            return split_stage_s(graph, node_layers, split, [span], devices[place]) or 0.0

        for place, first in alike.items():
            if place != first:
                times_of[span, way.axis, place] = times_of[span, way.axis, first]
                continue
            shard_line = _line(way, partial(seconds, place=place))
            join_s: float | None = 0.0
            if way.joined:
                join = Split(span, way.axis, (way.block, way.units - way.block), 2)
                join_s = split_stage_s(graph, node_layers, join, [span], devices[place])
            times_of[span, way.axis, place] = replace(shard_line, join_s=join_s or 0.0)
    return times_of


def _line(way: Splittable, seconds: Callable[[int], float]) -> ShardTime:
    """The line through `seconds`, a function of the number of blocks that is inf beyond what the device can run."""
    most_blocks = -(-way.units // way.block) - 1
    first_s, last_s = seconds(1), seconds(most_blocks)
    last = most_blocks
    if math.isinf(first_s):
        return ShardTime(0.0, 0.0, 0)
    if math.isinf(last_s):
        last = bisect_left(range(1, most_blocks + 1), True, key=lambda blocks: math.isinf(seconds(blocks)))
        last_s = seconds(last)
    unit_s = (last_s - first_s) / ((last - 1) * way.block) if last > 1 else 0.0
    most = way.units if last == most_blocks else last * way.block
    return ShardTime(max(0.0, first_s - unit_s * way.block), unit_s, most)


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
