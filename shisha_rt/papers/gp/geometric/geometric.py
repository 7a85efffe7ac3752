"""The split of layers by geometric programs (GP, 2023): condense, tighten, round.

With costs in proportion to shares, in sequence, the answer is the split in proportion to speed, whatever the best split
is. Example: 16 channels cost 7 each on one device and 1 each on the other: the answer costs 28, but 15 to 1 costs 22.
Condensing again at each solution (ours) finds the latter. A layer is never on one device alone, as shares are at least
one unit; only a device that cannot hold a unit is left out (ours).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from shisha_rt.arrays import Floats
from shisha_rt.outcome import Outcome
from shisha_rt.papers.gp.geometric.condensation import Condensed, ShareCosts, condensed, share_costs
from shisha_rt.papers.gp.geometric.convex import ShareVariables, is_solved, solver, status_of
from shisha_rt.papers.gp.geometric.limits import balanced_parts, resource_limits, unmet_limits
from shisha_rt.papers.gp.geometric.rounding import Rounded, best_rounding
from shisha_rt.papers.gp.problem import SplitProblem, able_devices, too_little_room

FULL_NETWORK_K: Final = 100
"""The paper's k for layers that may be fused (Eq. 14)."""
_MOST_ROUNDS: Final = 50


@dataclass(frozen=True, slots=True)
class TighteningRule:
    """`step`: increment of a layer's alpha, relative to its cost at the start. `tolerance`: of the sum of shares."""

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
class GeometricSplit:
    """`real` (layers, devices): units before rounding; `rounded`: the best of all roundings up and down.

    Nothing is proven to be the best, so the best outcome is FEASIBLE. INFEASIBLE: no real shares meet the limits, which
    `reason` names. LIMIT: the solver failed, the tightening did not end, or rounding exceeded limits. `steps`: of all
    `rounds` of condensation.
    """

    outcome: Outcome
    real: tuple[tuple[float, ...], ...] | None = None
    rounded: Rounded | None = None
    steps: tuple[TighteningStep, ...] = ()
    rounds: int = 0
    reason: str | None = None


def geometric_split(
    problem: SplitProblem,
    k: int | None = None,
    *,
    again: bool = False,
    rule: TighteningRule | None = None,
) -> GeometricSplit:
    """Solve Eqs. 7 to 9 for one layer, Eqs. 10, 14 (`k`) and 15 for a network, from equal shares.

    `again`: condense again at each solution, until it no longer changes. Raises BadInput if cvxpy is not installed.
    """
    rule = rule or TighteningRule()
    if (reason := _why_infeasible(problem)) is not None:
        return GeometricSplit(Outcome.INFEASIBLE, reason=reason)
    costs = share_costs(problem, k)
    program = PenalisedProgram(costs)
    at = balanced_parts(problem)
    steps: tuple[TighteningStep, ...] = ()
    moved = False
    for number in range(_MOST_ROUNDS if again else 1):  # noqa: B007 (the last is counted below)
        answer = _tightened(costs, program, at, rule)
        steps += answer.steps
        if answer.parts is None:
            break
        moved = True
        before, at = at, answer.parts / answer.parts.sum(axis=1, keepdims=True)
        if np.abs(at - before).max() <= rule.tolerance:
            break
    if not moved:
        return GeometricSplit(Outcome.LIMIT, steps=steps, reason=answer.reason)
    units = np.array([[layer.units] for layer in problem.layers])
    real = tuple(tuple(row) for row in (at * units).tolist())
    rounded = best_rounding(problem, real)
    outcome = Outcome.LIMIT if rounded.faults else Outcome.FEASIBLE
    return GeometricSplit(outcome, real, rounded, steps, number + 1, "; ".join(rounded.faults) or answer.reason)


def _why_infeasible(problem: SplitProblem) -> str | None:
    for layer, able in zip(problem.layers, able_devices(problem).sum(axis=1).tolist(), strict=True):
        if layer.units < able:
            return f"layer {layer.name}: {layer.units} units, expected one for each of {able} devices"
        if not able:
            return too_little_room(problem, layer, [{}] * len(problem.devices))
    return "; ".join(unmet_limits(problem)) or None


@dataclass(frozen=True, slots=True)
class _Tightened:
    """`parts` (layers, devices): of the last step, whose sums are whole; None: no step had whole sums, see `reason`."""

    parts: Floats | None
    steps: tuple[TighteningStep, ...]
    reason: str | None = None


def _tightened(costs: ShareCosts, program: PenalisedProgram, start: Floats, rule: TighteningRule) -> _Tightened:
    """Raise the alphas from a starting point (layers, devices) until the shares of each layer add up to the whole
    (section 4.2). The alpha of a layer is not raised while its sum is whole.
    """
    sums = condensed(start)
    at_start = costs.of_layers(start)
    unit = rule.step * np.where(at_start > 0, at_start, 1.0)
    alpha = unit.copy()
    steps: list[TighteningStep] = []
    while len(steps) < rule.most_steps:
        parts, status = program.solve(alpha, sums)
        if parts is None:
            return _Tightened(None, tuple(steps), f"Clarabel says {status} at step {len(steps) + 1}")
        steps.append(_step(costs, alpha, parts))
        open_layers = parts.sum(axis=1) < 1 - rule.tolerance
        if not open_layers.any():
            return _Tightened(parts, tuple(steps))
        alpha = alpha + unit * open_layers
    names = [layer.name for layer, is_open in zip(costs.problem.layers, open_layers, strict=True) if is_open]
    return _Tightened(None, tuple(steps), f"after {len(steps)} steps layer {names[0]} is not whole")


def _step(costs: ShareCosts, alpha: Floats, parts: Floats) -> TighteningStep:
    units = np.array([[layer.units] for layer in costs.problem.layers])
    return TighteningStep(
        tuple(alpha.tolist()),
        tuple(tuple(row) for row in (parts * units).tolist()),
        tuple(parts.sum(axis=1).tolist()),
        float(costs.of_layers(parts).sum()),
    )


class PenalisedProgram:
    """The geometric program of a split (Eqs. 6, 7, 9, 10, 14 and 15), which is solved for one alpha after another.

    Its variables are the parts and, if devices compute in parallel (ours), the seconds of each layer, no less than any
    device's. The alphas, and the factors and exponents of the condensed sums, are parameters, so that a step of the
    tightening does not build the program again.

    The sign in the text around Eqs. 6, 8 and 9 is wrong: the penalty is the condensed sum's inverse. Raises BadInput if
    cvxpy or Clarabel is not installed.
    """

    def __init__(self, costs: ShareCosts) -> None:
        self._cvxpy = cvxpy = solver()
        problem = costs.problem
        self._parts = parts = ShareVariables(cvxpy, problem)
        self._log_weights = cvxpy.Parameter(len(problem.layers))
        objective = [self._log_weights + parts.log_products]
        constraints = [parts.log_sums <= 0]
        if limits := resource_limits(problem):
            constraints.append(parts.log_totals([limit.terms for limit in limits]) <= 0)
        terms = [
            (layer, device, cost)
            for layer, device_costs in enumerate(costs.of)
            for device, cost in enumerate(device_costs)
            if cost.terms
        ]
        if problem.adding == "parallel" and terms:
            layers = sorted({layer for layer, _, _ in terms})
            log_seconds = cvxpy.Variable(len(layers))
            its_layer = [layers.index(layer) for layer, _, _ in terms]
            constraints.append(parts.log_totals([[term] for term in terms]) <= log_seconds[its_layer])
            objective.append(log_seconds)
        elif terms:
            objective.append(parts.log_monomials(terms))
        least = cvxpy.Minimize(cvxpy.log_sum_exp(cvxpy.hstack(objective)))
        self._program = cvxpy.Problem(least, constraints + parts.constraints)

    def solve(self, alpha: Floats, sums: Condensed) -> tuple[Floats | None, str]:
        """The parts (layers, devices), None if none were found, and the status. `alpha` (layers,): in units of cost."""
        self._log_weights.value = np.log(alpha / sums.factors)
        self._parts.raise_to(-sums.exponents)
        status = status_of(self._cvxpy, self._program)
        return self._parts.values if is_solved(self._cvxpy, status) else None, status
