"""Limits of resources as posynomials of shares, and which of them cannot be met (GP, Eqs. 4, 10 and 14).

In the paper's equations one device serves all layers; in its Setup 2 each layer has a device of its own.
`SplitDevice.one_for_all` chooses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from shisha_rt.arrays import Bools, Floats
from shisha_rt.papers.gp.geometric.condensation import SHARE, condensed, of_share
from shisha_rt.papers.gp.geometric.convex import NO_PART, ShareVariables, Term, is_solved, solver, status_of
from shisha_rt.papers.gp.problem import SplitDevice, SplitProblem, able_devices

_ROUNDS: Final = 30
"""Most rounds of condensing again, in search of shares that meet the limits."""
_LEFT_OPEN: Final = 1e-4
"""Relative tolerance of limits, for the solver's inaccuracy."""
_NONE_AT_ALL: Final = 1e-30
"""Stands for 0, which has no logarithm and cannot divide."""


@dataclass(frozen=True, slots=True)
class ResourceLimit:
    """The sum of `terms`, which are multiples of `limit`, must be at most 1."""

    device: str
    what: str
    name: str
    limit: float
    terms: tuple[Term, ...]

    def used(self, parts: Floats) -> float:
        """Use of a resource as a multiple of its limit, for parts (layers, devices)."""
        return math.fsum(term.at({SHARE: float(parts[layer, device])}) for layer, device, term in self.terms)

    def unmet(self, parts: Floats) -> str:
        needed = self.used(parts) * max(self.limit, _NONE_AT_ALL)
        return f"{self.device}: {self.what} would need {needed:.6g} {self.name}, it has {self.limit:.6g}"


def resource_limits(problem: SplitProblem) -> list[ResourceLimit]:
    """All limits that shares can exceed."""
    return [
        ResourceLimit(device.name, what, name, limit, terms)
        for index, device in enumerate(problem.devices)
        for name, limit in device.limits.items()
        for what, terms in _taken(problem, index, device, name, 1 / max(limit, _NONE_AT_ALL))
        if any(posynomial.terms for _, _, posynomial in terms)
    ]


def _taken(
    problem: SplitProblem, index: int, device: SplitDevice, name: str, unit: float
) -> list[tuple[str, tuple[Term, ...]]]:
    terms = tuple(
        (number, index, of_share(device.resources[name], layer).times(unit))
        for number, (layer, able) in enumerate(zip(problem.layers, able_devices(problem)[:, index], strict=True))
        if able
    )
    if device.one_for_all:
        return [("all layers", terms)]
    return [(f"layer {problem.layers[term[0]].name}", (term,)) for term in terms]


def unmet_limits(problem: SplitProblem) -> list[str]:
    """A line for each limit that is exceeded by the shares of the least total excess; none if all can be met.

    The program has a slack (>= 1) on each limit, minimises their sum, and requires condensed sums of at least 1; it is
    condensed again at each solution. With several devices with limits the least sum may be local.
    """
    limits = resource_limits(problem)
    limited = np.array([bool(device.limits) for device in problem.devices])
    parts = _sparing(problem, limited)
    if parts is None or any(limit.used(parts) > 1 for limit in limits):
        parts = _least_slack(problem, limits)
    return [limit.unmet(parts) for limit in limits if limit.used(parts) > 1 + _LEFT_OPEN]


def _sparing(problem: SplitProblem, limited: Bools) -> Floats | None:
    """(layers, devices): one unit for each device with limits, the rest in equal parts for the others.

    None: no device without limits can run some layer.
    """
    able = able_devices(problem)
    sparing, free = limited & able, ~limited & able
    if not free.any(axis=1).all():
        return None
    units = np.array([[layer.units] for layer in problem.layers], dtype=np.float64)
    rest = (1 - sparing.sum(axis=1, keepdims=True) / units) / free.sum(axis=1, keepdims=True)
    return np.where(free, rest, np.where(sparing, 1 / units, NO_PART))


def balanced_parts(problem: SplitProblem) -> Floats:
    """(layers, devices): equal parts for all devices that can hold a unit."""
    able = able_devices(problem)
    return np.where(able, 1 / np.maximum(1, able.sum(axis=1, keepdims=True)), NO_PART)


def _least_slack(problem: SplitProblem, limits: list[ResourceLimit]) -> Floats:
    cvxpy = solver()
    parts, log_slack = ShareVariables(cvxpy, problem), cvxpy.Variable(len(limits))
    log_factors = cvxpy.Parameter(len(problem.layers))
    constraints = [
        log_slack >= 0,
        parts.log_totals([limit.terms for limit in limits]) <= log_slack,
        log_factors + parts.log_products >= 0,
    ]
    program = cvxpy.Problem(cvxpy.Minimize(cvxpy.log_sum_exp(log_slack)), constraints + parts.constraints)
    at = balanced_parts(problem)
    broken = math.inf
    for _ in range(_ROUNDS):
        sums = condensed(at)
        log_factors.value = np.log(sums.factors)
        parts.raise_to(sums.exponents)
        if not is_solved(cvxpy, status_of(cvxpy, program)):
            break
        at = parts.values
        before, broken = broken, math.fsum(max(0.0, limit.used(at) - 1) for limit in limits)
        if broken <= _LEFT_OPEN or broken > before * (1 - _LEFT_OPEN):
            break
    return at
