"""Predicted time of each segment of a stage, from the costs of operators and transfers.

A segment pays for its operators (in groups, if these save time); for the transfer in of every tensor that it is the
first to read in its memory; and for the transfer out of every tensor that it makes, once for each other memory in which
it is read. If a direct link is faster, the reader alone pays, for the link. A stage's inputs are in the host's memory,
and its outputs must end there. The sum over a stage is the checker's cost of the same placement. For a measured device
the stage's inputs are free: converting them is part of its operators' times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from shisha_rt.costs.device_costs import transfer_cost_s, transfer_legs_s
from shisha_rt.costs.operator_costs import OperatorCosts
from shisha_rt.machine.device import Device
from shisha_rt.model.graph import Graph
from shisha_rt.model.spans import ends_of
from shisha_rt.placement.check import best_groups
from shisha_rt.placement.problem import Group
from shisha_rt.placement.segments import Segment


def segment_times_s(graph: Graph, segments: Sequence[Segment], costs: OperatorCosts) -> tuple[float, ...]:
    """(segments,) seconds of a stage's segments, in the graph's order; inf if a device cannot run an operator.

    `costs` are of all the graph's operators, and include the device of each segment.
    """
    column = {device.name: index for index, device in enumerate(costs.devices)}
    devices = [costs.devices[column[part.device]] for part in segments]
    times_s = [operator_times_s(costs.part(part.first, part.last), column[part.device]) for part in segments]
    maker = {name: index for index, part in enumerate(segments) for name in part.outputs}
    host = host_of(costs.devices)
    moved: set[tuple[str, str]] = set()  # (tensor, memory)
    for reader, part in enumerate(segments):
        target = devices[reader]
        for name in part.inputs:
            if (name, target.memory) in moved:
                continue
            moved.add((name, target.memory))
            tensor = graph.tensors[name]
            if name not in maker:
                times_s[reader].append(transfer_cost_s(tensor, host, target) if target.described else 0.0)
            elif devices[maker[name]].memory != target.memory:
                out_s, in_s = transfer_legs_s(tensor, devices[maker[name]], target)
                times_s[maker[name]].append(out_s)
                times_s[reader].append(in_s)
    _, leaving = ends_of(graph, [(part.first, part.last) for part in segments])
    for name in leaving:
        if (name, host.memory) not in moved:
            times_s[maker[name]].append(transfer_cost_s(graph.tensors[name], devices[maker[name]], host))
    return tuple(map(math.fsum, times_s))


def operator_times_s(costs: OperatorCosts, device: int) -> list[float]:
    """(operators,) seconds in one segment on a device (index); a group's time is its first operator's."""
    own_s: list[float] = costs.time_s[:, device].tolist()
    there = (Group(group.operators, device, group.time_s) for group in costs.groups if group.device == device)
    for group in best_groups(there, lambda operator, _: own_s[operator]):
        start, *others = group.nodes
        own_s[start] = group.cost_s
        for operator in others:
            own_s[operator] = 0.0
    return own_s


_NAME: Final = "(host)"  # no file can give a device or a memory such a name


def host_of(devices: Sequence[Device]) -> Device:
    """The host as a device: in the memory of the first described device behind no link, else in a memory of its own."""
    beside = (device for device in devices if device.described and device.transfer_out is None)
    return replace(next(beside, Device(_NAME, _NAME, "onnxruntime", _NAME, "fp32")), name=_NAME)
