"""When a plan that is watched no longer takes what it took."""

from __future__ import annotations

import math

import pytest

from shisha_rt.core.tuning.measuring import leaving_stage
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import rate_of, stage_seconds

COPIES = Plan.chain([(0, 5, (("a",), ("b",)))])


def chain(*service_s: float, band: float = 0.02) -> Measurement:
    return Measurement(service_s, band, 32, 1.0)


def copies(*team_s: float, band: float = 0.02) -> Measurement:
    return Measurement((stage_seconds(team_s),), band, 32, 1.0, rate=rate_of(COPIES, [team_s]), team_s=(team_s,))


@pytest.mark.parametrize(
    ("now", "stage"),
    [((0.010, 0.020), None), ((0.010, 0.0207), None), ((0.010, 0.022), 1), ((0.012, 0.020), 0), ((0.012, 0.030), 1)],
)
def test_the_stage_that_is_furthest_outside_its_band(now: tuple[float, float], stage: int | None) -> None:
    assert leaving_stage(chain(0.010, 0.020), chain(*now)) == stage


@pytest.mark.parametrize(
    ("now", "stage"),
    [
        ((0.020, 0.020), None),
        ((0.0205, 0.020), None),
        ((0.020, 0.030), 0),
        ((0.014, 0.020), 0),
        ((0.020, math.inf), None),
    ],
)
def test_one_copy_that_has_become_slower_is_seen(now: tuple[float, float], stage: int | None) -> None:
    assert leaving_stage(copies(0.020, 0.020), copies(*now)) == stage
