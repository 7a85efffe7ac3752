"""Fits of monomials and posynomials to measured times: what geometric programs know of a real engine or link.

A monomial is a straight line in logarithms, fitted by least squares there (GP, section 3). A posynomial has given
exponents, and coefficients of 0 or more: non-negative least squares, of errors relative to what was measured. Errors
are told on points that were held out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from shisha_rt.errors import BadInput, Error
from shisha_rt.papers.gp.posynomial import Monomial, Posynomial

Floats: TypeAlias = npt.NDArray[np.float64]

HELD_OUT: Final = 0.2
"""The share of the points that errors are told on."""

CONVOLUTION_TERMS: Final[tuple[Mapping[str, float], ...]] = (
    {},
    {"H": 1, "W": 1, "C": 1, "k": 2, "N": 1},
    {"H": 1, "W": 1, "C": 1, "k": 2},
    {"H": 1, "W": 1, "k": 2, "N": 1},
    {"H": 1, "W": 1, "C": 1, "s": 2},
    {"H": 1, "W": 1, "N": 1},
    {"H": 1, "W": 1},
    {"C": 1, "k": 2, "N": 1},
    {"H": 1, "W": 1, "C": 1, "k": 1, "N": 1},
    {"H": 1, "C": 1, "k": 2, "N": 1},
    {"H": 1.3, "W": 1.3, "C": 1.3, "s": 2.6},
    {"H": 1.3, "W": 1.3, "N": 1.3},
    {"C": 1.3, "k": 2.6, "N": 1.3},
)
"""A call; multiply-adds; what channels and filters are rounded up by; what is read and made; positions; weights; what
is done for each row of a kernel, and for each row of the output; and what is read, made and weighs more than in
proportion, as caches end (with it, errors on both engines of this host were less by a seventh and a quarter)."""

_ROUNDS: Final = 10
_ENOUGH: Final = 1e-10


@dataclass(frozen=True, slots=True)
class Sample:
    """A value (seconds, joules, ...) that was measured at these features."""

    features: Mapping[str, float]
    value: float


@dataclass(frozen=True, slots=True)
class Errors:
    """|fitted / measured - 1|: of half of the points, and of 90% of them, it is no more than this."""

    median: float
    most: float


@dataclass(frozen=True, slots=True)
class Fit:
    """`points`: how many it was fitted to, beside those held out that `errors` are of."""

    posynomial: Posynomial
    points: int
    held_out: int
    errors: Errors


def fit_monomial(samples: Sequence[Sample], names: Sequence[str], seed: int) -> Fit:
    """Fit a monomial in the features `names`; a feature that is the same in all points is left out.

    `seed` chooses the points that are held out. Raises BadInput for too few points, or numbers that are not above 0.
    """
    fitted, held_out = _parted(samples, names, len(names) + 1, seed)
    logs = np.log(_columns(fitted, names))
    varying = [index for index in range(len(names)) if np.ptp(logs[:, index]) > 0]
    unknowns = np.column_stack([np.ones(len(fitted)), logs[:, varying]])
    solution, *_ = np.linalg.lstsq(unknowns, np.log(_values(fitted)), rcond=None)
    exponents = {names[index]: float(power) for index, power in zip(varying, solution[1:], strict=True)}
    return _fit(Posynomial((Monomial(math.exp(solution[0]), exponents),)), fitted, held_out)


def fit_posynomial(samples: Sequence[Sample], terms: Sequence[Mapping[str, float]], seed: int) -> Fit:
    """A sum of some of `terms`, each the exponents of one; `seed` and errors as in `fit_monomial`.

    The errors that are squared are (fitted - measured) over the geometric mean of both, by weighing anew: of errors
    relative to what was measured alone, the least squares are too short, as none can be below -1.
    """
    names = tuple(dict.fromkeys(name for term in terms for name in term))
    fitted, held_out = _parted(samples, names, len(terms), seed)
    sizes = np.column_stack([_term_values(fitted, term) for term in terms])
    values = _values(fitted)
    weights = 1 / values
    for _ in range(_ROUNDS):
        solution = non_negative_least_squares(sizes * weights[:, None], values * weights)
        weights = 1 / np.sqrt(values * (sizes @ solution))
    kept = zip(solution, terms, strict=True)
    terms_kept = tuple(Monomial(float(factor), dict(exponents)) for factor, exponents in kept if factor > 0)
    return _fit(Posynomial(terms_kept), fitted, held_out)


def errors_of(posynomial: Posynomial, samples: Sequence[Sample]) -> Errors:
    off = [abs(posynomial.at(sample.features) / sample.value - 1) for sample in samples]
    return Errors(float(np.median(off)), float(np.quantile(off, 0.9)))


def non_negative_least_squares(matrix: Floats, target: Floats) -> Floats:
    """The x >= 0 (columns,) with the least |matrix x - target| (Lawson and Hanson, 1974, chapter 23)."""
    norms = np.linalg.norm(matrix, axis=0)
    scaled = matrix / np.where(norms > 0, norms, 1.0)
    solution = np.zeros(matrix.shape[1])
    free = np.zeros(matrix.shape[1], dtype=bool)
    while not free.all():
        descent = scaled.T @ (target - scaled @ solution)
        descent[free] = -math.inf
        best = int(np.argmax(descent))
        if descent[best] <= _ENOUGH * float(np.linalg.norm(target)):
            break
        free[best] = True
        if not _solve_free(scaled, target, free, solution):
            free[best] = False  # rounding alone: it would step back at once, for ever
            break
    return solution / np.where(norms > 0, norms, 1.0)


def _solve_free(matrix: Floats, target: Floats, free: npt.NDArray[np.bool_], solution: Floats) -> bool:
    """Move `solution` to the best of the free columns, giving up those that would be negative; whether it moved."""
    before = solution.copy()
    while True:
        wanted = np.zeros_like(solution)
        wanted[free], *_ = np.linalg.lstsq(matrix[:, free], target, rcond=None)
        negative = free & (wanted <= 0)
        if not negative.any():
            solution[:] = wanted
            return not np.array_equal(solution, before)
        step = float(np.min(solution[negative] / (solution[negative] - wanted[negative] + 1e-300)))
        solution += step * (wanted - solution)
        free &= solution > _ENOUGH * float(solution.max(initial=0.0))
        solution[~free] = 0.0


def _parted(
    samples: Sequence[Sample], names: Sequence[str], unknowns: int, seed: int
) -> tuple[list[Sample], list[Sample]]:
    """Those to fit and those to hold out, of points that are good."""
    for index, sample in enumerate(samples):
        for name in names:
            if name not in sample.features:
                raise BadInput(f"point {index}: {name} is missing, expected {', '.join(names)}", Error.WRONG_VALUE)
        for name, number in {**{name: sample.features[name] for name in names}, "value": sample.value}.items():
            if not 0 < number < math.inf:
                raise BadInput(f"point {index}: {name} = {number:g}, expected a number > 0", Error.WRONG_VALUE)
    held_out = max(1, round(HELD_OUT * len(samples)))
    if len(samples) - held_out < unknowns:
        least = next(n for n in range(unknowns + 1, 2 * unknowns + 3) if n - max(1, round(HELD_OUT * n)) >= unknowns)
        raise BadInput(
            f"{len(samples)} points for {unknowns} unknowns, of which {HELD_OUT:.0%} are held out: "
            f"expected {least} or more",
            Error.WRONG_VALUE,
        )
    generator = Random(seed)
    order = generator.sample(samples, len(samples))
    return order[held_out:], order[:held_out]


def _fit(posynomial: Posynomial, fitted: Sequence[Sample], held_out: Sequence[Sample]) -> Fit:
    return Fit(posynomial, len(fitted), len(held_out), errors_of(posynomial, held_out))


def _columns(samples: Sequence[Sample], names: Sequence[str]) -> Floats:
    return np.array([[sample.features[name] for name in names] for sample in samples], dtype=np.float64)


def _values(samples: Sequence[Sample]) -> Floats:
    return np.array([sample.value for sample in samples], dtype=np.float64)


def _term_values(samples: Sequence[Sample], term: Mapping[str, float]) -> Floats:
    monomial = Monomial(1.0, term)
    return np.array([monomial.at(sample.features) for sample in samples], dtype=np.float64)
