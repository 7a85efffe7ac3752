"""What a relay makes of its link, over links that are worked out: rates and delays as given, in virtual time."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from shisha_rt.core.lifecycle.events import Descriptor
from shisha_rt.costs.link_speed import LinkSpeed, OneWay
from stages.far import messages as far
from stages.far.link_watch import LinkWatch

GIGABIT = LinkSpeed(OneWay(1e-3, 125e6), OneWay(1e-3, 125e6))
TENTH = LinkSpeed(OneWay(10e-3, 12.5e6), OneWay(10e-3, 12.5e6))
STEP_S = 1e-3
PART_BYTES = 200_000
SERVICE_S = 0.02
SEED = 20312


def no_delay(_: float) -> float:
    return 0.0


@dataclass
class Line:
    """A relay at such a link, with up to `depth` parts out when it is under load.

    `delay`: what something else on the line adds to an answer, by the time when it was asked for.
    """

    speed: LinkSpeed
    delay: Callable[[float], float] = no_delay
    depth: int = 0
    watch: LinkWatch = field(default_factory=LinkWatch)
    now_s: float = 100.0
    reported: list[tuple[float, LinkSpeed]] = field(default_factory=list)
    sent: list[float] = field(default_factory=list)
    pinged_bytes: int = 0
    _pong: tuple[float, far.Pong] | None = None
    _out: list[tuple[float, Descriptor]] = field(default_factory=list)
    _frame: int = 0

    def run(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self._ping()
            self._parts()
            self.now_s += STEP_S

    def _ping(self) -> None:
        if self._pong is not None and self._pong[0] <= self.now_s:
            at_s, pong = self._pong
            self._pong = None
            self.watch.heard(at_s)
            seen = self.watch.pong(pong, at_s)
            if seen is not None:
                self.reported.append((at_s, seen))
        ping = self.watch.next_ping(self.now_s)
        if ping is None:
            return
        message, tensors = ping
        there_bytes, back_bytes = sum(tensor.nbytes for tensor in tensors), message.bytes_back
        self.pinged_bytes += there_bytes + back_bytes
        if message.number:
            assert not self._out, "it measures beside parts"
            took_s = self.speed.takes_s(there_bytes, back_bytes) + self.delay(self.now_s)
            self._pong = self.now_s + took_s, far.Pong(message.number)
        else:
            self.watch.pong(far.Pong(0), self.now_s)

    def _parts(self) -> None:
        while self._out and self._out[0][0] <= self.now_s:
            end_s, part = self._out.pop(0)
            there_s = end_s - self.sent.pop(0) - self.speed.takes_s(PART_BYTES, PART_BYTES)
            self.watch.heard(end_s)
            self.watch.part_ended(part, there_s, end_s)
        while len(self._out) < self.depth and not self.watch.wants_quiet(self.now_s):
            self._frame += 1
            part = Descriptor(1, self._frame, 0, 0, 1, 0)
            begins_s = max(self.now_s, self._out[-1][0] if self._out else 0.0)
            self.sent.append(self.now_s)
            self._out.append((begins_s + SERVICE_S + self.speed.takes_s(PART_BYTES, PART_BYTES), part))
            self.watch.sends(part, PART_BYTES, PART_BYTES, self.now_s)

    @property
    def is_busy(self) -> bool:
        return bool(self._out)

    @property
    def frames(self) -> int:
        return self._frame


def close_to(seen: LinkSpeed, speed: LinkSpeed) -> None:
    assert seen.fields == pytest.approx(speed.fields, rel=0.05)


@pytest.mark.parametrize(
    "speed",
    [
        GIGABIT,
        TENTH,
        LinkSpeed(OneWay(50e-3, 125_000.0), OneWay(50e-3, 125_000.0)),
        LinkSpeed(OneWay(20e-6, 5e9), OneWay(20e-6, 5e9)),
        LinkSpeed(OneWay(5e-3, 12.5e6), OneWay(5e-3, 1.25e6)),
    ],
)
def test_a_link_is_as_it_is_told(speed: LinkSpeed) -> None:
    line = Line(speed)
    line.run(20.0)
    [(_, seen)] = line.reported
    close_to(seen, speed)
    assert line.watch.is_measured


def test_nothing_is_sent_before_it_is_measured() -> None:
    line = Line(GIGABIT, depth=2)
    assert line.watch.wants_quiet(line.now_s)
    line.run(0.01)
    assert line.frames == 0
    line.run(2.0)
    assert line.reported
    assert line.frames > 10


@pytest.mark.parametrize("depth", [0, 1, 2, 5])
def test_a_link_that_becomes_another_is_told_of_once(depth: int) -> None:
    """Idle, and under load that never ends by itself: there and back again."""
    line = Line(GIGABIT, depth=depth)
    line.run(15.0)
    for speed in (TENTH, GIGABIT):
        line.reported.clear()
        line.speed, began_s = speed, line.now_s
        line.run(30.0)
        [(at_s, seen)] = line.reported
        close_to(seen, speed)
        assert at_s - began_s < (13.0 if depth == 0 else 4.0)


def test_neighbours_on_the_line_do_not_make_it_another() -> None:
    """Half of the messages have to wait for a neighbour's tensors."""
    rng = random.Random(SEED)
    line = Line(GIGABIT, delay=lambda _: rng.choice((0.0, rng.uniform(0.0, 0.05))))
    line.run(300.0)
    [(_, seen)] = line.reported
    close_to(seen, GIGABIT)


def test_measuring_costs_little_under_load() -> None:
    quiet, measured = Line(GIGABIT, depth=2), Line(GIGABIT, depth=2)
    for line in (quiet, measured):
        line.run(2.0)
    before, began_s = measured.frames, measured.now_s
    measured.run(100.0)
    most = (measured.now_s - began_s) / (SERVICE_S + GIGABIT.takes_s(PART_BYTES, PART_BYTES))
    assert measured.frames - before > 0.98 * most


def test_an_idle_link_is_left_alone_but_for_signs() -> None:
    line = Line(GIGABIT)
    line.run(5.0)
    line.pinged_bytes = 0
    line.run(100.0)
    assert 0 < line.pinged_bytes / 100 < 0.005 * GIGABIT.there.bytes_per_s


def test_parts_that_are_late_for_no_fault_of_the_link_are_looked_into_ever_less() -> None:
    line = Line(GIGABIT)
    line.run(2.0)
    looks = 0
    for frame in range(600):
        part = Descriptor(1, frame, 0, 0, 1, 0)
        if line.watch.wants_quiet(line.now_s):
            looks += 1
        line.run(0.1)
        line.watch.sends(part, 0, 0, line.now_s)
        line.now_s += 0.05
        line.watch.part_ended(part, 0.0, line.now_s)
    assert 3 < looks < 20
    assert len(line.reported) == 1


def test_silence_is_a_hang_but_for_what_may_hold_up_the_line() -> None:
    line = Line(GIGABIT)
    assert line.watch.is_alive(1e9), "nothing has been heard yet"
    line.run(2.0)
    line.watch.heard(line.now_s)
    assert line.watch.is_alive(line.now_s + 0.9)
    assert not line.watch.is_alive(line.now_s + 1.1)
    line.watch.sends(Descriptor(1, 1, 0, 0, 1, 0), 125_000_000, 0, line.now_s)
    assert line.watch.is_alive(line.now_s + 2.9)
    assert not line.watch.is_alive(line.now_s + 3.1)
    line.watch.beat(far.Beat(alive=False, paced=False), line.now_s)
    assert not line.watch.is_alive(line.now_s)


def test_a_host_that_is_busy_as_it_begins_does_not_make_a_link_fast() -> None:
    """Every message waits for up to 20 ms, the small ones of a round more than the large ones."""
    rng = random.Random(SEED)
    line = Line(GIGABIT, delay=lambda _: rng.choice((0.0, rng.uniform(0.0, 0.02), 0.02)))
    line.run(20.0)
    assert line.reported
    for _, seen in line.reported:
        assert max(seen.there.bytes_per_s, seen.back.bytes_per_s) < 1.5 * GIGABIT.there.bytes_per_s


@pytest.mark.parametrize(
    "worse", [LinkSpeed(OneWay(0.2, 125e6), OneWay(0.2, 125e6)), LinkSpeed(OneWay(1e-3, 1.25e6), OneWay(1e-3, 1.25e6))]
)
def test_parts_are_not_kept_back_for_as_long_as_a_hang(worse: LinkSpeed) -> None:
    """Links that are far worse than they were; a worker that runs nothing for five seconds is held to hang."""
    line = Line(GIGABIT, depth=1)
    line.run(15.0)
    line.speed = worse
    longest_s, quiet_s = 0.0, 0.0
    for _ in range(60_000):
        line.run(STEP_S)
        quiet_s = quiet_s + STEP_S if line.watch.wants_quiet(line.now_s) and not line.is_busy else 0.0
        longest_s = max(longest_s, quiet_s)
    assert len(line.reported) == 2
    assert not line.reported[-1][1].is_unlike(worse)
    assert longest_s < 4.0
