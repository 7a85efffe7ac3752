"""What a stage with a split takes on a described device: the formulas of its operators as they are there."""

from __future__ import annotations

from collections.abc import Sequence

from shisha_rt.costs.operator_costs import described_costs
from shisha_rt.graph.graph import Graph
from shisha_rt.graph.spans import Span
from shisha_rt.machine.device import Device
from shisha_rt.placement.segment_times import segment_times_s
from shisha_rt.placement.segments import segment
from shisha_rt.plan.split import Split
from shisha_rt.split.shard_graphs import stage_graph


def split_stage_s(
    graph: Graph, node_layers: Sequence[int], split: Split, work: Sequence[Span], device: Device
) -> float | None:
    """Seconds; inf where it cannot run it. None of a measured device: what other shapes take there is not known.

    `node_layers` (operators,) of the cleaned graph. Raises ValueError for what cannot be split.
    """
    if not device.described:
        return None
    its = stage_graph(graph, node_layers, split, work)
    if not its.operators:
        return 0.0
    whole = segment(its, 0, len(its.operators) - 1, device.name)
    (seconds,) = segment_times_s(its, (whole,), described_costs(its, (device,)))
    return seconds
