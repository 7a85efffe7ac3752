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

from shisha_rt.outcome import Outcome
from shisha_rt.papers.gp.geometric.condensation import share_costs
from shisha_rt.papers.gp.geometric.limits import balanced_parts, unmet_limits
from shisha_rt.papers.gp.geometric.program import PenalisedProgram
from shisha_rt.papers.gp.geometric.rounding import Rounded, best_rounding
from shisha_rt.papers.gp.geometric.tightening import TighteningRule, TighteningStep, tightened
from shisha_rt.papers.gp.problem import SplitProblem, able_devices
from shisha_rt.papers.gp.room import too_little_room

FULL_NETWORK_K: Final = 100
"""The paper's k for layers that may be fused (Eq. 14)."""
_MOST_ROUNDS: Final = 50


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
    for layer, able in zip(problem.layers, able_devices(problem).sum(axis=1).tolist(), strict=True):
        if layer.units < able:
            reason = f"layer {layer.name}: {layer.units} units, expected one for each of {able} devices"
            return GeometricSplit(Outcome.INFEASIBLE, reason=reason)
        if not able:
            reason = too_little_room(problem, layer, [{}] * len(problem.devices))
            return GeometricSplit(Outcome.INFEASIBLE, reason=reason)
    if unmet := unmet_limits(problem):
        return GeometricSplit(Outcome.INFEASIBLE, reason="; ".join(unmet))
    costs = share_costs(problem, k)
    program = PenalisedProgram(costs)
    at = balanced_parts(problem)
    steps: tuple[TighteningStep, ...] = ()
    moved = False
    for number in range(_MOST_ROUNDS if again else 1):  # noqa: B007 (the last is counted below)
        answer = tightened(costs, program, at, rule)
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
