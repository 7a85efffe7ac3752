"""Which frames a measurement is made of."""

from __future__ import annotations

import random

import pytest

from shisha_rt.plan.measurement import Measurement
from shisha_rt.tuning.window import FRAMES, KEPT_FRAMES, MAX_FRAMES, MAX_S, WIDE_BAND, Window

EPOCH = 7


def _feed(
    window: Window, service_s: list[float], stage: int = 0, every_s: float = 0.01
) -> tuple[int, Measurement | None]:
    """How many frames it took, and what came of them."""
    for count, seconds in enumerate(service_s, start=1):
        found = window.add(EPOCH, stage, seconds, count * every_s)
        if found is not None:
            return count, found
    return len(service_s), None


def test_steady_frames_after_the_warm_up_are_enough() -> None:
    count, found = _feed(Window(EPOCH, 1, 5, 0.0), [9.0] * 5 + [0.01] * 100)
    assert count == 5 + FRAMES
    assert found is not None
    assert found.service_s == (0.01,)
    assert found.frames == FRAMES
    assert abs(found.took_s - 0.31) < 1e-9


def test_every_stage_must_have_its_frames() -> None:
    window = Window(EPOCH, 2, 0, 0.0)
    assert _feed(window, [0.01] * 200, stage=0) == (200, None)
    count, found = _feed(window, [0.02] * 200, stage=1)
    assert count == FRAMES
    assert found is not None
    assert found.service_s == (0.01, 0.02)


def test_frames_of_another_epoch_show_only_that_some_come() -> None:
    window = Window(EPOCH, 1, 0, 1.0)
    assert window.last_s == 1.0
    assert [window.add(EPOCH - 1, 0, 9.0, 2.0) for _ in range(MAX_FRAMES)] == [None] * MAX_FRAMES
    assert window.last_s == 2.0
    assert _feed(window, [0.01] * 200)[0] == FRAMES


def test_a_disturbance_passes() -> None:
    rng = random.Random(1)
    noisy = [0.01 * rng.uniform(1, 4) for _ in range(100)]
    count, found = _feed(Window(EPOCH, 1, 0, 0.0), noisy + [0.01] * 1000)
    assert found is not None
    assert FRAMES < count <= 100 + KEPT_FRAMES + FRAMES
    assert found.band <= WIDE_BAND
    assert abs(found.bottleneck_s - 0.01) < 1e-3


@pytest.mark.parametrize(("every_s", "expected"), [(0.001, MAX_FRAMES), (0.1, 51), (1.0, FRAMES)])
def test_a_machine_that_is_never_steady_is_measured_all_the_same_and_says_so(every_s: float, expected: int) -> None:
    rng = random.Random(2)
    unsteady = [every_s * rng.choice([1, 3]) for _ in range(2000)]
    count, found = _feed(Window(EPOCH, 1, 0, 0.0), unsteady, every_s=every_s)
    assert count == expected
    assert found is not None
    assert found.frames == expected
    assert found.band > WIDE_BAND
    assert found.took_s >= MAX_S or found.frames == MAX_FRAMES
