"""What is learnt of places: sightings merged into means, and which places differ by more than noise."""

from __future__ import annotations

import random

import numpy as np
import pytest

from shisha_rt.planner.belief import Sighting, log_likelihoods
from shisha_rt.planner.learning import _merged, _parted

SPANS = ((0, 3), (1, 6), (2, 4))


def test_merged_sightings_are_as_likely_as_each_by_itself() -> None:
    rng = random.Random(1)
    told_s = np.array([rng.uniform(1, 5) for _ in range(6)])
    sightings = [
        Sighting(first, end, rng.uniform(0.8, 1.2) * float(told_s[first:end].sum()), rng.uniform(0.05, 0.3))
        for first, end in (*SPANS, *SPANS[:2], SPANS[0])
    ]
    merged = _merged(sightings)
    assert [(sighting.first, sighting.end) for sighting in merged.sightings] == [*SPANS]
    likelihoods = log_likelihoods(told_s, merged.sightings) + merged.scatter
    assert likelihoods == pytest.approx(log_likelihoods(told_s, sightings))


def sighted(rng: random.Random, *slower: float) -> list[list[Sighting]]:
    """Two layers of 1 s on each place, measured with an error of 2%."""
    return [[Sighting(0, 2, by * 2 * rng.gauss(1, 0.02), 0.04)] for by in slower]


def test_places_that_differ_by_noise_stay_alike_and_slower_ones_are_told_apart() -> None:
    for seed in range(30):
        rng, told_s, places = random.Random(seed), np.ones(2), tuple(range(6))
        assert _parted(told_s, places, sighted(rng, *[1.0] * 6)).evidence <= 0, seed
        parted = _parted(told_s, places, sighted(rng, 1.0, 1.0, 1.5, 1.0, 1.5, 1.5))
        assert (parted.evidence > 0, parted.first, parted.other) == (True, (0, 1, 3), (2, 4, 5)), seed
