"""Fits of monomials and posynomials to measured times, which model a real engine or link in geometric programs.

A monomial is a straight line in logarithms, fitted by least squares there (GP, section 3). A posynomial has given
exponents, and coefficients of 0 or more: non-negative least squares of relative errors. Errors are computed on points
that were held out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

import numpy as np

from shisha_rt.arrays import Floats
from shisha_rt.errors import BadInput, Error
from shisha_rt.papers.gp.posynomial import Monomial, Posynomial

HELD_OUT: Final = 0.2
"""The fraction of points that are held out, on which errors are computed."""

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
"""In order: a call; multiply-adds; rounding up of filters, of channels; inputs; outputs; positions; weights; work for
each row of a kernel, and for each row of the output; and inputs, outputs and weights beyond proportion, as caches are
exceeded (these terms reduced errors on both engines of this host by a seventh and a quarter)."""

_ROUNDS: Final = 10


@dataclass(frozen=True, slots=True)
class Sample:
    """A value (seconds, joules, ...) that was measured at these features."""

    features: Mapping[str, float]
    value: float


@dataclass(frozen=True, slots=True)
class Errors:
    """|fitted / measured - 1|: `median`, and `most`, the 90th percentile."""

    median: float
    most: float


@dataclass(frozen=True, slots=True)
class Fit:
    """`points`: how many it was fitted to. `errors`: on the `held_out` other points."""

    posynomial: Posynomial
    points: int
    held_out: int
    errors: Errors


def fit_monomial(samples: Sequence[Sample], names: Sequence[str], seed: int) -> Fit:
    """Fit a monomial in the features `names`; a feature that is the same in all points is left out.

    `seed` chooses the points that are held out. Raises BadInput for too few points, or numbers that are not positive.
    """
    fitted, held_out = _parted(samples, names, len(names) + 1, seed)
    logs = np.log(_columns(fitted, names))
    varying = [index for index in range(len(names)) if np.ptp(logs[:, index]) > 0]
    unknowns = np.column_stack([np.ones(len(fitted)), logs[:, varying]])
    solution, *_ = np.linalg.lstsq(unknowns, np.log(_values(fitted)), rcond=None)
    exponents = {names[index]: float(power) for index, power in zip(varying, solution[1:], strict=True)}
    return _fit(Posynomial((Monomial(math.exp(solution[0]), exponents),)), fitted, held_out)


def fit_posynomial(samples: Sequence[Sample], terms: Sequence[Mapping[str, float]], seed: int) -> Fit:
    """Fit a sum of some of `terms`, each given by its exponents; `seed` and errors as in `fit_monomial`. Needs scipy.

    Iteratively reweighted least squares of (fitted - measured) over the geometric mean of both. Errors relative to the
    measured value alone, which cannot be below -1, would bias the fit towards too small values.
    """
    names = tuple(dict.fromkeys(name for term in terms for name in term))
    fitted, held_out = _parted(samples, names, len(terms), seed)
    sizes = np.column_stack([_term_values(fitted, term) for term in terms])
    values = _values(fitted)
    weights = 1 / values
    for _ in range(_ROUNDS):
        solution = _non_negative(sizes * weights[:, None], values * weights)
        weights = 1 / np.sqrt(values * (sizes @ solution))
    kept = zip(solution, terms, strict=True)
    terms_kept = tuple(Monomial(float(factor), dict(exponents)) for factor, exponents in kept if factor > 0)
    return _fit(Posynomial(terms_kept), fitted, held_out)


def errors_of(posynomial: Posynomial, samples: Sequence[Sample]) -> Errors:
    off = [abs(posynomial.at(sample.features) / sample.value - 1) for sample in samples]
    return Errors(float(np.median(off)), float(np.quantile(off, 0.9)))


def _non_negative(matrix: Floats, target: Floats) -> Floats:
    """The x >= 0 (columns,) of the least |matrix x - target|, with columns scaled alike."""
    try:
        from scipy.optimize import nnls
    except ImportError:
        raise BadInput(
            "fit: scipy is missing, expected the extra: pip install 'shisha-rt[solve]'", Error.EXTRA_MISSING
        ) from None

    norms = np.linalg.norm(matrix, axis=0)
    norms[norms == 0] = 1.0
    solution, _ = nnls(matrix / norms, target)
    return np.asarray(solution / norms, dtype=np.float64)


def _parted(
    samples: Sequence[Sample], names: Sequence[str], unknowns: int, seed: int
) -> tuple[list[Sample], list[Sample]]:
    """Check the points; return those to fit and those to hold out."""
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
