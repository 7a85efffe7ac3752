"""Limits of resources as posynomials of shares, and which of them cannot be met (GP, Eqs. 4, 10 and 14).

The paper prints one device for all layers; its Setup 2 has one for each layer: `SplitDevice.one_for_all` says which.
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
"""Of condensing again, in search of shares that meet the limits."""
_LEFT_OPEN: Final = 1e-4
"""Of a limit, by a solver."""
_NONE_AT_ALL: Final = 1e-30
"""Log space has no zero."""


@dataclass(frozen=True, slots=True)
class ResourceLimit:
    """`terms`, as multiples of `limit`, are together at most 1."""

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
    """All that shares can come up against."""
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
    """A line for each limit that is broken where all are broken least; none if all can be met.

    The programme with slack on each limit (>= 1, their sum minimised) and the condensed sums at least 1, condensed
    again at each solution. With more than one device that has limits this finds a least sum, maybe not *the* least.
    """
    limits = resource_limits(problem)
    limited = np.array([bool(device.limits) for device in problem.devices])
    parts = _sparing(problem, limited)
    if parts is None or any(limit.used(parts) > 1 for limit in limits):
        parts = _least_slack(problem, limits)
    return [limit.unmet(parts) for limit in limits if limit.used(parts) > 1 + _LEFT_OPEN]


def _sparing(problem: SplitProblem, limited: Bools) -> Floats | None:
    """(layers, devices): one unit for each device with limits, the rest for the others alike.

    None: a layer has no others.
    """
    able = able_devices(problem)
    sparing, free = limited & able, ~limited & able
    if not free.any(axis=1).all():
        return None
    units = np.array([[layer.units] for layer in problem.layers], dtype=np.float64)
    rest = (1 - sparing.sum(axis=1, keepdims=True) / units) / free.sum(axis=1, keepdims=True)
    return np.where(free, rest, np.where(sparing, 1 / units, NO_PART))


def balanced_parts(problem: SplitProblem) -> Floats:
    """(layers, devices): the same for all that can hold a unit."""
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
