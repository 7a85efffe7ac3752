"""Costs of measured devices, from a few runs of the whole network: which runs, and the costs that follow from them.

The runs are those of Algorithm 1 (DCG-2022 and DCG-2024, section 3.2): one for each device, for its operators, and a
few for the tensors that go from one device to another. Two effects keep costs from being read off directly:

- An engine fuses operators. So a segment's time, measured without the profiler (which slows it), is divided among its
  operators in the profiler's proportions. A fused operator's time counts as that of the operator it was fused into.
- A tensor from another device is in the plain format, and operators are not fused across it: in a mixed run a segment
  takes longer than its operators did when their device ran the whole network. That excess is the price of the tensors
  that enter the segment: for each device a linear function of their bytes, whatever device they come from, as all hand
  out the same format.

The shape and the level of that line are fitted separately, as in `costs.fit`. The shape is a least-squares fit of the
excesses relative to the segments' times: timing errors grow with the time, so the excess of a long segment says little.
But such a line lies too low, pulled towards segments that came out short, so it is scaled until the prices of all
segments sum to their excess. Both fits count a tensor once for each device, as placements do: its price includes
reading it again. With few, noisy points the line could have a negative intercept or slope; both are constrained to be
at least 0. Values only.
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
"""Stands in for costs that are not known yet: every operator, at no cost."""

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
    """The runs that show every cost of `devices` (at least one), as if each had a memory of its own.

    `incapable` (devices,): the operators known not to run on each; empty: none known. Raises BadInput for an operator
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
    """(devices,): the costs that follow from the runs of `runs_to_profile`; `node_runs` (devices,): one each."""
    profiled = []
    for device, node_run in zip(devices, node_runs, strict=True):
        operators_s = _operators_s(graph, device, node_run)
        profiled.append(DeviceTimes(operators_s, _entry(graph, device, operators_s, edge_runs)))
    return tuple(profiled)


def with_measured(graph: Graph, devices: Sequence[Device], measured: Mapping[str, DeviceTimes]) -> OperatorCosts:
    """The costs of all devices of a place: of described ones by formula, of the others from `measured`, by name."""
    formulas = described_costs(graph, devices)
    time_s = formulas.time_s
    priced = list(devices)
    for column, device in enumerate(devices):
        if device.name in measured:
            time_s[:, column] = measured[device.name].operators_s
            priced[column] = replace(device, transfer_in=measured[device.name].entry)
    return OperatorCosts(tuple(priced), time_s, formulas.groups)


def transfer_of(latency_s: float, s_per_byte: float) -> Transfer:
    """The transfer with these costs; its bandwidth is finite even if bytes cost nothing."""
    return Transfer(latency_s, 1 / max(s_per_byte, 1 / _FREE_BYTES_PER_S))


def _operators_s(graph: Graph, device: Device, node_run: Run) -> Floats:
    times = np.full(len(graph.operators), math.inf)
    for segment in node_run:
        if segment.device == device.name:
            profiled_s, count = np.array(segment.operators_s), segment.last - segment.first + 1
            shares = profiled_s / profiled_s.sum() if profiled_s.any() else np.full(count, 1 / count)
            times[segment.first : segment.last + 1] = segment.time_s * shares
    return times


def _entry(graph: Graph, device: Device, operators_s: Floats, runs: Sequence[Run]) -> Transfer:
    """The entry price that explains the excess of the device's segments; free if no tensor enters any."""
    rows = np.array([row for run in runs for row in _explained(graph, device, operators_s, run)]).reshape(-1, 4)
    entered, excess_s, time_s = rows[:, :2], rows[:, 2], rows[:, 3]
    shape = _non_negative(entered / time_s[:, None], excess_s / time_s)
    total_s = float((entered @ shape).sum())
    level = max(0.0, float(excess_s.sum())) / total_s if total_s else 0.0
    return transfer_of(*(level * shape).tolist())


def _explained(graph: Graph, device: Device, operators_s: Floats, run: Run) -> Iterator[tuple[float, ...]]:
    """Yield for each segment of the device: number and bytes of tensors from others, excess and total seconds."""
    device_of = {operator: segment.device for segment in run for operator in range(segment.first, segment.last + 1)}
    entered: set[str] = set()
    for segment in run:
        if segment.device == device.name and segment.time_s > 0:
            read = [name for name in ends(graph, segment.first, segment.last)[0] if name in graph.producer]
            new = {name for name in read if device_of[graph.producer[name]] != device.name} - entered
            entered |= new
            excess_s = segment.time_s - float(operators_s[segment.first : segment.last + 1].sum())
            new_bytes = sum(transfer_bytes(graph.tensors[name], device) for name in new)
            yield len(new), new_bytes, excess_s, segment.time_s


def _non_negative(columns: Floats, target: Floats) -> Floats:
    """The x >= 0 (2,) that minimises |columns x - target|: unconstrained if that is feasible, else on the better axis.

    If many fit equally (all tensors of one size), the one of least norm, which is nearly all per byte.
    """
    inside = np.asarray(np.linalg.lstsq(columns, target, rcond=None)[0], np.float64)
    if (inside >= 0).all():
        return inside
    edges = np.diag([_non_negative_ratio(column, target) for column in columns.T])
    return min(edges, key=lambda x: float(np.linalg.norm(columns @ x - target)))


def _non_negative_ratio(column: Floats, target: Floats) -> float:
    square = float(column @ column)
    return max(0.0, float(column @ target) / square) if square else 0.0
