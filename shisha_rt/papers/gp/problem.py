"""Layers to be split over devices, and the cost of any shares: the one checker for all methods (GP, 2023).

A layer is a convolution with the features X = (H, W, C, k, N) and its stride s; H and W are the *output's* (with the
input's, costs are 16 times off at stride 4). A device gets a share of one feature: of the input channels C (partial
sums, Figures 3 to 5), of the filters N (Figure 9) or of the rows H. Costs are posynomials in the features of the
device's own share.

A convolution in G groups (ours: the paper has no groups) is G parallel convolutions of C input channels and N filters
each, so C and N are those of *one group*. Its filters are shared in whole groups: a share of G.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np

from shisha_rt.arrays import Bools, Floats
from shisha_rt.papers.gp.posynomial import Posynomial
from shisha_rt.planner.strategies import Execution, SplitObjective

FEATURES: Final = ("H", "W", "C", "k", "N", "s")
"""The paper's features, and the stride; `G`, the number of groups, is 1 if a layer does not state it."""

SharedFeature = Literal["C", "N", "H", "G"]
"""The feature that devices share: input channels, filters, rows, or whole groups."""

SecondsT = TypeVar("SecondsT", float, Floats)

ROUNDING: Final = 1e-9
"""Relative tolerance of limits, as sums in another order are rounded differently."""


class RowWindow(NamedTuple):
    """`extent`: rows of the input from the first to the last that a row of the output reads; `stride`: from one to the
    next.
    """

    extent: float
    stride: float


@dataclass(frozen=True, slots=True)
class SplitLayer:
    """`features`: of the whole layer. Shares are multiples of `block`, except for an incomplete last block.

    `window`: of rows, where it is not k and s: these are means of a kernel's sides and strides, without dilation.
    """

    name: str
    features: Mapping[str, float]
    variable: SharedFeature = "N"
    block: int = 1
    window: RowWindow | None = None

    @property
    def rows(self) -> RowWindow:
        return self.window or RowWindow(self.features["k"], self.features["s"])

    @property
    def units(self) -> int:
        """Number of units to share."""
        return round(self.features[self.variable])

    def share(self, units: float) -> dict[str, float]:
        """The features of a share of `units`, including G."""
        return {"G": 1.0, **self.features, self.variable: units}

    @property
    def groups(self) -> float:
        """Number of groups of the whole layer; 1: an ordinary convolution."""
        return self.features.get("G", 1.0)

    @property
    def others(self) -> dict[str, float]:
        """The features of which each share has all."""
        return {name: value for name, value in {"G": 1.0, **self.features}.items() if name != self.variable}

    def along(self, posynomial: Posynomial | None, units: Floats) -> Floats:
        """(units,): the posynomial's value for shares of these units; 0 for no units."""
        values = np.zeros(len(units))
        taken = units > 0
        for term in () if posynomial is None else posynomial.fixed(self.others).terms:
            values[taken] += term.coefficient * units[taken] ** term.exponents.get(self.variable, 0.0)
        return values


@dataclass(frozen=True, slots=True)
class Formula:
    """`seconds` of a share in `groups` groups (None: any number), whose input channels and filters, over all of its
    groups, are multiples of `channels` and `filters`.
    """

    seconds: Posynomial
    groups: int | None = 1
    channels: int = 1
    filters: int = 1

    def fits(self, share: Mapping[str, Any]) -> Any:
        """Whether it is for a share with these features, including G; if one is (shares,), so is the answer."""
        fitting = self.groups is None or share["G"] == self.groups
        for name, of in (("C", self.channels), ("N", self.filters)):
            if of > 1:  # real shares have no multiples, and need none
                fitting = fitting & (share["G"] * share[name] % of == 0)
        return fitting


@dataclass(frozen=True, slots=True)
class SplitDevice:
    """`formulas` and `transfer_s` (None: nothing has to be moved): seconds, by the features of the device's share.

    The first of the formulas that fits a share counts; a share that none fits cannot run.

    `power_w`: while it computes; `transfer_power_w`: while data moves. `resources`: use of each by a share, up to
    `limits`, which are for all layers together (`one_for_all`) or for each layer.
    """

    name: str
    formulas: tuple[Formula, ...]
    transfer_s: Posynomial | None = None
    power_w: float = 1.0
    transfer_power_w: float = 1.0
    resources: Mapping[str, Posynomial] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    one_for_all: bool = False

    def formula(self, share: Mapping[str, float]) -> Posynomial | None:
        """Seconds of a share with these features, including G; None: it cannot run."""
        return next((formula.seconds for formula in self.formulas if formula.fits(share)), None)

    def compute_s(self, share: Mapping[str, float]) -> float:
        """Seconds of computing such a share; inf if it cannot run."""
        seconds = self.formula(share)
        return math.inf if seconds is None else seconds.at(share)

    def compute_along(self, layer: SplitLayer, units: Floats) -> Floats:
        """(units,): seconds of computing each share of a layer; inf if the device cannot run it."""
        shares = {**layer.others, layer.variable: units}
        seconds = np.where(units > 0, np.inf, 0.0)
        for formula in reversed(self.formulas):
            fitting = (units > 0) & formula.fits(shares)
            seconds[fitting] = layer.along(formula.seconds, units[fitting])
        return seconds

    def joules(self, compute_s: SecondsT, moved_s: SecondsT) -> SecondsT:
        """Energy of computing and of moving for so long (Eq. 15)."""
        return self.power_w * compute_s + self.transfer_power_w * moved_s


@dataclass(frozen=True, slots=True)
class SplitProblem:
    layers: tuple[SplitLayer, ...]
    devices: tuple[SplitDevice, ...]
    objective: SplitObjective = "latency"
    execution: Execution = "sequence"

    @property
    def adding(self) -> Execution:
        """How costs of devices add up: energy is a sum even if devices compute in parallel."""
        return "sequence" if self.objective == "energy" else self.execution

    def spent(self, device: SplitDevice, compute_s: SecondsT, moved_s: SecondsT) -> SecondsT:
        """Cost of these seconds of one device: seconds, or joules if energy is the objective."""
        return device.joules(compute_s, moved_s) if self.objective == "energy" else compute_s + moved_s

    def together(self, costs: Sequence[float]) -> float:
        """Cost of devices with these costs (devices,)."""
        return max(costs) if self.adding == "parallel" else math.fsum(costs)


def able_devices(problem: SplitProblem) -> Bools:
    """(layers, devices): whether a device with nothing else on it can hold one unit, and run a large share."""
    return np.array(
        [
            [
                largest_share_s(device, layer) is not None
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


def largest_share_s(device: SplitDevice, layer: SplitLayer) -> Posynomial | None:
    """Seconds of shares by the formula for the whole layer, or else for all of its whole blocks; None: it cannot run
    either. Methods that think of real shares go by it (ours).
    """
    whole_blocks = layer.units - layer.units % layer.block
    formulas = (device.formula(layer.share(units)) for units in (layer.units, whole_blocks) if units)
    return next((seconds for seconds in formulas if seconds is not None), None)


def common_block(devices: Sequence[SplitDevice], variable: SharedFeature) -> int:
    """The smallest number of channels C or filters N (others: 1) all of whose multiples each device can run."""
    formulas = [formula for device in devices for formula in device.formulas]
    return math.lcm(*({"C": formula.channels, "N": formula.filters}.get(variable, 1) for formula in formulas))


Shares: TypeAlias = Sequence[Sequence[int]]
"""(layers, devices): units; 0: the device has no share."""


@dataclass(frozen=True, slots=True)
class LayerCost:
    """`compute_s`, `transfer_s` (devices,): seconds, 0 without a share. `value`: seconds or joules of the layer."""

    compute_s: tuple[float, ...]
    transfer_s: tuple[float, ...]
    value: float


def layer_cost(problem: SplitProblem, layer: SplitLayer, shares: Sequence[float]) -> LayerCost:
    """Cost of a layer with these shares (devices,), communication in full. Shares need not be whole numbers."""
    compute_s, transfer_s, costs = [], [], []
    for device, units in zip(problem.devices, shares, strict=True):
        share = layer.share(units)
        compute_s.append(device.compute_s(share) if units else 0.0)
        transfer_s.append(device.transfer_s.at(share) if units and device.transfer_s else 0.0)
        costs.append(problem.spent(device, compute_s[-1], transfer_s[-1]))
    return LayerCost(tuple(compute_s), tuple(transfer_s), problem.together(costs))


def runs(device: SplitDevice, layer: SplitLayer, units: float) -> bool:
    """Whether a device can run a share's groups, channels and filters; limits are not checked."""
    return not units or device.formula(layer.share(units)) is not None


def run_fault(device: SplitDevice, layer: SplitLayer, units: float) -> str:
    """Message on a share that cannot run."""
    share = layer.share(units)
    return (
        f"{device.name}: layer {layer.name} would need {share['G']:g} groups of {share['C']:g} channels and "
        f"{share['N']:g} filters, which it cannot run"
    )
