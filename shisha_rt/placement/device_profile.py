"""What measured devices take, from a few runs of the whole network: which runs those are, and what follows from them.

The runs are those of Algorithm 1 (DCG-2022 and DCG-2024, section 3.2): one for each device, for its operators, and a
few for the tensors that go from one device to another. Two things keep their costs from being read off a clock:

- An engine fuses operators. So a segment's true time is divided among its operators as the engine's own profiler, which
  slows what it watches, shares it out. What a fused operator takes is in the one that it was fused with.
- A tensor that comes from another device is plain, and operators on either side of it are not fused: a segment among
  others takes longer than its operators did in their device's own run. That excess is the price of the tensors that
  enter it, one line over their bytes for each device, whatever device they come from: all hand out the same format.

Shape and level of that line are found apart, as in `costs.fit`. The shape is the least squares line through excesses as
ratios of the segments' times: a time is known to within a share of itself, so the excess of a long segment says little.
But such a line lies too low, pulled towards segments that came out short, so it is scaled until the prices of all
segments sum to their excess. Both count a tensor once for each device, as placements do: what reading it again costs is
in its price. Few points and noise could tilt the line until it starts or falls below zero: neither its latency nor its
time per byte may be negative. Values only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from shisha_rt.arrays import Floats
from shisha_rt.costs.device_costs import transfer_bytes
from shisha_rt.costs.operator_costs import OperatorCosts, described_costs
from shisha_rt.machine.device import Device, Family, Transfer
from shisha_rt.model.graph import Graph
from shisha_rt.model.spans import ends
from shisha_rt.placement.build import build_problem, tensor_kinds
from shisha_rt.placement.dcg import device_mapped_graph
from shisha_rt.placement.profiling import ProfileRuns, profile_runs

_UNPRICED: Final = Family(frozenset(), (), ())
"""Stands in for costs that are not known yet: whatever a device can run."""

_FREE_BYTES_PER_S: Final = 1e18


@dataclass(frozen=True, slots=True)
class SegmentTime:
    """Operators `first` to `last` (inclusive, of the graph) took `time_s` on `device` (a name).

    `operators_s` is (operators of the segment,) seconds as the engine's profiler saw them; empty if it was off.
    """

    device: str
    first: int
    last: int
    time_s: float
    operators_s: tuple[float, ...] = ()


Run = tuple[SegmentTime, ...]
"""A run of the whole network, segment by segment."""


@dataclass(frozen=True, slots=True, eq=False)
class DeviceTimes:
    """`operators_s` is (operators,) seconds, inf where the device ran none; `entry`: a tensor from another device."""

    operators_s: Floats
    entry: Transfer


def runs_to_profile(graph: Graph, devices: Sequence[Device], incapable: Sequence[Sequence[int]] = ()) -> ProfileRuns:
    """The runs that show every cost of measured devices, at least one, each a memory of its own.

    `incapable`: (devices,) of operators that are known not to run there, or nothing. Raises BadInput for an operator
    that none of them can run.
    """
    unpriced = [replace(device, memory=device.name, families=(_UNPRICED,)) for device in devices]
    costs = described_costs(graph, unpriced)
    for column, operators in enumerate(incapable):
        costs.time_s[list(operators), column] = math.inf
    problem = build_problem(graph, costs)
    return profile_runs(device_mapped_graph(problem, tensor_kinds(graph, problem)))


def device_times(
    graph: Graph, devices: Sequence[Device], node_runs: Sequence[Run], edge_runs: Sequence[Run]
) -> tuple[DeviceTimes, ...]:
    """(devices,): what follows from the runs of `runs_to_profile`; `node_runs` is (devices,)."""
    profiled = []
    for device, node_run in zip(devices, node_runs, strict=True):
        operators_s = _operators_s(graph, device, node_run)
        profiled.append(DeviceTimes(operators_s, _entry(graph, device, operators_s, edge_runs)))
    return tuple(profiled)


def with_measured(graph: Graph, devices: Sequence[Device], measured: Mapping[str, DeviceTimes]) -> OperatorCosts:
    """The costs of all devices of a place: described ones by their formulas, the others, by name, as `measured`."""
    formulas = described_costs(graph, devices)
    time_s = formulas.time_s
    priced = list(devices)
    for column, device in enumerate(devices):
        if device.name in measured:
            time_s[:, column] = measured[device.name].operators_s
            priced[column] = replace(device, transfer_in=measured[device.name].entry)
    return OperatorCosts(tuple(priced), time_s, formulas.groups)


def transfer_of(latency_s: float, s_per_byte: float) -> Transfer:
    """A bandwidth is finite, even where bytes cost nothing."""
    return Transfer(latency_s, 1 / max(s_per_byte, 1 / _FREE_BYTES_PER_S))


def _operators_s(graph: Graph, device: Device, node_run: Run) -> Floats:
    times = np.full(len(graph.operators), math.inf)
    for part in node_run:
        if part.device == device.name:
            seen_s = np.array(part.operators_s)
            shares = seen_s / seen_s.sum() if seen_s.any() else np.full(len(seen_s), 1 / len(seen_s))
            times[part.first : part.last + 1] = part.time_s * shares
    return times


def _entry(graph: Graph, device: Device, operators_s: Floats, runs: Sequence[Run]) -> Transfer:
    """The price that explains what the device's segments took; free where nothing enters any."""
    rows = np.array([row for run in runs for row in _explained(graph, device, operators_s, run)]).reshape(-1, 4)
    entered, excess_s, time_s = rows[:, :2], rows[:, 2], rows[:, 3]
    shape = _non_negative(entered / time_s[:, None], excess_s / time_s)
    total_s = float((entered @ shape).sum())
    level = max(0.0, float(excess_s.sum())) / total_s if total_s else 0.0
    return transfer_of(*(level * shape).tolist())


def _explained(graph: Graph, device: Device, operators_s: Floats, run: Run) -> Iterator[tuple[float, ...]]:
    """Yield for each segment of a device the tensors that come from others, their bytes, and seconds.

    Excess and in all.
    """
    device_of = {operator: part.device for part in run for operator in range(part.first, part.last + 1)}
    brought: set[str] = set()
    for part in run:
        if part.device == device.name and part.time_s > 0:
            read = [name for name in ends(graph, part.first, part.last)[0] if name in graph.producer]
            new = {name for name in read if device_of[graph.producer[name]] != device.name} - brought
            brought |= new
            excess_s = part.time_s - float(operators_s[part.first : part.last + 1].sum())
            yield len(new), sum(transfer_bytes(graph.tensors[name], device) for name in new), excess_s, part.time_s


def _non_negative(columns: Floats, target: Floats) -> Floats:
    """The x >= 0 (2,) with the least |columns x - target|: inside if it can be, else on the better of the edges.

    Of many that fit alike (all tensors of one size) it is that of the least norm, which lies on the bytes.
    """
    inside = np.asarray(np.linalg.lstsq(columns, target, rcond=None)[0], np.float64)
    if (inside >= 0).all():
        return inside
    edges = np.diag([_non_negative_ratio(column, target) for column in columns.T])
    return min(edges, key=lambda x: float(np.linalg.norm(columns @ x - target)))


def _non_negative_ratio(column: Floats, target: Floats) -> float:
    square = float(column @ column)
    return max(0.0, float(column @ target) / square) if square else 0.0
