"""Layers' times on a place, estimated from the times of whole stages: a Gaussian belief, conditioned exactly.

Before any measurement, a layer's time is its predicted time, times a factor that all layers of the place share, times a
factor of its own: means c, covariances p^2 c c' + l^2 diag(c^2), with scales p and l. A stage's time is the sum of its
layers' times, with an error of measurement. Its deviation from the prediction is divided among its layers and, by the
shared factor, layers that have not run there. The remaining uncertainty stays in the deviations.

How wrong predictions are is not known either. So several scales are tried, and those under which the measurements are
likeliest are used: costs that prove right are soon trusted, others are not.

All is kept as sums over the layers before a position (0 to the number of layers): a stage is the difference of two
such sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final, NamedTuple

import numpy as np

from shisha_rt.arrays import Floats, Ints, sums_before


class Scales(NamedTuple):
    """Relative standard deviations: of the factor that a place's layers share, and of each layer's own."""

    place: float
    layer: float


SCALES: Final = tuple(Scales(place, layer) for place, layer in product((0.01, 0.03, 0.1, 0.3), repeat=2))
"""The least suit predictions that were measured at another time, the greatest those by a formula."""


class Sighting(NamedTuple):
    """Layers `first` up to and without `end` took `time_s` in all, with a standard error of `error_s` > 0."""

    first: int
    end: int
    time_s: float
    error_s: float


@dataclass(frozen=True, slots=True, eq=False)
class Belief:
    """Belief about the layer times of one place. `told_s` (layers,): predicted seconds, 0 for layers that cannot run.

    `mean_s` (layers,): believed seconds. `explained_s` (sightings, positions): the part of the uncertainty of the
    layers before each position that the sightings explain, in independent components.
    """

    told_s: Floats
    scales: Scales
    mean_s: Floats
    explained_s: Floats

    def deviation_s(self, positions: Ints) -> Floats:
        """(positions, positions): standard deviation of the time of the layers between two positions."""
        covariance_s2 = _covariance_s2(self.told_s, self.scales, positions, positions[:, None])
        explained_s = self.explained_s[:, positions]
        covariance_s2 -= explained_s.T @ explained_s
        variance_s2 = np.diag(covariance_s2)
        return np.sqrt(np.maximum(0.0, variance_s2 + variance_s2[:, None] - 2 * covariance_s2))


def likeliest(told_s: Sequence[Floats], seen: Sequence[Sequence[Sighting]]) -> list[Belief]:
    """One belief for each pair of `told_s` and `seen`, with the scales that are likeliest for all of them.

    Trust has to be earned: the prior of a layer's scale is proportional to the scale.
    """
    likelihoods = np.log([scales.layer for scales in SCALES])
    for predicted, sightings in zip(told_s, seen, strict=True):
        likelihoods += log_likelihoods(predicted, sightings)
    scales = SCALES[int(likelihoods.argmax())]
    return [believe(predicted, sightings, scales) for predicted, sightings in zip(told_s, seen, strict=True)]


def believe(told_s: Floats, seen: Sequence[Sighting], scales: Scales) -> Belief:
    """Gaussian conditioning, by the Cholesky factor of the sightings' covariance (Rasmussen and Williams, Alg. 2.1)."""
    if not seen:
        return Belief(told_s, scales, told_s, np.zeros((0, len(told_s) + 1)))
    layers_s, off_s, error_s = _columns(told_s, seen)
    stages_s = layers_s.sum(axis=1)
    own_s2 = scales.layer**2 * np.cumsum(np.pad(layers_s**2, ((0, 0), (1, 0))), axis=1)
    covariance_s2 = scales.place**2 * np.outer(stages_s, sums_before(told_s)) + own_s2
    among_s2 = scales.place**2 * np.outer(stages_s, stages_s) + scales.layer**2 * layers_s @ layers_s.T
    factor_s = np.linalg.cholesky(among_s2 + np.diag(error_s**2))
    explained_s = np.linalg.solve(factor_s, covariance_s2)
    surprise = np.linalg.solve(factor_s, off_s)
    return Belief(told_s, scales, told_s + np.diff(surprise @ explained_s), explained_s)


def log_likelihoods(told_s: Floats, seen: Sequence[Sighting]) -> Floats:
    """(SCALES,): log likelihood of a place's sightings under each scale, up to a common constant."""
    if not seen:
        return np.zeros(len(SCALES))
    layers_s, off_s, error_s = _columns(told_s, seen)
    stages_s = layers_s.sum(axis=1)
    place, layer = np.array(SCALES).T[:, :, None, None]
    among_s2 = place**2 * np.outer(stages_s, stages_s) + layer**2 * (layers_s @ layers_s.T) + np.diag(error_s**2)
    factor_s = np.linalg.cholesky(among_s2)
    surprise = np.linalg.solve(factor_s, off_s[:, None])
    diagonal_s = np.diagonal(factor_s, axis1=1, axis2=2)
    return np.asarray(-(surprise**2).sum(axis=(1, 2)) / 2 - np.log(diagonal_s).sum(axis=1))


def _columns(told_s: Floats, seen: Sequence[Sighting]) -> tuple[Floats, Floats, Floats]:
    """(sightings, layers): predictions for each sighting's layers, 0 elsewhere; (sightings,): deviations from the
    predictions, and errors. Differences of prefix sums would lose small values by rounding.
    """
    firsts, ends, time_s, error_s = np.array(seen).T
    layers = np.arange(len(told_s))
    layers_s = np.where((layers >= firsts[:, None]) & (layers < ends[:, None]), told_s, 0.0)
    return layers_s, time_s - layers_s.sum(axis=1), error_s


def _covariance_s2(told_s: Floats, scales: Scales, some: Ints, others: Ints) -> Floats:
    """Prior covariance of the layers before one position with those before another (broadcast)."""
    before_s = sums_before(told_s)
    shared_s2 = scales.place**2 * before_s[some] * before_s[others]
    own_s2 = scales.layer**2 * sums_before(told_s**2)[np.minimum(some, others)]
    return np.asarray(shared_s2 + own_s2)
