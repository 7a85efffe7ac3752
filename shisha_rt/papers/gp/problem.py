"""Layers to be split over devices, and what any shares cost: the one checker for all that choose shares (GP, 2023).

A layer is a convolution with the features X = (H, W, C, k, N) and its stride s; H and W are the *output's* (the input's
are 16 times off at stride 4). A device gets a share of one of them: of the input channels C (partial sums, Figures 3 to
5), of the filters N (Figure 9) or of the rows H. Costs are posynomials in the features of the device's own share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np

from shisha_rt.arrays import Bools
from shisha_rt.papers.gp.posynomial import Posynomial
from shisha_rt.planner.strategies import Execution, SplitObjective, SplitVariable

FEATURES: Final = ("H", "W", "C", "k", "N", "s")

ROUNDING: Final = 1e-9
"""What a limit may be passed by, relative: sums come out otherwise in another order."""


@dataclass(frozen=True, slots=True)
class SplitLayer:
    """`features`: of the whole layer. Shares are multiples of `block`, but for what is left over."""

    name: str
    features: Mapping[str, float]
    variable: SplitVariable = "N"
    block: int = 1

    @property
    def units(self) -> int:
        """What there is to share."""
        return round(self.features[self.variable])

    def share(self, units: float) -> dict[str, float]:
        """The features of a part with so many units."""
        return {**self.features, self.variable: units}


@dataclass(frozen=True, slots=True)
class SplitDevice:
    """`latency_s` and `transfer_s` (None: nothing has to be moved): seconds, of the features of its share.

    `power_w` while it computes, `transfer_power_w` while it is sent to. `resources`: what its share takes of each, up
    to `limits`, of all layers together or of each by itself (`one_for_all`).
    """

    name: str
    latency_s: Posynomial
    transfer_s: Posynomial | None = None
    power_w: float = 1.0
    transfer_power_w: float = 1.0
    resources: Mapping[str, Posynomial] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    one_for_all: bool = False


@dataclass(frozen=True, slots=True)
class SplitProblem:
    layers: tuple[SplitLayer, ...]
    devices: tuple[SplitDevice, ...]
    objective: SplitObjective = "latency"
    execution: Execution = "sequence"


def able_devices(problem: SplitProblem) -> Bools:
    """(layers, devices): whether a device that has nothing else can hold a unit of the layer."""
    return np.array(
        [
            [
                all(device.resources[name].at(one) <= limit * (1 + ROUNDING) for name, limit in device.limits.items())
                for device in problem.devices
            ]
            for layer in problem.layers
            for one in [layer.share(1)]
        ],
        dtype=bool,
    )


Shares: TypeAlias = Sequence[Sequence[int]]
"""(layers, devices): units; 0 is no part in it."""


@dataclass(frozen=True, slots=True)
class LayerCost:
    """(devices,): seconds of computing and of moving, 0 without a share. `value`: seconds or joules of the layer."""

    compute_s: tuple[float, ...]
    transfer_s: tuple[float, ...]
    value: float


def layer_cost(problem: SplitProblem, layer: SplitLayer, shares: Sequence[float]) -> LayerCost:
    """What a layer costs with these shares (devices,), communication in full. Shares need not be whole numbers."""
    compute_s, transfer_s, joules = [], [], []
    for device, units in zip(problem.devices, shares, strict=True):
        share = layer.share(units)
        compute_s.append(device.latency_s.at(share) if units else 0.0)
        transfer_s.append(device.transfer_s.at(share) if units and device.transfer_s else 0.0)
        joules.append(device.power_w * compute_s[-1] + device.transfer_power_w * transfer_s[-1])
    if problem.objective == "energy":
        value = math.fsum(joules)
    elif problem.execution == "parallel":
        value = max(a + b for a, b in zip(compute_s, transfer_s, strict=True))
    else:
        value = math.fsum([*compute_s, *transfer_s])
    return LayerCost(tuple(compute_s), tuple(transfer_s), value)


def faults(problem: SplitProblem, shares: Shares) -> list[str]:
    """What is wrong with shares: they do not make up a layer, or take more of a device than it has."""
    costs = []
    for layer, share in zip(problem.layers, shares, strict=True):
        if any(units < 0 for units in share) or sum(share) != layer.units:
            costs.append(f"layer {layer.name}: shares {list(share)}, expected {layer.units} together")
    for index, device in enumerate(problem.devices):
        for name, limit in device.limits.items():
            used = [
                device.resources[name].at(layer.share(share[index])) if share[index] else 0.0
                for layer, share in zip(problem.layers, shares, strict=True)
            ]
            for what, amount in (
                [("all layers", math.fsum(used))]
                if device.one_for_all
                else [(f"layer {layer.name}", amount) for layer, amount in zip(problem.layers, used, strict=True)]
            ):
                if amount > limit * (1 + ROUNDING):
                    costs.append(f"{device.name}: {what} would need {amount:.6g} {name}, it has {limit:.6g}")
    return costs
