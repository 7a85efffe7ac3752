"""The time of a place that is not there. Bounds are those that no load of the host can break."""

from __future__ import annotations

import time

from shisha_rt.emulated import EmulatedTime


def test_runs_take_what_is_told_stretched() -> None:
    place = EmulatedTime(time_scale=2.0)
    start_s = time.monotonic()
    place.begin(start_s)
    for _ in range(10):
        place.run(lambda: None, 1e-3)
    assert time.monotonic() - start_s >= 0.02


def test_lateness_is_made_up_for_within_bounds() -> None:
    place = EmulatedTime()
    place.begin(time.monotonic())
    ended_s: list[float] = []

    def late() -> None:
        time.sleep(0.6)
        ended_s.append(time.monotonic())

    place.run(late, 1e-6)
    assert place.overran == 1
    place.run(lambda: None, 0.5)  # a quarter of a second of that is forgiven
    assert time.monotonic() - ended_s[0] >= 0.24


def test_what_is_not_told_is_measured_at_the_speed_of_the_place() -> None:
    def busy() -> None:
        end_s = time.thread_time() + 5e-3
        while time.thread_time() < end_s:
            pass

    place = EmulatedTime(speed=0.25)
    start_s = time.monotonic()
    place.begin(start_s)
    place.run(busy)
    assert time.monotonic() - start_s >= 0.02
    assert place.overran == 0
