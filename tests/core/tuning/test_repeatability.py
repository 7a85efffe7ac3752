"""Whether bands keep their promise on a host that drifts more slowly than a window can see."""

from __future__ import annotations

import math
import random
from itertools import combinations

import pytest

from shisha_rt.core.tuning.repeatability import ASSUMED, Repeatability
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan

PLAN = Plan.of([(0, 3, "a"), (4, 9, "b")])


def of(*service_s: float, band: float = 0.01) -> Measurement:
    return Measurement(service_s, band=band, frames=32, took_s=0.1)


def test_until_something_is_known_a_little_drift_is_assumed() -> None:
    band = Repeatability().band
    assert ASSUMED < band < 2 * ASSUMED
    assert Repeatability().widen(of(1.0, 2.0)) == of(1.0, 2.0, band=band)


def test_a_band_that_is_wider_already_stays() -> None:
    assert Repeatability().widen(of(1.0, 2.0, band=0.5)) == of(1.0, 2.0, band=0.5)


@pytest.mark.parametrize("deviation", [0.002, 0.02, 0.1])
def test_95_pairs_in_100_of_one_plan_agree(deviation: float) -> None:
    rng = random.Random(1)
    known = Repeatability()
    measurements = []
    for number in range(300):
        drift = rng.gauss(0, deviation)
        measured = of(math.exp(drift), 0.9 * math.exp(drift), band=1e-6)
        known.observe(PLAN, measured)
        if number >= 100:
            measurements.append(known.widen(measured))
    pairs = list(combinations(measurements, 2))
    beyond = sum(not first.agrees_with(other) for first, other in pairs) / len(pairs)
    assert 0.02 < beyond < 0.1


def test_moments_of_other_work_do_not_widen_the_band() -> None:
    quiet, disturbed = Repeatability(), Repeatability()
    rng = random.Random(2)
    for number in range(100):
        times_s = [math.exp(rng.gauss(0, 0.01)) for _ in range(2)]
        quiet.observe(PLAN, of(*times_s))
        disturbed.observe(PLAN, of(*[1.5 * time_s if number % 20 == 0 else time_s for time_s in times_s]))
    assert disturbed.band < 1.5 * quiet.band


def test_only_the_same_layers_on_the_same_place_are_compared() -> None:
    known = Repeatability()
    before = known.band
    known.observe(Plan.of([(0, 3, "a"), (4, 9, "b")]), of(1.0, 1.0))
    known.observe(Plan.of([(0, 4, "a"), (5, 9, "b")]), of(3.0, 3.0))
    known.observe(Plan.of([(0, 3, "b"), (4, 9, "a")]), of(3.0, 3.0))
    assert known.band == before
    for _ in range(20):
        known.observe(Plan.of([(0, 3, "a"), (4, 8, "b")]), of(1.3, 1.0))
    assert known.band != before


def test_a_stage_that_is_far_from_the_slowest_says_nothing() -> None:
    known = Repeatability()
    for number in range(50):
        known.observe(PLAN, of(0.1 * (1 + number % 2), 1.0 + 1e-9 * number))
    assert known.band < 0.001


def test_a_change_of_the_machine_is_no_drift() -> None:
    known = Repeatability()
    for factor in (1.0, 3.0):
        known.machine_changed()
        for _ in range(10):
            known.observe(PLAN, of(factor, factor))
    assert known.band < 0.001


def test_a_plan_that_could_not_run_is_passed_over() -> None:
    known = Repeatability()
    before = known.band
    for _ in range(2):
        known.observe(PLAN, of(math.inf, 1.0))
        known.observe(PLAN, of(0.0, 0.0))
    assert known.band == before
