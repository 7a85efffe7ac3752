"""Layers to be split over devices, and what any shares cost: the one checker for all that choose shares (GP, 2023).

A layer is a convolution with the features X = (H, W, C, k, N) and its stride s; H and W are the *output's* (the input's
are 16 times off at stride 4). A device gets a share of one of them: of the input channels C (partial sums, Figures 3 to
5), of the filters N (Figure 9) or of the rows H. Costs are posynomials in the features of the device's own share.

A convolution in G groups (ours: the paper's features have none) is G alike side by side, each of C input channels and N
filters, so that C and N are those of *one group*. Its filters are shared in whole groups: a share of G.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

import numpy as np

from shisha_rt.arrays import Bools
from shisha_rt.papers.gp.posynomial import Posynomial
from shisha_rt.planner.strategies import Execution, SplitObjective

FEATURES: Final = ("H", "W", "C", "k", "N", "s")
"""The paper's, and the stride; `G`, the groups, is 1 where a layer does not state it."""

SharedFeature = Literal["C", "N", "H", "G"]
"""What devices get shares of: input channels, filters, rows, or whole groups."""

ROUNDING: Final = 1e-9
"""What a limit may be passed by, relative: sums come out otherwise in another order."""


@dataclass(frozen=True, slots=True)
class SplitLayer:
    """`features`: of the whole layer. Shares are multiples of `block`, but for what is left over."""

    name: str
    features: Mapping[str, float]
    variable: SharedFeature = "N"
    block: int = 1

    @property
    def units(self) -> int:
        """What there is to share."""
        return round(self.features[self.variable])

    def share(self, units: float) -> dict[str, float]:
        """The features of a part with so many units, G among them."""
        return {"G": 1.0, **self.features, self.variable: units}

    @property
    def groups(self) -> float:
        """Of the whole layer; 1: an ordinary convolution."""
        return self.features.get("G", 1.0)


@dataclass(frozen=True, slots=True)
class SplitDevice:
    """`latency_s` and `transfer_s` (None: nothing has to be moved): seconds, of the features of its share.

    `latency_s` is that of a share in one group. `grouped` has those of shares in several: (number of groups, seconds),
    None: in any number; the first that fits counts, and a share that none fits cannot run.

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
    grouped: tuple[tuple[int | None, Posynomial], ...] = ()

    @property
    def formulas(self) -> tuple[tuple[int | None, Posynomial], ...]:
        """(number of groups, None: any; seconds of a share in so many): the first that fits counts."""
        return ((1, self.latency_s), *self.grouped)

    def formula(self, groups: float) -> Posynomial | None:
        """Seconds of a share in so many groups; None: it cannot run."""
        return next((seconds for number, seconds in self.formulas if number in (None, groups)), None)

    def compute_s(self, share: Mapping[str, float]) -> float:
        """Seconds that a share with these features takes, G among them; inf if it cannot run."""
        seconds = self.formula(share["G"])
        return math.inf if seconds is None else seconds.at(share)


@dataclass(frozen=True, slots=True)
class SplitProblem:
    layers: tuple[SplitLayer, ...]
    devices: tuple[SplitDevice, ...]
    objective: SplitObjective = "latency"
    execution: Execution = "sequence"


def able_devices(problem: SplitProblem) -> Bools:
    """(layers, devices): whether a device that has nothing else can hold a unit, and runs so many groups as it has."""
    return np.array(
        [
            [
                device.formula(layer.groups) is not None
                and all(
                    device.resources[name].at(one) <= limit * (1 + ROUNDING) for name, limit in device.limits.items()
                )
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
        compute_s.append(device.compute_s(share) if units else 0.0)
        transfer_s.append(device.transfer_s.at(share) if units and device.transfer_s else 0.0)
        joules.append(device.power_w * compute_s[-1] + device.transfer_power_w * transfer_s[-1])
    if problem.objective == "energy":
        value = math.fsum(joules)
    elif problem.execution == "parallel":
        value = max(a + b for a, b in zip(compute_s, transfer_s, strict=True))
    else:
        value = math.fsum([*compute_s, *transfer_s])
    return LayerCost(tuple(compute_s), tuple(transfer_s), value)


def runs(device: SplitDevice, layer: SplitLayer, units: float) -> bool:
    """Whether a device runs a share in so many groups as it has; limits are another thing."""
    return not units or device.formula(layer.share(units)["G"]) is not None


def group_fault(device: SplitDevice, layer: SplitLayer, units: float) -> str:
    """What to say of a share that does not run."""
    return f"{device.name}: layer {layer.name} would need {layer.share(units)['G']:g} groups, which it cannot run"


def faults(problem: SplitProblem, shares: Shares) -> list[str]:
    """What is wrong with shares: they do not make up a layer, cannot run, or take more of a device than it has."""
    costs = []
    for layer, share in zip(problem.layers, shares, strict=True):
        if any(units < 0 for units in share) or sum(share) != layer.units:
            costs.append(f"layer {layer.name}: shares {list(share)}, expected {layer.units} together")
        costs += (
            group_fault(device, layer, units)
            for device, units in zip(problem.devices, share, strict=True)
            if not runs(device, layer, units)
        )
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
