"""Condensation (GP, Eqs. 5, 8 and 13): costs and equalities in the form that a geometric program needs.

A share is written as x, the fraction of the layer that a device gets; all costs become posynomials of x alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from shisha_rt.arrays import Floats
from shisha_rt.papers.gp.posynomial import Monomial, Posynomial
from shisha_rt.papers.gp.problem import SplitDevice, SplitLayer, SplitProblem, able_devices, largest_share_s

SHARE: Final = "x"


def of_share(posynomial: Posynomial, layer: SplitLayer, power: float = 0.0) -> Posynomial:
    """A posynomial of x alone, times x^power, with the layer's other features inserted. Equal powers are one term."""
    terms = []
    for term in posynomial.fixed(layer.others).terms:
        exponent = term.exponents.get(layer.variable, 0.0)
        coefficient = term.coefficient * layer.features[layer.variable] ** exponent
        if coefficient > 0:
            terms.append(Monomial(coefficient, {SHARE: exponent + power} if exponent + power else {}))
    return Posynomial(tuple(sorted(terms, key=lambda term: term.exponents.get(SHARE, 0.0))))


@dataclass(frozen=True, slots=True)
class ShareCosts:
    """`of` (layers, devices): costs of a share, in seconds or, for the objective energy, in joules (Eq. 15)."""

    problem: SplitProblem
    of: tuple[tuple[Posynomial, ...], ...]

    def of_layers(self, parts: Floats) -> Floats:
        """(layers,): costs with these `parts` (layers, devices): sums, or maxima if devices compute in parallel."""
        costs = [
            [cost.at({SHARE: float(x)}) for cost, x in zip(layer_costs, row, strict=True)]
            for layer_costs, row in zip(self.of, parts, strict=True)
        ]
        return np.array([self.problem.together(row) for row in costs], dtype=np.float64)


def share_costs(problem: SplitProblem, k: int | None) -> ShareCosts:
    """Costs of shares. `k`: communication is multiplied by x^2k (Eqs. 13 and 14); None: it counts in full (Eqs. 7, 10).

    A device that cannot hold a unit of a layer, or run it, has no share in it, and costs nothing. The formula is that
    for the whole layer, even if there is another one for a share of fewer groups (ours: `largest_share_s`).
    """
    return ShareCosts(
        problem,
        tuple(
            tuple(
                _cost(problem, device, layer, k) if able else Posynomial(())
                for device, able in zip(problem.devices, layer_able, strict=True)
            )
            for layer, layer_able in zip(problem.layers, able_devices(problem), strict=True)
        ),
    )


def _cost(problem: SplitProblem, device: SplitDevice, layer: SplitLayer, k: int | None) -> Posynomial:
    seconds = largest_share_s(device, layer)
    assert seconds is not None, "an able device runs it"
    compute = of_share(seconds, layer)
    transfer = of_share(device.transfer_s, layer, 2.0 * (k or 0))
    if problem.objective == "energy":
        compute, transfer = compute.times(device.power_w), transfer.times(device.transfer_power_w)
    return Posynomial(tuple(term for term in compute.plus(transfer).terms if term.coefficient > 0))


@dataclass(frozen=True, slots=True)
class Condensed:
    """The sum of each layer's parts approximated by a monomial, factor × product of x^exponent (Eq. 5), which equals it
    at one point.

    `exponents` (layers, devices), `factors` (layers,): the product of e^-e, which Eq. 8 leaves out.
    """

    exponents: Floats
    factors: Floats

    def at(self, parts: Floats) -> Floats:
        """(layers,): never more than the sums, by the inequality of arithmetic and geometric means."""
        product: Floats = np.prod(parts**self.exponents, axis=1)
        return self.factors * product


def condensed(parts: Sequence[Sequence[float]] | Floats) -> Condensed:
    """Condense the problem at these parts (layers, devices), all above 0."""
    at = np.asarray(parts, dtype=np.float64)
    exponents = at / at.sum(axis=1, keepdims=True)
    factors: Floats = np.prod(exponents**-exponents, axis=1)
    return Condensed(exponents, factors)
