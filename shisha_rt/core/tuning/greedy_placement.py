"""Greedy placement of a plan's operators on devices, for when frames wait for the plan and a solver takes too long.

All operators of a stage go to the device that takes the least time for all of them. If no device can run them all, the
operators that the best device cannot run each go to the device that takes the least for that operator alone. Transfers
of tensors are ignored: a better placement may follow. Until then stages are paced by what their runs take.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from shisha_rt.arrays import Floats
from shisha_rt.costs.operator_costs import OperatorCosts
from shisha_rt.model.spans import Span
from shisha_rt.placement.segment_times import operator_times_s
from shisha_rt.plan.plan import Plan, Stage


class GreedyPlacement:
    """`costs`: costs of the network's operators on the devices of each place.

    `operators_of` (first, last): returns the span of operators of a run of layers; both ends of each are inclusive.
    """

    def __init__(self, costs: Mapping[str, OperatorCosts], operators_of: Callable[[int, int], Span]) -> None:
        self._costs = costs
        self._devices = {place: tuple(device.name for device in cost.devices) for place, cost in costs.items()}
        self._operators_of = operators_of

    def devices(self, place: str) -> tuple[str, ...]:
        return self._devices[place]

    def placed(self, plan: Plan, ratios: Mapping[tuple[str, str], float]) -> Plan | None:
        """The plan with placements; None if no device can run some operator. `ratios`: (team, device) -> slow-down."""
        stages = [(stage, self._stage(stage, ratios)) for stage in plan.stages]
        if not all(placement for _, placement in stages):
            return None
        return Plan(tuple(replace(stage, placement=placement) for stage, placement in stages))

    def _stage(self, stage: Stage, ratios: Mapping[tuple[str, str], float]) -> tuple[str, ...]:
        """(operators,) the device of each operator of a stage; () if no device can run some operator."""
        devices, costs = self._devices[stage.place], self._costs[stage.place]
        runs = [self._operators_of(first, last) for first, last in stage.work]
        slower = np.array([ratios.get((stage.team_name, device), 1.0) for device in devices])
        together_s = slower * np.concatenate([_together_s(costs, run) for run in runs])
        sums_s = together_s.sum(axis=0)
        best = int(sums_s.argmin())
        if math.isfinite(sums_s[best]):
            return (devices[best],) * len(together_s)
        alone_s = slower * np.concatenate([costs.time_s[first : last + 1] for first, last in runs])
        return _parted(devices, together_s, alone_s)


def _together_s(costs: OperatorCosts, run: Span) -> Floats:
    """(operators, devices) seconds of each operator if all of a run are on one device."""
    together = costs.part(*run)
    return np.array([operator_times_s(together, device) for device in range(len(costs.devices))]).T


def _parted(devices: Sequence[str], together_s: Floats, alone_s: Floats) -> tuple[str, ...]:
    """(operators,) the best device, or another device for each operator that it cannot run; () if no device can run
    some operator. `together_s` and `alone_s` are (operators, devices).
    """
    able, least_s = np.isfinite(together_s), alone_s.min(axis=1)
    sums_s = np.where(able, together_s, least_s[:, None]).sum(axis=0)
    best = sums_s.argmin()
    if not math.isfinite(sums_s[best]):
        return ()
    return tuple(devices[device] for device in np.where(able[:, best], best, alone_s.argmin(axis=1)))
