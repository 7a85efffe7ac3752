"""The costs of each operator of a network on each device of a place, by formula or measured.

The costs of a described device follow from its formulas. Those of an engine of this host are measured, as is the
transfer of a tensor from another device, which is then in the engine's `transfer_in`. Values only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from shisha_rt.arrays import Bools, Floats
from shisha_rt.costs.device_costs import fused_costs, operator_cost_s
from shisha_rt.machine.device import Device, Transfer
from shisha_rt.model.graph import Graph


@dataclass(frozen=True, slots=True)
class GroupCost:
    """Seconds of a device (index) for a chain of operators (indices, ascending) that it runs as one.

    The device need not be able to run each of them by itself (PartitionTuner, Section 3.1).
    """

    operators: tuple[int, ...]
    device: int
    time_s: float


@dataclass(frozen=True, slots=True, eq=False)
class OperatorCosts:
    """`time_s` (operators, devices): seconds, inf where a device cannot run an operator by itself."""

    devices: tuple[Device, ...]
    time_s: Floats
    groups: tuple[GroupCost, ...] = ()

    @property
    def capable_alone(self) -> Bools:
        """(operators,): whether some device can run each by itself."""
        capable: Bools = np.isfinite(self.time_s.min(axis=1))
        return capable

    @property
    def capable(self) -> Bools:
        """(operators,): whether some device can run each by itself or in a group."""
        capable = self.capable_alone
        for group in self.groups:
            capable[list(group.operators)] = True
        return capable

    def part(self, first: int, last: int) -> OperatorCosts:
        """Costs of operators `first` to `last` (inclusive), renumbered from 0, and of the groups wholly among them."""
        groups = (
            replace(group, operators=tuple(operator - first for operator in group.operators))
            for group in self.groups
            if first <= group.operators[0] and group.operators[-1] <= last
        )
        return OperatorCosts(self.devices, self.time_s[first : last + 1], tuple(groups))

    def slowed(self, ratios: Mapping[str, float]) -> OperatorCosts:
        """The costs with devices, and transfers into and out of them, slowed down by `ratios` (by device name).

        Transfers of devices that share a memory stay as they are.
        """
        factors = [ratios.get(device.name, 1.0) for device in self.devices]
        memories = [device.memory for device in self.devices]
        devices = (
            device if memories.count(device.memory) > 1 else _with_slower_transfers(device, factor)
            for device, factor in zip(self.devices, factors, strict=True)
        )
        groups = tuple(replace(group, time_s=group.time_s * factors[group.device]) for group in self.groups)
        return OperatorCosts(tuple(devices), self.time_s * np.array(factors), groups)


def beside(costs: Iterable[OperatorCosts]) -> OperatorCosts:
    """The costs of operators on the devices of several places (at least one), as if they were devices of one place."""
    by_place = list(costs)
    groups: list[GroupCost] = []
    before = 0  # devices of earlier places
    for costs_of_place in by_place:
        groups += (replace(group, device=before + group.device) for group in costs_of_place.groups)
        before += len(costs_of_place.devices)
    devices = tuple(device for costs_of_place in by_place for device in costs_of_place.devices)
    return OperatorCosts(devices, np.hstack([costs_of_place.time_s for costs_of_place in by_place]), tuple(groups))


def described_costs(graph: Graph, devices: Sequence[Device]) -> OperatorCosts:
    """Costs of every operator and group by described devices' formulas; nan in the columns of other devices."""
    columns = [
        [operator_cost_s(graph, operator, device) if device.described else math.nan for operator in graph.operators]
        for device in devices
    ]
    groups = [
        GroupCost(tuple(range(first, last + 1)), index, time_s)
        for index, device in enumerate(devices)
        for (first, last), time_s in fused_costs(graph, device)
    ]
    return OperatorCosts(tuple(devices), np.array(columns).T, tuple(groups))


def _with_slower_transfers(device: Device, factor: float) -> Device:
    def slowed(transfer: Transfer) -> Transfer:
        return Transfer(transfer.latency_s * factor, transfer.bandwidth_bytes_per_s / factor)

    return replace(
        device,
        transfer_in=device.transfer_in and slowed(device.transfer_in),
        transfer_out=device.transfer_out and slowed(device.transfer_out),
        links=tuple(replace(link, transfer=slowed(link.transfer)) for link in device.links),
    )
