"""Posynomials of many shares at once."""

from __future__ import annotations

import numpy as np

from shisha_rt.arrays import Floats
from shisha_rt.papers.gp.posynomial import Posynomial
from shisha_rt.papers.gp.problem import SplitDevice, SplitLayer


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
