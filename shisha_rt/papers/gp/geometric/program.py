"""The geometric program of a split (GP, Eqs. 6, 7, 9, 10, 14 and 15), which is solved for one alpha after another.

Its variables are the parts and, if devices compute in parallel (ours), the seconds of each layer, no less than any
device's. The alphas, and the factors and exponents of the condensed sums, are parameters, so that a step of the
tightening does not build the program again.

The sign in the text around Eqs. 6, 8 and 9 is wrong: the penalty is the condensed sum's inverse.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shisha_rt.arrays import Floats
from shisha_rt.papers.gp.geometric.condensation import Condensed, ShareCosts
from shisha_rt.papers.gp.geometric.convex import ShareVariables, is_solved, solver, status_of
from shisha_rt.papers.gp.geometric.limits import resource_limits


@dataclass(frozen=True, slots=True)
class SolvedProgram:
    """`parts` (layers, devices); None: the solver found none. `status`: the solver's."""

    parts: Floats | None
    status: str


class PenalisedProgram:
    """The program of Eq. 6. Raises BadInput if cvxpy or Clarabel is not installed."""

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

    def solve(self, alpha: Floats, sums: Condensed) -> SolvedProgram:
        """`alpha` (layers,), in the unit of the costs."""
        self._log_weights.value = np.log(alpha / sums.factors)
        self._parts.raise_to(-sums.exponents)
        status = status_of(self._cvxpy, self._program)
        return SolvedProgram(self._parts.values if is_solved(self._cvxpy, status) else None, status)
