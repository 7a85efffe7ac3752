"""When costs that were measured beside others are measured again."""

from __future__ import annotations

from itertools import pairwise

from shisha_rt.core.tuning.recalibration import CALM_S, FIRST_PAUSE_S, LONGEST_PAUSE_S, Recalibration
from shisha_rt.costs.profiles import DISTURBED

STEP_S = 2.0


def asked_at(again: Recalibration, until_s: float, others_ratio: float = 0.0, start_s: float = 0.0) -> list[float]:
    looks = int((until_s - start_s) / STEP_S)
    return [at_s for at_s in (start_s + STEP_S * i for i in range(looks)) if again.look(at_s, others_ratio, 0)]


def test_what_was_measured_in_calm_stays() -> None:
    assert asked_at(Recalibration(DISTURBED), 1000.0) == []


def test_once_the_host_has_been_calm_for_some_time() -> None:
    again = Recalibration(0.5)
    assert asked_at(again, 100.0, others_ratio=0.3) == []
    assert asked_at(again, 130.0, start_s=100.0) == [100.0 + CALM_S]
    again.measured(0.01, left_out=1)
    assert asked_at(again, 500.0, start_s=200.0) != []
    again.measured(0.01)
    assert asked_at(again, 5000.0, start_s=600.0) == []
    assert asked_at(again, 9999.0, start_s=130.0) == []


def test_neither_others_nor_frames_may_come_meanwhile() -> None:
    again = Recalibration(0.5)
    for at_s in range(0, 400, 4):
        assert not again.look(at_s, 0.0, in_flight=0)
        assert not again.look(at_s + STEP_S, *((0.5, 0), (0.0, 3))[at_s // 4 % 2])


def test_tries_come_ever_more_seldom() -> None:
    again = Recalibration(0.5)
    at_s = asked_at(again, 30_000.0)
    pauses_s = [later - earlier for earlier, later in pairwise(at_s)]
    assert pauses_s[0] == FIRST_PAUSE_S
    assert all(2 * earlier >= later >= earlier for earlier, later in pairwise(pauses_s))
    assert pauses_s[-1] == LONGEST_PAUSE_S
