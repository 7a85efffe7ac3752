"""How much of a layer a device has room for, and the message if all devices together have too little."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from shisha_rt.arrays import Bools, Floats
from shisha_rt.papers.gp.problem import ROUNDING, SplitDevice, SplitLayer, SplitProblem

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
