"""Which frames a measurement is made of."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pytest

from shisha_rt.core.tuning import measuring
from shisha_rt.core.tuning.drift import WINDOWS_TO_LEAVE, Baseline
from shisha_rt.core.tuning.measuring import (
    FRAMES,
    KEPT_FRAMES,
    LEAST_PERIODS,
    MAX_FRAMES,
    MAX_S,
    WIDE_BAND,
    Conditions,
    Window,
)
from shisha_rt.plan.measure import StageFrames, measure_window
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan

EPOCH = 7


def opened(stages: int, warm_up: int, now_s: float) -> Window:
    """For a plain chain."""
    plan = Plan.of((i, i, f"p{i}") for i in range(stages))
    return Window((EPOCH, plan), [True] * stages, now_s, Conditions(warm_up))


def _feed(
    window: Window, service_s: list[float], stage: int = 0, every_s: float = 0.01
) -> tuple[int, Measurement | None]:
    """How many frames it took, and what came of them."""
    for count, seconds in enumerate(service_s, start=1):
        measurement = window.add(stage, f"p{stage}", seconds, count * every_s)
        if measurement is not None:
            return count, measurement
    return len(service_s), None


def test_steady_frames_after_the_warm_up_are_enough() -> None:
    count, measurement = _feed(opened(1, 5, 0.0), [9.0] * 5 + [0.01] * 100)
    assert count == 5 + FRAMES
    assert measurement is not None
    assert measurement.service_s == (0.01,)
    assert measurement.frames == FRAMES
    assert abs(measurement.took_s - 0.31) < 1e-9


def test_frames_that_complete_no_measurement_are_not_kept_for_ever() -> None:
    """Of a watched plan whose batches hardly ever fill, each frame left some 50 bytes for as long as it served."""
    window = opened(2, 0, 0.0)
    assert _feed(window, [9.0] * MAX_FRAMES + [0.01] * MAX_FRAMES, stage=0) == (2 * MAX_FRAMES, None)
    for _ in range(2 * MAX_FRAMES):
        window.add_alone(0.02)
    assert [len(window._ran[0]), len(window._seconds[0]), len(window._alone_s)] == [MAX_FRAMES] * 3
    count, measured = _feed(window, [0.01] * MAX_FRAMES, stage=1, every_s=1.0)
    assert count == FRAMES
    assert measured is not None
    assert measured.service_s == (0.01, 0.01), "the newest count"


def test_every_stage_must_have_its_frames() -> None:
    window = opened(2, 0, 0.0)
    assert _feed(window, [0.01] * 200, stage=0) == (200, None)
    count, measurement = _feed(window, [0.02] * 200, stage=1)
    assert count == FRAMES
    assert measurement is not None
    assert measurement.service_s == (0.01, 0.02)


def test_many_stages_are_measured_once_for_so_many_frames_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not with each frame of the other stages while the last one waits for its own."""
    measured, rng = [], random.Random(4)

    def counting(plan: Plan, windows: Sequence[StageFrames], **rest: Any) -> Measurement:
        measured.append(min(len(frames.seconds) for frames in windows))
        return measure_window(plan, windows, **rest)

    monkeypatch.setattr(measuring, "measure_window", counting)
    window = opened(64, 0, 0.0)
    for _ in range(3 * FRAMES):
        for stage in range(64):
            assert window.add(stage, f"p{stage}", rng.choice((0.01, 0.03)), 0.1) is None
    assert measured == [FRAMES, 2 * FRAMES, 3 * FRAMES]


def test_how_busy_a_plan_was_is_told_by_all_frames_and_in_the_time_of_a_stretched_machine() -> None:
    """Those that are left out again have taken their time, too."""
    for scale in (1.0, 10.0):
        window = Window((EPOCH, Plan.of([(0, 0, "p0")])), [True], 0.0, Conditions(time_scale=scale))
        now_s, measurement = 0.0, None
        for seconds in [0.001, 0.003] * (KEPT_FRAMES // 2) + [0.001] * 2 * KEPT_FRAMES:
            now_s += seconds * scale
            measurement = measurement or window.add(0, "p0", seconds, now_s)
        assert measurement is not None
        assert measurement.frames == KEPT_FRAMES
        assert measurement.overlap > 0.5


def test_alike_copies_count_as_one() -> None:
    plan = Plan.chain([(0, 5, (("a",), ("b",)))])
    window = Window((EPOCH, plan), [True], 0.0, Conditions())
    measurement = None
    for i in range(FRAMES):
        measurement = window.add(0, "ab"[i % 2], 0.0100 + 0.0001 * (i % 2), 0.005025 * i)
    assert measurement is not None
    assert measurement.service_s == pytest.approx((0.01005,))
    assert measurement.bottleneck_s == pytest.approx(0.005025)
    assert measurement.team_s == ((0.0100, 0.0101),)
    assert measurement.overlap == pytest.approx(1.0)
    assert measurement.latency_s == pytest.approx(0.01005)


def test_a_slow_copy_is_waited_for_unless_it_takes_too_long() -> None:
    plan = Plan.chain([(0, 5, (("fast",), ("slow",)))])
    window = Window((EPOCH, plan), [False], 0.0, Conditions())
    assert all(window.add(0, "fast", 0.010, 0.01 * i) is None for i in range(2 * FRAMES))
    copies = ["slow" if i % 11 == 0 else "fast" for i in range(10 * FRAMES)]
    frames = [
        window.add(0, copy, 0.100 if copy == "slow" else 0.010, 0.64 + 0.009 * i) for i, copy in enumerate(copies)
    ]
    measurement = next(measured for measured in frames if measured is not None)
    assert measurement.team_s == ((0.010, 0.100),)
    assert measurement.bottleneck_s == pytest.approx(1 / (100 + 10))
    unserved = Window((EPOCH, plan), [False], 0.0, Conditions())
    late = [unserved.add(0, "fast", 0.010, 0.1 * i) for i in range(100)]
    measurement = next(measured for measured in late if measured is not None)
    assert measurement.team_s == ((0.010, math.inf),)
    assert measurement.bottleneck_s == 0.010


def test_copies_that_never_worked_at_the_same_time_say_so() -> None:
    window = Window((EPOCH, Plan.chain([(0, 5, (("a",), ("b",)))])), [True], 0.0, Conditions())
    frames = [window.add(0, "ab"[i % 2], 0.010, 0.02 * i) for i in range(FRAMES)]
    measurement = frames[-1]
    assert measurement is not None
    assert measurement.overlap == pytest.approx(0.25)
    busier = Measurement((0.0055,), 0.01, 32, 1.0)
    assert measurement.bottleneck_s < busier.bottleneck_s
    assert not measurement.is_better_than(busier)
    assert not measurement.is_better_than(busier, "latency")


def test_frames_that_met_no_other_tell_the_latency() -> None:
    window = opened(2, 0, 0.0)
    for _ in range(9):
        window.add_alone(0.025)
    _feed(window, [0.01] * 40, stage=0)
    _, measurement = _feed(window, [0.01] * 40, stage=1)
    assert measurement is not None
    assert measurement.latency_s == 0.025


def test_a_disturbance_passes() -> None:
    rng = random.Random(1)
    noisy = [0.01 * rng.uniform(1, 4) for _ in range(100)]
    count, measurement = _feed(opened(1, 0, 0.0), noisy + [0.01] * 1000)
    assert measurement is not None
    assert FRAMES < count <= 100 + KEPT_FRAMES + FRAMES
    assert measurement.band <= WIDE_BAND
    assert abs(measurement.bottleneck_s - 0.01) < 1e-3


@pytest.mark.parametrize(("every_s", "expected"), [(0.001, MAX_FRAMES), (0.1, 51), (1.0, FRAMES)])
def test_a_machine_that_is_never_steady_is_measured_all_the_same_and_says_so(every_s: float, expected: int) -> None:
    rng = random.Random(2)
    unsteady = [every_s * rng.choice([1, 3]) for _ in range(2000)]
    count, measurement = _feed(opened(1, 0, 0.0), unsteady, every_s=every_s)
    assert count == expected
    assert measurement is not None
    assert measurement.frames == expected
    assert measurement.band > WIDE_BAND
    assert measurement.took_s >= MAX_S or measurement.frames == MAX_FRAMES


def test_a_chain_that_is_faster_is_better_also_where_it_has_little_to_do() -> None:
    """Frames come every 50 ms; stages of a chain are on places of their own, and have been compared so ever since."""
    window = opened(1, 0, 0.0)
    _, slower = _feed(window, [0.016] * 40, every_s=0.05)
    _, faster = _feed(opened(1, 0, 0.0), [0.008] * 40, every_s=0.05)
    assert slower is not None
    assert faster is not None
    assert faster.is_better_than(slower)


class TestUnderAQuota:
    """As long as a window lasts the quota's periods are counted, here one for each ten frames."""

    @staticmethod
    def fed(window: Window, throttled_every: int) -> tuple[int, Measurement | None]:
        """Frames of 10 ms; of the periods every so many is throttled."""
        for count in range(1, 2 * MAX_FRAMES):
            measurement = window.add(0, "p0", 0.01, count * 0.01)
            if measurement is not None:
                return count, measurement
            if count % 10 == 0:
                window.periods_passed(100 + count // 10, count // 10 // throttled_every)
        return count, None

    @staticmethod
    def window(like: Measurement | None = None) -> Window:
        return Window((EPOCH, Plan.of([(0, 0, "p0")])), [True], 0.0, Conditions(), like)

    def test_it_is_as_long_as_some_periods_and_says_how_many_were_throttled(self) -> None:
        count, measurement = self.fed(self.window(), throttled_every=1)
        assert count == FRAMES * math.ceil((LEAST_PERIODS + 1) * 10 / FRAMES)
        assert measurement is not None
        assert measurement.throttled == 1.0
        _, free = self.fed(self.window(), throttled_every=10**9)
        assert free is not None
        assert free.throttled == 0.0

    def test_it_waits_until_it_was_throttled_like_the_other_but_not_for_ever(self) -> None:
        _, half = self.fed(self.window(), throttled_every=2)
        assert half is not None
        (soon, alike), (late, unlike) = (self.fed(self.window(half), throttled_every=every) for every in (2, 10**9))
        assert soon < late == MAX_S / 0.01 + 1
        assert alike is not None
        assert unlike is not None
        assert alike.is_throttled_like(half)
        assert not unlike.is_throttled_like(half)

    def test_what_was_throttled_less_is_no_better_for_that(self) -> None:
        slow = Measurement((0.02,), 0.01, 32, 1.0, throttled=0.9)
        fast = Measurement((0.01,), 0.01, 32, 1.0, throttled=0.1)
        assert not fast.is_better_than(slow)
        assert math.isclose(fast.throughput_fps, 2 * slow.throughput_fps)
        for throttled in (0.8, None):
            alike = Measurement((0.01,), 0.01, 32, 1.0, throttled=throttled)
            assert alike.is_better_than(slow)

    def test_a_quota_that_changes_is_no_drift(self) -> None:
        known = Measurement((0.01,), 0.01, 32, 1.0, throttled=0.0)
        for throttled, left in ((0.9, None), (0.1, 0)):
            baseline, slower = Baseline(known), Measurement((0.03,), 0.01, 32, 1.0, throttled=throttled)
            assert [baseline.left_by(slower) for _ in range(WINDOWS_TO_LEAVE)][-1] == left


def powered(
    target_s: float = math.inf, *, power_w: Mapping[str, float] = MappingProxyType({"p0": 2.0, "p1": 0.5})
) -> Window:
    plan = Plan.of([(0, 0, "p0"), (1, 1, "p1")])
    return Window((EPOCH, plan), [True, True], 0.0, Conditions(power_w=power_w, target_s=target_s))


@pytest.mark.parametrize(
    ("window", "energy_j"),
    [
        (powered(), 2.0 * 0.01 + 0.5 * 0.02),
        (powered(0.031), 2.0 * 0.01 + 0.5 * 0.02),
        (powered(0.029), math.inf),  # frames by themselves are late
        (powered(power_w={}), math.inf),
    ],
)
def test_energy_is_power_times_what_stages_took(window: Window, energy_j: float) -> None:
    _feed(window, [0.01] * FRAMES, stage=0)
    _, measured = _feed(window, [0.02] * FRAMES, stage=1)
    assert measured is not None
    assert measured.energy_j == pytest.approx(energy_j)


def test_the_energy_of_a_copy_that_ran_no_frame_is_not_known() -> None:
    """Else a plan with one on a place that draws much is the most frugal of all."""
    copies = Plan.chain([(0, 1, ["p0", "p1"])])
    window = Window((EPOCH, copies), [False], 0.0, Conditions(power_w={"p0": 0.5, "p1": 40.0}))
    measurements = [window.add(0, "p0", 0.01, (count + 1) * 0.01) for count in range(MAX_FRAMES)]
    assert measurements[-1] is not None
    assert measurements[-1].can_run
    assert measurements[-1].energy_j == math.inf
