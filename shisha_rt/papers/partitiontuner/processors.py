"""Costs of a network on places that are one processor each, computing and moving apart, for schedules of partitions.

A node is what no cut divides: an operator, or for engines of this host, which fuse operators, a run of layers. A stage
is some nodes on one place. It moves each tensor in once that it reads from other stages or as input of the network, and
each tensor out once that other stages read or that is an output. Tensors between its own nodes do not move. A worker
computes the same for a stage of described devices, to the last bit (`placement.segment_times`).

Seconds are those of measurements, without a machine's `time_scale`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from types import MappingProxyType

from shisha_rt.costs.costs import Costs
from shisha_rt.costs.device_costs import transfer_cost_s
from shisha_rt.costs.operator_costs import GroupCost, OperatorCosts
from shisha_rt.errors import BadInput, Error
from shisha_rt.machine.device import Device
from shisha_rt.machine.machine import Machine
from shisha_rt.model.graph import Graph
from shisha_rt.model.heavy import HEAVY
from shisha_rt.model.spans import Span, groups_of
from shisha_rt.placement.check import cost
from shisha_rt.placement.problem import Group, Node, Problem
from shisha_rt.placement.segment_times import host_of

INPUT = -1
"""`maker` of the network's inputs."""


@dataclass(frozen=True, slots=True)
class Passed:
    """A tensor. `maker`: the node that computes it; `readers`: nodes that read it, ascending; `leaves`: whether it is
    an output of the network. `in_s` and `out_s` (places,): seconds to move it into and out of a stage there.
    """

    name: str
    maker: int
    readers: tuple[int, ...]
    leaves: bool
    in_s: tuple[float, ...]
    out_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Alone:
    """Measured times of single partitions on a place (index), with all tensors that they move in and out.

    `time_s` (nodes,): seconds, inf if the place cannot run the node; `groups`: of this place.
    """

    place: int
    time_s: tuple[float, ...]
    groups: tuple[GroupCost, ...]


@dataclass(frozen=True, slots=True)
class ProcessorCosts:
    """`spans` (nodes,): runs of layers; `names` and `ops`: of their first operators.

    `time_s` (nodes, places): seconds, inf if a place cannot run a node alone. `groups`: consecutive nodes that a place
    (their `device`) runs as one. `passed`: all tensors. `handover_s`: from the end of a stage to the start of one
    that waits for it. `alone`: for places whose partitions were measured; for others these times follow from the rest.
    """

    places: tuple[str, ...]
    spans: tuple[Span, ...]
    names: tuple[str, ...]
    ops: tuple[str, ...]
    time_s: tuple[tuple[float, ...], ...]
    groups: tuple[GroupCost, ...] = ()
    passed: tuple[Passed, ...] = ()
    handover_s: float = 0.0
    alone: tuple[Alone, ...] = ()

    def stage_s(self, runs: Sequence[Span], place: int) -> float:
        """Seconds of a stage of these runs of nodes; inf if the place cannot run them."""
        inside = {node for first, last in runs for node in range(first, last + 1)}
        seconds = [self._run_s(first, last, place) for first, last in runs]
        for tensor in self.passed:
            if tensor.maker in inside:
                if tensor.leaves or not inside.issuperset(tensor.readers):
                    seconds.append(tensor.out_s[place])
            elif not inside.isdisjoint(tensor.readers):
                seconds.append(tensor.in_s[place])
        return math.fsum(seconds)

    def _run_s(self, first: int, last: int, place: int) -> float:
        """Seconds of a run of nodes. It is a session of its own, so groups do not extend beyond it."""
        nodes = tuple(Node(self.names[node], "", (self.time_s[node][place],)) for node in range(first, last + 1))
        groups = tuple(
            Group(tuple(node - first for node in group.operators), 0, group.time_s)
            for group in self.groups
            if group.device == place and first <= group.operators[0] and group.operators[-1] <= last
        )
        run = Problem((self.places[place],), ("",), (0,), nodes, (), groups)
        return cost(run, (0,) * len(nodes)).total_s

    def on(self, places: Collection[str]) -> ProcessorCosts:
        """The costs of these places only."""
        left = [index for index, place in enumerate(self.places) if place in places]

        def of(row: Sequence[float]) -> tuple[float, ...]:
            return tuple(row[index] for index in left)

        return replace(
            self,
            places=tuple(self.places[index] for index in left),
            time_s=tuple(map(of, self.time_s)),
            groups=tuple(replace(g, device=left.index(g.device)) for g in self.groups if g.device in left),
            passed=tuple(replace(t, in_s=of(t.in_s), out_s=of(t.out_s)) for t in self.passed),
            alone=tuple(_at(alone, left.index(alone.place)) for alone in self.alone if alone.place in left),
        )

    def scaled(self, node_factors: Sequence[Sequence[float]]) -> ProcessorCosts:
        """Costs with times multiplied by factors (nodes, places).

        A group has the factor of its first node; moving a tensor out that of its maker, moving it in that of its first
        reader.
        """

        def slower(row: Sequence[float], node: int) -> tuple[float, ...]:
            return tuple(s * factor for s, factor in zip(row, node_factors[node], strict=True))

        return replace(
            self,
            time_s=tuple(slower(row, node) for node, row in enumerate(self.time_s)),
            groups=tuple(replace(g, time_s=g.time_s * node_factors[g.operators[0]][g.device]) for g in self.groups),
            passed=tuple(
                replace(
                    tensor,
                    in_s=slower(tensor.in_s, tensor.readers[0]) if tensor.readers else tensor.in_s,
                    out_s=slower(tensor.out_s, tensor.maker) if tensor.maker != INPUT else tensor.out_s,
                )
                for tensor in self.passed
            ),
            alone=tuple(_slower(alone, [factors[alone.place] for factors in node_factors]) for alone in self.alone),
        )


def _at(alone: Alone, place: int) -> Alone:
    return replace(alone, place=place, groups=tuple(replace(group, device=place) for group in alone.groups))


def _slower(alone: Alone, factors: Sequence[float]) -> Alone:
    """Multiply times by `factors` (nodes,)."""
    return replace(
        alone,
        time_s=tuple(s * factor for s, factor in zip(alone.time_s, factors, strict=True)),
        groups=tuple(replace(group, time_s=group.time_s * factors[group.operators[0]]) for group in alone.groups),
    )


def costs_of_devices(
    graph: Graph,
    machine: Machine,
    costs: Mapping[str, OperatorCosts],
    handover_s: float,
    alone: Mapping[str, OperatorCosts] = MappingProxyType({}),
) -> ProcessorCosts:
    """Costs with each operator of a cleaned graph as a node; `costs`: by place, each with one device.

    `alone`: measured times of single partitions, by place; from them follows what moving tensors in and out costs such
    a place.

    Raises BadInput for a place with several devices, as it is not known which of them work at the same time.
    """
    places = tuple(costs)
    columns = [costs[place] for place in places]
    _check_one_device_each(machine, costs)
    speeds = [machine.place(place).speed for place in places]
    devices = [column.devices[0] for column in columns]
    hosts = [host_of(column.devices) for column in columns]
    parted_s = [_parted_s(graph, alone[name], costs[name]) if name in alone else 0.0 for name in places]
    return ProcessorCosts(
        places=places,
        spans=tuple((index, index) for index in range(len(graph.operators))),
        names=tuple(operator.name for operator in graph.operators),
        ops=tuple(operator.op_type for operator in graph.operators),
        time_s=tuple(
            tuple(float(column.time_s[node, 0]) / speed for column, speed in zip(columns, speeds, strict=True))
            for node in range(len(graph.operators))
        ),
        groups=tuple(_groups_of(columns, speeds)),
        passed=tuple(_passed_of(graph, devices, hosts, speeds, parted_s)),
        handover_s=handover_s,
        alone=tuple(
            _alone(place, alone[name], column, speed)
            for place, (name, column, speed) in enumerate(zip(places, columns, speeds, strict=True))
            if name in alone
        ),
    )


def _groups_of(columns: Sequence[OperatorCosts], speeds: Sequence[float]) -> Iterator[GroupCost]:
    """Yield the groups of each place whose operators are consecutive."""
    for place, (column, speed) in enumerate(zip(columns, speeds, strict=True)):
        for group in column.groups:
            if is_run(group.operators):
                yield GroupCost(group.operators, place, group.time_s / speed)


def _check_one_device_each(machine: Machine, costs: Mapping[str, OperatorCosts]) -> None:
    for place, place_costs in costs.items():
        if len(place_costs.devices) != 1:
            names = ", ".join(device.name for device in place_costs.devices)
            raise BadInput(
                f"{machine.source}: place {place} has devices {names}; a schedule of partitions takes each place for "
                "one processor, expected one device in each",
                Error.DEVICE_UNFIT,
            )


def _alone(place: int, measured: OperatorCosts, operator_costs: OperatorCosts, speed: float) -> Alone:
    """Measured times of a place's partitions; inf for operators without a time in `operator_costs`."""
    able = operator_costs.capable_alone.tolist()
    return Alone(
        place,
        tuple(float(s) / speed if can else math.inf for s, can in zip(measured.time_s[:, 0], able, strict=True)),
        tuple(
            GroupCost(group.operators, place, group.time_s / speed)
            for group in measured.groups
            if is_run(group.operators) and all(able[node] for node in group.operators)
        ),
    )


def _parted_s(graph: Graph, alone: OperatorCosts, whole: OperatorCosts) -> float:
    """Seconds that a stage on an engine of this host takes at both ends, beyond its operators' shares of the whole
    network: the median over heavy operators alone. An engine fuses light ones, whose shares are almost 0.
    """
    heavy = [node for node, operator in enumerate(graph.operators) if operator.op_type in HEAVY]
    beyond_s: list[float] = (alone.time_s[heavy, 0] - whole.time_s[heavy, 0]).tolist()
    return max(0.0, median([s for s in beyond_s if math.isfinite(s)] or [0.0]))


def is_run(nodes: Sequence[int]) -> bool:
    """Whether nodes are consecutive in the graph's order: only then can one session of a stage contain them."""
    return nodes[-1] - nodes[0] == len(nodes) - 1


def _passed_of(
    graph: Graph,
    devices: Sequence[Device],
    hosts: Sequence[Device],
    speeds: Sequence[float],
    parted_s: Sequence[float],
) -> Iterator[Passed]:
    """Yield all tensors of the graph. For a measured device the network's inputs cost nothing, and its outputs no
    extra: that is part of its operators' times.

    `parted_s` (devices,): extra seconds of a stage within the network, half of them at each end.
    """
    leaving = {tensor.name for tensor in graph.outputs}
    for name, tensor in graph.tensors.items():
        maker = graph.producer.get(name, INPUT)
        sides = list(zip(devices, hosts, speeds, parted_s, strict=True))
        yield Passed(
            name,
            maker,
            graph.consumers.get(name, ()),
            name in leaving,
            tuple(
                (transfer_cost_s(tensor, host, device) + extra_s / 2) / speed
                if device.described or maker != INPUT
                else 0.0
                for device, host, speed, extra_s in sides
            ),
            tuple(
                (transfer_cost_s(tensor, device, host) + (0.0 if name in leaving else extra_s / 2)) / speed
                for device, host, speed, extra_s in sides
            ),
        )


def costs_of_layers(costs: Costs, needs: Sequence[Collection[int]], handover_s: float) -> ProcessorCosts:
    """Costs with each run of layers that no legal cut divides as a node.

    `needs` (layers,): the earlier layers from which each reads a tensor.

    Moving costs nothing extra: stages pass tensors on in shared memory, which is part of their times.
    """
    spans = groups_of(len(costs.layers), costs.legal_cuts)
    node_of = {layer: node for node, (first, last) in enumerate(spans) for layer in range(first, last + 1)}
    readers: dict[int, set[int]] = {}
    for layer, need in enumerate(needs):
        for needed in need:
            if node_of[needed] != node_of[layer]:
                readers.setdefault(node_of[needed], set()).add(node_of[layer])
    free = (0.0,) * len(costs.places)
    return ProcessorCosts(
        places=tuple(place.name for place in costs.places),
        spans=spans,
        names=tuple(costs.layers[first].name for first, _ in spans),
        ops=tuple("Layer" for _ in spans),
        time_s=tuple(
            tuple(_able_s(costs.time_s[first : last + 1, place].tolist()) for place in range(len(costs.places)))
            for first, last in spans
        ),
        passed=tuple(
            Passed(costs.layers[spans[maker][1]].name, maker, tuple(sorted(reader)), False, free, free)
            for maker, reader in sorted(readers.items())
        ),
        handover_s=handover_s,
    )


def _able_s(times_s: Sequence[float]) -> float:
    """Sum of times; inf if one is nan, which in costs of layers means that a place cannot run it."""
    return math.inf if any(map(math.isnan, times_s)) else math.fsum(times_s)
