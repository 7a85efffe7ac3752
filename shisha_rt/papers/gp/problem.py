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
from collections.abc import Collection, Mapping, Sequence
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
    """`extent`: rows of the input that a row of the output spans; `stride`: rows between the starts of two spans."""

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

    def along(self, posynomial: Posynomial, units: Floats) -> Floats:
        """(units,): the posynomial's value for shares of these units; 0 for no units."""
        values = np.zeros(len(units))
        taken = units > 0
        for term in posynomial.fixed(self.others).terms:
            values[taken] += term.coefficient * units[taken] ** term.exponents.get(self.variable, 0.0)
        return values


@dataclass(frozen=True, slots=True)
class Formula:
    """`seconds` of a share in `groups` groups (None: any), of multiples of `channels` and `filters` in all groups."""

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


NOTHING: Final = Posynomial(())


@dataclass(frozen=True, slots=True)
class Legs:
    """Transfer seconds of a share: of its input map to a device, and of its output map back to the host."""

    in_s: Posynomial
    out_s: Posynomial = NOTHING


@dataclass(frozen=True, slots=True)
class SplitDevice:
    """`formulas` and `legs` (None: it uses the host's memory): seconds, by the features of the device's share.

    The first of the formulas that fits a share counts; a share that none fits cannot run.

    `power_w`: while it computes; `transfer_power_w`: while data moves. `resources`: use of each by a share, up to
    `limits`, which are for all layers together (`one_for_all`) or for each layer.
    """

    name: str
    formulas: tuple[Formula, ...]
    legs: Legs | None = None
    power_w: float = 1.0
    transfer_power_w: float = 1.0
    resources: Mapping[str, Posynomial] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)
    one_for_all: bool = False

    @property
    def transfer_s(self) -> Posynomial:
        """Seconds of both legs."""
        return NOTHING if self.legs is None else self.legs.in_s.plus(self.legs.out_s)

    def formula(self, share: Mapping[str, float]) -> Posynomial | None:
        """Seconds of a share with these features, including G; None: it cannot run."""
        return next((formula.seconds for formula in self.formulas if formula.fits(share)), None)

    def compute_s(self, share: Mapping[str, float]) -> float:
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
    """`links` (devices, devices): seconds of a share's input map from the first device's memory directly to the
    second's; None without a direct link; () if there are no links at all. `starts`: layers before which all data is in
    the host's memory, as they do not just read the layer before; the first need not be named.
    """

    layers: tuple[SplitLayer, ...]
    devices: tuple[SplitDevice, ...]
    objective: SplitObjective = "latency"
    execution: Execution = "sequence"
    links: tuple[tuple[Posynomial | None, ...], ...] = ()
    starts: tuple[int, ...] = ()

    def entry(self, at: int | None, device: int) -> Posynomial | None:
        """Seconds to move a share's input from device `at` (None: the host); None: only by way of the host's memory."""
        if at is None:
            legs = self.devices[device].legs
            return NOTHING if legs is None else legs.in_s
        if at == device:
            return NOTHING
        return self.links[at][device] if self.links else None

    @property
    def adding(self) -> Execution:
        """How costs of devices add up: energy is a sum even if devices compute in parallel."""
        return "sequence" if self.objective == "energy" else self.execution

    def spent(self, device: SplitDevice, compute_s: SecondsT, moved_s: SecondsT) -> SecondsT:
        """Cost of these seconds of one device: seconds, or joules if energy is the objective."""
        return device.joules(compute_s, moved_s) if self.objective == "energy" else compute_s + moved_s

    def together(self, costs: Sequence[float]) -> float:
        return max(costs) if self.adding == "parallel" else math.fsum(costs)


def able_devices(problem: SplitProblem) -> Bools:
    """(layers, devices): whether a device with nothing else on it can hold one unit, and run a large share."""
    return np.array(
        [
            [
                largest_share_s(device, layer) is not None
                and all(
                    device.resources[name].at(unit) <= limit * (1 + ROUNDING) for name, limit in device.limits.items()
                )
                for device in problem.devices
            ]
            for layer in problem.layers
            for unit in [layer.share(1)]
        ],
        dtype=bool,
    )


def largest_share_s(device: SplitDevice, layer: SplitLayer) -> Posynomial | None:
    """Seconds by the formula for the whole layer, else for all its blocks; None: neither. For real shares (ours)."""
    whole_blocks = layer.units - layer.units % layer.block
    formulas = (device.formula(layer.share(units)) for units in (layer.units, whole_blocks) if units)
    return next((seconds for seconds in formulas if seconds is not None), None)


def common_block(devices: Sequence[SplitDevice], variable: SharedFeature) -> int:
    """The smallest number of channels C or filters N (others: 1) all of whose multiples each device can run."""
    formulas = [formula for device in devices for formula in device.formulas]
    return math.lcm(*({"C": formula.channels, "N": formula.filters}.get(variable, 1) for formula in formulas))


Shares: TypeAlias = Sequence[Sequence[int]]
"""(layers, devices): units; 0: the device has no share."""


def layer_cost(problem: SplitProblem, layer: SplitLayer, shares: Sequence[float]) -> float:
    """Seconds or joules of a layer with these shares (devices,), communication in full; they need not be whole."""
    costs = []
    for device, units in zip(problem.devices, shares, strict=True):
        share = layer.share(units)
        seconds = (device.compute_s(share), device.transfer_s.at(share)) if units else (0.0, 0.0)
        costs.append(problem.spent(device, *seconds))
    return problem.together(costs)


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


Taken = Mapping[str, float]
"""Use of each resource of a device by other layers."""


def fits(
    device: SplitDevice, layer: SplitLayer, units: Floats, taken: Taken, names: Collection[str] | None = None
) -> Bools:
    """(units,): whether the device can run each share within its limits; with `names`, only whether it keeps these."""
    has_room = np.isfinite(device.compute_along(layer, units)) if names is None else np.ones(len(units), dtype=bool)
    for name in device.limits if names is None else names:
        used = taken.get(name, 0.0) + layer.along(device.resources[name], units)
        has_room &= used <= device.limits[name] * (1 + ROUNDING)
    return has_room


def room(device: SplitDevice, layer: SplitLayer, taken: Taken, most: int | None = None) -> int:
    """The largest share that fits: whole blocks, or all of `most` (default: the layer)."""
    wanted = layer.units if most is None else most
    units = np.append(np.arange(0, wanted, layer.block, dtype=float), wanted)
    return int(units[fits(device, layer, units, taken)].max(initial=0.0))


def too_little_room(problem: SplitProblem, layer: SplitLayer, taken: Sequence[Taken]) -> str:
    """Message on what keeps devices from holding the layer: limits by name, groups or channels; `taken` (devices,)."""
    loads = []
    for device, load in zip(problem.devices, taken, strict=True):
        most = room(device, layer, load)
        next_ = np.array([min(layer.units, most + layer.block)], dtype=float)
        stopped_by = ", ".join(
            name for name in device.limits if most < layer.units and not fits(device, layer, next_, load, (name,))
        )
        if most < layer.units:
            stopped_by = stopped_by or ("groups" if layer.groups > 1 else "channels")
        loads.append(f"{device.name} has room for {most}" + (f" ({stopped_by})" if stopped_by else ""))
    blocks = f" in blocks of {layer.block}" if layer.block > 1 else ""
    return f"layer {layer.name}: {', '.join(loads)} of {layer.units}{blocks}"
