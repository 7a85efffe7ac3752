"""When a child counts as hung, by a clock and a child that the test moves."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from shisha_rt.process import pulse
from shisha_rt.process.pulse import SILENCE_S, Pulse

LOOK_EVERY_S = 0.25


class Watched:
    """A pulse, and what its clock and `/proc` say: `ticks` of CPU time, `wants_core`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.ticks, self.wants_core, self.beats = 1000.0, 20, False, 0
        monkeypatch.setattr(pulse, "time", self)
        monkeypatch.setattr(pulse, "cpu_ticks", lambda _: self.ticks)
        monkeypatch.setattr(pulse, "wants_core", lambda _: self.wants_core)
        self.pulse = Pulse(1)

    def monotonic(self) -> float:
        return self.now_s

    def hung_after_s(self, within_s: float, meanwhile: Callable[[], None] = lambda: None) -> float:
        """How long it takes until the child counts as hung; inf if that is longer than `within_s`."""
        begun_s = self.now_s
        while self.now_s < begun_s + within_s:
            meanwhile()
            self.now_s += LOOK_EVERY_S
            if self.pulse.look(self.beats) is not None:
                return self.now_s - begun_s
        return math.inf

    def lives(self) -> None:
        self.ticks += 1
        self.beats += self.now_s % 1 == 0


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


def test_a_child_hangs_after_the_stated_time_and_not_after_twice_as_much(watched: Watched) -> None:
    """What it had computed before it was stopped was taken for a sign of life at the end of that time."""
    assert watched.hung_after_s(60, watched.lives) == math.inf
    assert SILENCE_S <= watched.hung_after_s(60) <= SILENCE_S + 2 * LOOK_EVERY_S


def test_a_child_that_never_lived_hangs_after_the_stated_time(watched: Watched) -> None:
    assert SILENCE_S <= watched.hung_after_s(60) <= SILENCE_S + 2 * LOOK_EVERY_S


def test_a_child_that_computes_without_a_sign_of_life_hangs_once_it_computes_no_more(watched: Watched) -> None:
    def computes() -> None:
        watched.ticks += 1

    assert watched.hung_after_s(60, computes) == math.inf
    assert SILENCE_S <= watched.hung_after_s(60) <= SILENCE_S + 2 * LOOK_EVERY_S


def test_a_child_that_is_given_no_core_lives(watched: Watched) -> None:
    watched.wants_core = True
    assert watched.hung_after_s(60) == math.inf


def test_time_in_which_the_watcher_was_stopped_does_not_count(watched: Watched) -> None:
    """A laptop sleeps, or a container is stopped, for an hour, together with the child, which has a second then."""
    assert watched.hung_after_s(10, watched.lives) == math.inf
    for _ in range(3):
        watched.now_s += 3600
        assert watched.pulse.look(watched.beats) is None
        assert watched.hung_after_s(1) == math.inf
        watched.lives()
        assert watched.pulse.look(watched.beats) is None
