"""The convex form of the geometric programs of a split, for cvxpy and Clarabel (the extra `solve`).

With z = log x a monomial is linear and a posynomial is a `log_sum_exp`. cvxpy's own geometric mode does the same, but
writes sums out term by term: building the program of 20 layers on three devices takes 1.5 to 2.5 s there, and 0.15 s
with vectors.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from shisha_rt.arrays import Floats
from shisha_rt.errors import BadInput, Error
from shisha_rt.papers.gp.geometric.condensation import SHARE
from shisha_rt.papers.gp.posynomial import Posynomial
from shisha_rt.papers.gp.problem import SplitProblem, able_devices

_STEEP: Final = 8
"""Terms of a larger power are bounded from below (see `log_monomials`)."""
NO_PART: Final = 1e-6
"""Fraction of a layer that stands for no share, as logarithms have no zero."""
_NEXT_TO_NOTHING: Final = 1e-6
"""Lower limit of a steep term, as a fraction of its value at x = 1."""

Term = tuple[int, int, Posynomial]
"""A layer, a device, and the cost or resource use of its part."""


def solver() -> Any:
    """The module cvxpy. Raises BadInput if it or Clarabel is not installed."""
    try:
        import clarabel  # type: ignore[import-untyped]  # noqa: F401
        import cvxpy
    except ImportError as error:
        missing = error.name or "cvxpy"
        raise BadInput(
            f"geometric: {missing} is missing, expected the extra: pip install 'shisha-rt[solve]'", Error.EXTRA_MISSING
        ) from None
    return cvxpy


class ShareVariables:
    """The variables: log x of each layer and device, x being the device's fraction of the layer.

    x is from one unit to the whole layer, as logarithms have no zero; `NO_PART` for a device that cannot hold a unit.
    """

    def __init__(self, cvxpy: Any, problem: SplitProblem) -> None:
        self._cvxpy = cvxpy
        self._shape = len(problem.layers), len(problem.devices)
        self._log = cvxpy.Variable(self._shape[0] * self._shape[1])
        self._exponents = cvxpy.Parameter((self._shape[0], self._shape[0] * self._shape[1]))
        able = able_devices(problem)
        least = np.where(able, [[1 / layer.units] for layer in problem.layers], NO_PART).ravel()
        most = np.where(able, 1.0, NO_PART).ravel()
        self.constraints: list[Any] = [self._log >= np.log(least), self._log <= np.log(most)]

    @property
    def values(self) -> Floats:
        """(layers, devices): x."""
        values: Floats = np.exp(np.asarray(self._log.value, dtype=np.float64)).reshape(self._shape)
        return values

    @property
    def log_sums(self) -> Any:
        """(layers,): logarithms of the sums of parts."""
        return self._cvxpy.log_sum_exp(self._cvxpy.reshape(self._log, self._shape, order="C"), axis=1)

    @property
    def log_products(self) -> Any:
        """(layers,): logarithms of the products of parts, raised to the powers last given to `raise_to`."""
        return self._exponents @ self._log

    def raise_to(self, exponents: Floats) -> None:
        """Set the `exponents` (layers, devices) of `log_products`."""
        layers, devices = self._shape
        wide = np.zeros((layers, layers, devices))
        wide[np.arange(layers), np.arange(layers)] = exponents
        self._exponents.value = wide.reshape(layers, -1)

    def log_totals(self, posynomials: Sequence[Sequence[Term]]) -> Any:
        """Logarithms of the sums of terms. No sum may be empty, as zero is no posynomial."""
        sizes = np.array([sum(len(posynomial.terms) for _, _, posynomial in terms) for terms in posynomials])
        logs = self.log_monomials([term for terms in posynomials for term in terms])
        first = np.cumsum(sizes) - sizes
        groups_of_size, rows = [], []
        for size in np.unique(sizes):
            members = np.flatnonzero(sizes == size)
            columns = (first[members, None] + np.arange(size)).ravel()
            same_size = self._cvxpy.reshape(logs[columns], (len(members), int(size)), order="C")
            groups_of_size.append(self._cvxpy.log_sum_exp(same_size, axis=1))
            rows.append(members)
        return self._cvxpy.hstack(groups_of_size)[np.argsort(np.concatenate(rows))]

    def log_monomials(self, terms: Sequence[Term]) -> Any:
        """Logarithms of all monomials of the terms, in their order. If any is steep, all become variables.

        x^200 falls below e^-1000, where interior-point methods fail. So the variable of a steep monomial is kept above
        a millionth of the monomial's value at x = 1.
        """
        flat = [
            (layer * self._shape[1] + device, monomial.exponents.get(SHARE, 0.0), math.log(monomial.coefficient))
            for layer, device, posynomial in terms
            for monomial in posynomial.terms
        ]
        columns, powers, logs = (np.array(part) for part in zip(*flat, strict=True))
        exact = self._cvxpy.multiply(powers, self._log[columns.astype(int)]) + logs
        steep = np.flatnonzero(powers > _STEEP)
        if not len(steep):
            return exact
        no_less = self._cvxpy.Variable(len(flat))
        self.constraints += [no_less >= exact, no_less[steep] >= logs[steep] + math.log(_NEXT_TO_NOTHING)]
        return no_less


def status_of(cvxpy: Any, program: Any) -> str:
    """Solve the program; return the solver's status, or the first line of its error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            program.solve(solver=cvxpy.CLARABEL)
        except cvxpy.error.SolverError as error:
            return str(error).splitlines()[0]
    return str(program.status)


def is_solved(cvxpy: Any, status: str) -> bool:
    return status in (cvxpy.OPTIMAL, cvxpy.OPTIMAL_INACCURATE)
