"""The emulated clock of a place, in a time that the tests make: when each frame is due, whatever the host does."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from shisha_rt.machine.machine import target_s
from stages.emulate.pace import MAX_DEBT_S, Pace
from stages.emulate.place import HEADROOM, Demand, EmulatedPlace
from tests.wording import says


@dataclass
class Host:
    """A worker's frames one after the other on a virtual clock. `overshoot_s`: how late it wakes from each wait."""

    now_s: float = 100.0
    overshoot_s: float = 0.0
    pace: Pace = field(default_factory=Pace)

    def frame(self, target_s: float, *, ready_s: float = 0.0, real_s: float = 0.0, free_s: float = 0.0) -> float:
        """Run one frame whose input is there at `ready_s`; returns when it ended."""
        self.now_s = max(self.now_s, ready_s)
        start_s = self.pace.start(max(ready_s, 100.0), self.now_s)
        self.now_s += real_s
        due_s = self.pace.finish(start_s, target_s, free_s)
        if due_s > self.now_s:
            self.now_s = due_s + self.overshoot_s
        return self.now_s


def test_at_saturation_the_rate_is_exact_however_late_each_wait_ends() -> None:
    host = Host(overshoot_s=0.003)
    for _ in range(1000):
        end_s = host.frame(0.01, real_s=0.004)
    assert end_s == pytest.approx(100 + 1000 * 0.01 + 0.003)
    assert host.pace.dropped_s == 0


def test_a_late_frame_is_made_up_for_by_the_next() -> None:
    host = Host()
    assert host.frame(0.1, real_s=0.25) == pytest.approx(100.25)  # due at 100.1
    assert host.frame(0.1, real_s=0.01) == pytest.approx(100.26)  # due at 100.2: no wait at all
    assert host.frame(0.1, real_s=0.01) == pytest.approx(100.3)
    assert host.frame(0.1, real_s=0.01) == pytest.approx(100.4)


def test_waiting_for_input_earns_no_credit() -> None:
    host = Host()
    host.frame(0.1)
    end_s = host.frame(0.1, ready_s=107.0)
    assert end_s == pytest.approx(107.1)
    assert host.frame(0.1, ready_s=107.05) == pytest.approx(107.2)


def test_lateness_beyond_the_bound_is_dropped_and_counted() -> None:
    host = Host()
    host.frame(0.1, real_s=5.0)  # due at 100.1, done at 105.0
    host.frame(0.01, real_s=0.001)
    assert host.pace.dropped_s == pytest.approx(4.9 - MAX_DEBT_S)
    assert host.pace.due_s == pytest.approx(105.0 - MAX_DEBT_S + 0.01)
    for _ in range(1000):
        host.frame(0.01, real_s=0.001)
    assert host.pace.dropped_s == pytest.approx(4.9 - MAX_DEBT_S)
    assert host.now_s == pytest.approx(105.0 - MAX_DEBT_S + 1001 * 0.01), "what was kept was made up for"


def test_a_busy_memory_holds_a_frame_back_and_leaves_no_debt() -> None:
    host = Host(overshoot_s=0.002)
    assert host.frame(0.01, free_s=100.05) == pytest.approx(100.052)
    assert host.frame(0.01) == pytest.approx(100.062), "only the late waking was made up for"


def test_any_schedule_of_a_keeping_host_ends_as_a_perfect_one_would() -> None:
    """Against a plain model: a frame takes its target from when its input is there and the last one is done."""
    rng = random.Random(7)
    host, perfect_s, ready_s = Host(), 100.0, 100.0
    for _ in range(5000):
        target, real_s = rng.uniform(0.01, 0.03), rng.uniform(0.001, 0.02)
        ready_s += rng.uniform(0, 0.04)
        host.overshoot_s = rng.expovariate(1 / 0.001)
        perfect_s = max(perfect_s, ready_s) + target
        host.frame(target, ready_s=ready_s, real_s=real_s)
        assert host.pace.due_s == pytest.approx(perfect_s)
    assert host.pace.dropped_s == 0


class TestPlace:
    """A place on the same virtual clock: 4 ms of CPU time, 2 threads."""

    def _place(self, speed: list[float], **options: float | None) -> EmulatedPlace:
        time_scale = options.get("time_scale") or 1.0
        bandwidth = options.get("bandwidth_bytes_per_s")
        return EmulatedPlace("slow0", 2, lambda: speed[-1], time_scale=time_scale, bandwidth_bytes_per_s=bandwidth)

    def _due_s(self, place: EmulatedPlace, demand: Demand, ready_s: float = 1.0, real_s: float = 0.002) -> float:
        return place.finish(place.start(demand, ready_s, ready_s), 0.004, ready_s + real_s) - ready_s

    def test_a_frame_takes_its_cpu_time_over_threads_and_speed(self) -> None:
        assert self._due_s(self._place([0.1]), Demand(1000)) == pytest.approx(0.004 / 2 / 0.1)

    def test_or_its_bytes_over_the_bandwidth_whichever_is_longer(self) -> None:
        assert self._due_s(self._place([0.1], bandwidth_bytes_per_s=1e6), Demand(50_000)) == pytest.approx(0.05)
        assert self._due_s(self._place([0.1], bandwidth_bytes_per_s=1e6), Demand(10_000)) == pytest.approx(0.02)

    def test_a_modelled_time_replaces_the_real_one(self) -> None:
        place = self._place([0.5])
        times = {self._due_s(place, Demand(0, 0.01), ready_s=i, real_s=0.001 * i) for i in range(1, 8)}
        assert len({round(time, 9) for time in times}) == 1
        assert times.pop() == pytest.approx(0.01)

    def test_all_times_are_stretched_alike(self) -> None:
        assert self._due_s(self._place([0.1], time_scale=3.0), Demand(0)) == pytest.approx(0.06)
        scaled = self._place([0.1], time_scale=3.0, bandwidth_bytes_per_s=1e6)
        assert self._due_s(scaled, Demand(50_000)) == pytest.approx(0.15)

    def test_a_new_speed_counts_from_the_next_frame(self) -> None:
        speed = [0.5]
        place = self._place(speed)
        started = place.start(Demand(0), 1.0, 1.0)
        speed.append(0.05)
        assert place.finish(started, 0.004, 1.0) == pytest.approx(1.004)
        assert place.finish(place.start(Demand(0), 2.0, 2.0), 0.004, 2.0) == pytest.approx(2.04)

    def test_an_unthrottled_place_is_done_when_it_is_done(self) -> None:
        place = self._place([1.0])
        for ready_s, real_s in ((1.0, 0.5), (3.0, 0.01), (5.0, 0.002)):
            now_s = ready_s + 0.6  # its message took so long
            started = place.start(Demand(10**9), ready_s, now_s)
            assert started is None
            assert place.finish(started, 0.004, now_s + real_s) == now_s + real_s

    def test_what_was_not_emulated_leaves_no_debt_and_no_credit(self) -> None:
        speed = [0.5]
        place = self._place(speed)
        assert self._due_s(place, Demand(0), ready_s=1.0, real_s=5.0) == pytest.approx(0.004)
        speed.append(1.0)
        assert self._due_s(place, Demand(0), ready_s=6.0, real_s=0.5) == 0.5
        assert place.take_dropped_s() == 0
        speed.append(0.5)
        started = place.start(Demand(0), 6.2, 6.6)
        assert started is not None
        assert started.start_s == 6.5, "its input was there before, but the frame before it was not done"

    @pytest.mark.parametrize(("time_scale", "modelled_cpu_s", "kept"), [(1.1, 0, False), (1.3, 0, True)])
    def test_a_place_as_fast_as_this_host_needs_a_time_scale(
        self, time_scale: float, modelled_cpu_s: float, kept: bool
    ) -> None:
        reason = self._place([1.0], time_scale=time_scale).why_too_short(Demand(0, modelled_cpu_s), 0.002, 0.004)
        assert (reason is None) == kept

    def test_the_refusal_says_what_to_write(self) -> None:
        place = self._place([0.8], time_scale=2.0)
        demand = Demand(0, 0.0004)  # promised in a tenth of what it takes
        reason = place.why_too_short(demand, 0.002, 0.004)
        assert reason is not None
        assert reason == says("time_scale = 2: place slow0 would have 0.5 ms for … host 2 ms…")
        needed = float(reason.split("time_scale = ")[2].split()[0])
        assert self._place([0.8], time_scale=needed).why_too_short(demand, 0.002, 0.004) is None
        assert needed == pytest.approx(2 * HEADROOM * 0.002 / 0.0005)

    def test_speeds_that_the_loader_allows_need_no_check(self) -> None:
        assert not self._place([0.85]).needs_check(Demand(0))
        assert self._place([0.85]).needs_check(Demand(0, 0.01))
        assert self._place([1.0], time_scale=1.01).needs_check(Demand(0))

    def test_a_frame_on_emulated_devices_is_due_at_their_time_on_any_place(self) -> None:
        demand = Demand(0, paced=True)
        assert self._place([1.0]).start(demand, 1.0, 1.0) is not None
        assert self._due_s(self._place([1.0]), demand) == pytest.approx(0.004 / 2)
        assert self._place([1.0]).needs_check(demand)


def test_the_target_is_one_formula_for_all() -> None:
    assert target_s(0.01, 10**6, threads=2, speed=0.5, bandwidth_bytes_per_s=None) == pytest.approx(0.01)
    assert target_s(0.01, 10**6, threads=2, speed=0.5, bandwidth_bytes_per_s=5e7) == pytest.approx(0.02)


# --- a place that changes while a frame waits ---------------------------------------------------------------------


@dataclass
class Changing:
    """A place whose speed can be set, in the middle of a frame of 10 ms of CPU time that began at 100."""

    speed: float = 0.5

    def __post_init__(self) -> None:
        self.place = EmulatedPlace("slow", 1, lambda: self.speed)
        started = self.place.start(Demand(1000), 100.0, 100.0)
        assert started is not None
        self.started = started
        self.due_s = self.place.finish(self.started, 0.01, 100.01)

    def set(self, speed: float, now_s: float) -> None:
        self.speed = speed
        self.started, self.due_s = self.place.repace(self.started, 0.01, self.due_s, now_s)


def test_a_new_speed_reaches_a_wait_that_has_begun() -> None:
    """A wait at a speed of 1e-7 went on for a day after it had been taken back."""
    frame = Changing(speed=1e-3)
    assert frame.due_s == pytest.approx(110.0)
    frame.set(0.5, now_s=105.0)
    assert frame.due_s == pytest.approx(105.01), "half of it is left, and takes 20 ms in all"
    frame.set(1e-3, now_s=105.005)
    assert frame.due_s == pytest.approx(107.505)
    frame.set(1e-3, now_s=106.0)
    assert frame.due_s == pytest.approx(107.505), "nothing has changed"
    frame.set(0.9, now_s=107.504)
    following = frame.place.start(Demand(1000), 100.0, 107.51)
    assert following is not None
    assert following.start_s == pytest.approx(frame.due_s), "the next begins where it ended"


def test_a_place_that_is_down_waits_for_nothing_until_it_is_up_again() -> None:
    frame = Changing(speed=1e-3)
    frame.place.at_once = True
    frame.set(1e-3, now_s=101.0)
    assert frame.due_s == 101.0
    following = frame.place.start(Demand(1000), 100.0, 101.0)
    assert frame.place.finish(following, 0.01, 101.01) == 101.01
    frame.place.at_once = False
    following = frame.place.start(Demand(1000), 100.0, 101.02)
    assert frame.place.finish(following, 0.01, 101.03) == pytest.approx(101.01 + 10)
