"""When a plan that is watched no longer takes what it took."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from shisha_rt.core.tuning.drift import SLOWER_BY_LOAD, WINDOWS_TO_LEAVE, Baseline, Drift, DriftWatch, leaving_stage
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import rate_of, stage_seconds
from tests.core.tuning.test_objective_switching import KEPT, QUICK
from tests.core.tuning.tuned_world import BEST, ONLY_FAST, World

COPIES = Plan.chain([(0, 5, (("a",), ("b",)))])


def chain(*service_s: float, band: float = 0.02) -> Measurement:
    return Measurement(service_s, band, 32, 1.0)


def copies(*team_s: float, band: float = 0.02) -> Measurement:
    return Measurement((stage_seconds(team_s),), band, 32, 1.0, rate=rate_of(COPIES, [team_s]), team_s=(team_s,))


@pytest.mark.parametrize(
    ("now", "stage"),
    [((0.010, 0.020), None), ((0.010, 0.0218), None), ((0.010, 0.0225), 1), ((0.013, 0.020), 0), ((0.013, 0.030), 1)],
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


def left(baseline: Baseline, *windows: Measurement) -> list[int | None]:
    """What each window of `windows`, so many times on end, has left in the end."""
    return [[baseline.left_by(window) for _ in range(WINDOWS_TO_LEAVE)][-1] for window in windows]


def test_frames_that_come_seldom_and_take_longer_are_no_drift() -> None:
    baseline = Baseline(chain(0.010, 0.020))
    calm, slower = replace(chain(0.012, 0.025), load=0.1), replace(chain(0.012, 0.029), load=0.1)
    assert left(baseline, calm, chain(0.010, 0.020), calm, slower) == [None, None, None, 1]
    assert baseline.like(slower) == calm
    assert left(baseline, chain(0.012, 0.025)) == [1]  # under load that is one


def test_what_is_far_slower_is_a_drift_however_seldom_frames_come() -> None:
    slow = replace(chain(0.010, 1.01 * SLOWER_BY_LOAD * 0.020), load=0.1)
    assert left(Baseline(chain(0.010, 0.020)), slow) == [1]


BEFORE = chain(0.010, 0.020)
SLOWER = chain(0.010, 0.026)


def is_answered(watch: DriftWatch, measurement: Measurement, now_s: float) -> bool:
    """Whether a search begins, as windows like this one come."""
    return any(watch.judge(measurement, now_s) is not None for _ in range(WINDOWS_TO_LEAVE))


def answered_by(plan: Plan) -> DriftWatch:
    """`BEST` has drifted after 10 s, and a search of 10 s has ended with `plan`."""
    watch = DriftWatch()
    watch.begin(BEST, BEFORE, 0.0)
    assert is_answered(watch, SLOWER, 10.0)
    watch.begin(plan, BEFORE, 20.0)
    return watch


def test_after_a_search_in_vain_only_a_larger_drift_is_answered_at_once() -> None:
    watch = answered_by(BEST)
    assert not is_answered(watch, SLOWER, 59.0)
    assert not is_answered(watch, chain(0.010, 0.028), 59.0)
    assert is_answered(watch, chain(0.010, 0.030), 59.0)
    assert is_answered(answered_by(BEST), SLOWER, 61.0)


def test_a_search_that_found_another_plan_or_another_machine_holds_up_none() -> None:
    assert is_answered(answered_by(ONLY_FAST), SLOWER, 21.0)
    watch = answered_by(BEST)
    watch.forget()
    assert is_answered(watch, SLOWER, 21.0)


def test_a_drift_corrects_what_was_known_of_plans_on_the_same_places() -> None:
    """So that the plan is not found to have drifted again where nothing could be compared or searched."""
    world = World(KEPT, objective="auto")
    choice, over = world.tuning.choice, world.tuning.choice.machine.places
    names, now = [place.name for place in over], replace(QUICK.measurement, service_s=(0.016,))
    choice.correct(ONLY_FAST, Drift(0, 2.0, now, now, now), names)
    quick, most = (choice.best(names, objective) for objective in ("latency", "throughput"))
    assert quick is not None
    assert most is not None
    assert quick.measurement == now
    assert most.measurement.service_s == (0.012, 0.012)
    of_slow = Drift(1, 3.0, most.measurement, most.measurement, most.measurement)  # a place which the other has not
    choice.correct(BEST, of_slow, names)
    assert choice.best(names, "latency") == quick
