"""Tables of costs by number of blocks of a layer and device, from which integer splits are chosen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shisha_rt.arrays import Floats
from shisha_rt.papers.gp.posynomial import Posynomial
from shisha_rt.papers.gp.problem import ROUNDING, SplitDevice, SplitLayer, SplitProblem


@dataclass(frozen=True, slots=True)
class CostTables:
    """`whole` (devices, blocks + 1): costs of 0, 1, ... whole blocks; `odd`: the same with the incomplete last block
    besides (None: there is none). Seconds or joules; inf if a device has no room. No units cost 0.
    """

    whole: Floats
    odd: Floats | None = None


def layer_tables(problem: SplitProblem, layer: SplitLayer) -> CostTables:
    """Cost tables of a single layer, communication in full.

    A limit for all layers together is applied to this layer alone.
    """
    blocks, left_over = divmod(layer.units, layer.block)
    units = layer.block * np.arange(blocks + 1, dtype=float)
    return CostTables(_values(problem, layer, units), _values(problem, layer, units + left_over) if left_over else None)


def _values(problem: SplitProblem, layer: SplitLayer, units: Floats) -> Floats:
    """(devices, units): costs of shares."""
    return np.array([share_values(problem, layer, device, units) for device in problem.devices])


def share_values(problem: SplitProblem, layer: SplitLayer, device: SplitDevice, units: Floats) -> Floats:
    """(units,): seconds or joules of each share on one device; inf if it cannot run or exceeds a limit.

    0 units cost nothing.
    """
    compute_s = compute_along(device, layer, units)
    transfer_s = along(device.transfer_s, layer, units)
    values = spent(problem, device, compute_s, transfer_s)
    for name, limit in device.limits.items():
        values[along(device.resources[name], layer, units) > limit * (1 + ROUNDING)] = np.inf
    return values


def spent(problem: SplitProblem, device: SplitDevice, compute_s: Floats, transfer_s: Floats) -> Floats:
    """Cost of these seconds: seconds, or joules if energy is the objective."""
    if problem.objective == "energy":
        return device.power_w * compute_s + device.transfer_power_w * transfer_s
    return compute_s + transfer_s


def compute_along(device: SplitDevice, layer: SplitLayer, units: Floats) -> Floats:
    """(units,): seconds of computing each share; inf if the device cannot run it."""
    shares = {"G": 1.0, **layer.features, layer.variable: units}
    seconds = np.where(units > 0, np.inf, 0.0)
    for formula in reversed(device.formulas):
        fitting = (units > 0) & formula.fits(shares)
        seconds[fitting] = along(formula.seconds, layer, units[fitting])
    return seconds


def along(posynomial: Posynomial | None, layer: SplitLayer, units: Floats) -> Floats:
    """(units,): the posynomial's value for shares of these units; 0 for no units."""
    values = np.zeros(len(units))
    if posynomial is None:
        return values
    others = {name: value for name, value in layer.features.items() if name != layer.variable}
    taken = units > 0
    for term in posynomial.fixed(others).terms:
        values[taken] += term.coefficient * units[taken] ** term.exponents.get(layer.variable, 0.0)
    return values
