"""Tightening (GP, section 4.2): the alphas are raised until the shares of each layer add up to the whole."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shisha_rt.arrays import Floats
from shisha_rt.papers.gp.geometric.condensation import ShareCosts, condensed
from shisha_rt.papers.gp.geometric.program import PenalisedProgram


@dataclass(frozen=True, slots=True)
class TighteningRule:
    """`step`: increment of each layer's alpha, as a fraction of its cost at the starting point. `tolerance`: of the sum
    of shares.
    """

    step: float = 1 / 64
    tolerance: float = 1e-3
    most_steps: int = 1500


@dataclass(frozen=True, slots=True)
class TighteningStep:
    """One solved program. `alpha` (layers,): in the unit of the costs; `shares` (layers, devices): units.

    `sums` (layers,): sums of shares; 1 is the whole. `cost`: the objective without the penalty.
    """

    alpha: tuple[float, ...]
    shares: tuple[tuple[float, ...], ...]
    sums: tuple[float, ...]
    cost: float


@dataclass(frozen=True, slots=True)
class Tightened:
    """`parts` (layers, devices): of the last step, whose sums are whole; None: no step had whole sums, see `reason`."""

    parts: Floats | None
    steps: tuple[TighteningStep, ...]
    reason: str | None = None


def tightened(costs: ShareCosts, program: PenalisedProgram, start: Floats, rule: TighteningRule) -> Tightened:
    """Tighten from a starting point (layers, devices). The alpha of a layer is not raised while its sum is whole."""
    sums = condensed(start)
    at_start = costs.of_layers(start)
    unit = rule.step * np.where(at_start > 0, at_start, 1.0)
    alpha = unit.copy()
    steps: list[TighteningStep] = []
    while len(steps) < rule.most_steps:
        solved = program.solve(alpha, sums)
        if solved.parts is None:
            return Tightened(None, tuple(steps), f"Clarabel says {solved.status} at step {len(steps) + 1}")
        steps.append(_step(costs, alpha, solved.parts))
        open_layers = solved.parts.sum(axis=1) < 1 - rule.tolerance
        if not open_layers.any():
            return Tightened(solved.parts, tuple(steps))
        alpha = alpha + unit * open_layers
    names = [layer.name for layer, is_open in zip(costs.problem.layers, open_layers, strict=True) if is_open]
    return Tightened(None, tuple(steps), f"after {len(steps)} steps layer {names[0]} is not whole")


def _step(costs: ShareCosts, alpha: Floats, parts: Floats) -> TighteningStep:
    units = np.array([[layer.units] for layer in costs.problem.layers])
    return TighteningStep(
        tuple(alpha.tolist()),
        tuple(tuple(row) for row in (parts * units).tolist()),
        tuple(parts.sum(axis=1).tolist()),
        float(costs.of_layers(parts).sum()),
    )
