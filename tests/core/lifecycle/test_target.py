"""A target: what cannot be answered in time is refused at once, by what the plan's stages take. In virtual time."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field

import pytest

from shisha_rt.core.lifecycle import events as ev
from shisha_rt.core.lifecycle import instructions as do
from shisha_rt.errors import Error
from shisha_rt.plan.plan import Plan
from tests.core.lifecycle.driven_lifecycle import Daemon

FRAME_S = 0.02
COPIES = Plan.chain([(0, 3, [["a"], ["b"]])])


@dataclass
class _Outcome:
    """Seconds of what was answered, how many were refused, and what the last refusal said."""

    took_s: list[float] = field(default_factory=list)
    refused: int = 0
    message: str = ""


def _offer(
    rate: float, seconds: float, target_s: float, *, frame_s: float = FRAME_S, disturbed: float = 0.0, seed: int = 1
) -> _Outcome:
    """Frames of several clients at random moments, `rate` a second, to two workers that take about `frame_s` each, and
    for a part of them, `disturbed`, three times as long.
    """
    daemon = Daemon(slots=6, target_s=target_s, max_in_flight=10_000)
    daemon.connect("a", "b")
    daemon.go_live(COPIES)
    daemon.clear()
    rng, outcome = random.Random(seed), _Outcome()
    ends: list[tuple[float, int, ev.Descriptor]] = []
    busy_until = dict.fromkeys(daemon.lifecycle.places.workers, 0.0)
    arrived_s: dict[int, float] = {}
    next_s, count = rng.expovariate(rate), 0
    while next_s < seconds or ends:
        if ends and (ends[0][0] <= next_s or next_s >= seconds):
            at_s, _, part = heapq.heappop(ends)
            daemon.now = at_s
            made = daemon.lifecycle.handle(ev.PartDone(part, frame_s), at_s)
        else:
            daemon.now, count = next_s, count + 1
            arrived_s[count] = next_s
            made = daemon.lifecycle.handle(ev.FrameArrived(count, f"client {rng.randint(1, 4)}", None, 1), next_s)
            next_s += rng.expovariate(rate)
        for each in made:
            if isinstance(each, do.RunPart):
                begins_s = max(daemon.now, busy_until[each.descriptor.incarnation])
                slower = 3 if rng.random() < disturbed else 1
                busy_until[each.descriptor.incarnation] = begins_s + slower * frame_s * rng.uniform(0.9, 1.1)
                heapq.heappush(ends, (busy_until[each.descriptor.incarnation], each.descriptor.frame, each.descriptor))
            elif isinstance(each, do.Deliver):
                outcome.took_s.append(daemon.now - arrived_s[each.frame])
            elif isinstance(each, do.Refuse):
                assert each.kind is Error.TARGET_OUT_OF_REACH
                outcome.refused, outcome.message = outcome.refused + 1, each.message
    return outcome


def _in_time(outcome: _Outcome, target_s: float) -> int:
    return sum(took_s <= target_s for took_s in outcome.took_s)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("load", [1.2, 1.5, 5.0])
def test_beyond_capacity_nearly_all_that_is_answered_is_in_time(load: float, seed: int) -> None:
    target_s, capacity = 0.2, 2 / FRAME_S
    outcome = _offer(load * capacity, 20, target_s, seed=seed)
    within = _in_time(outcome, target_s)
    assert within >= 0.97 * len(outcome.took_s)
    assert within >= 0.95 * 20 * capacity, "the workers have as much to do as they can"
    assert "200 ms" in outcome.message, "it names the target"


def test_without_a_target_a_queue_grows_and_all_are_late() -> None:
    outcome = _offer(1.5 * 2 / FRAME_S, 10, float("inf"))
    assert not outcome.refused
    assert _in_time(outcome, 0.2) < 0.5 * len(outcome.took_s)


def test_below_capacity_hardly_anything_is_refused() -> None:
    outcome = _offer(0.6 * 2 / FRAME_S, 20, 0.2)
    assert outcome.refused <= 0.005 * len(outcome.took_s)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("load", "part"), [(0.3, 0.95), (0.6, 0.9), (1.0, 0.75)])
def test_of_frames_of_which_few_fit_into_the_target_no_more_are_refused_than_need_be(
    load: float, part: float, seed: int
) -> None:
    target_s, frame_s, seconds = 0.4, 0.14, 150
    outcome = _offer(load * 2 / frame_s, seconds, target_s, frame_s=frame_s, disturbed=0.02, seed=seed)
    assert _in_time(outcome, target_s) >= part * (len(outcome.took_s) + outcome.refused)


def test_a_target_that_no_frame_can_make_still_lets_single_frames_through() -> None:
    outcome = _offer(50, 10, 0.005)
    assert outcome.refused
    assert len(outcome.took_s) > 100, "else nobody would know once it can be made again"


def test_a_frame_of_a_quiet_client_is_not_refused_for_the_queue_of_a_greedy_one() -> None:
    daemon = Daemon(slots=2, target_s=10 * FRAME_S)
    daemon.connect("a", "b")
    daemon.go_live(COPIES)
    for frame in (daemon.send(), daemon.send()):
        daemon.feed(ev.PartDone(daemon.part(frame), FRAME_S), FRAME_S)
    while not daemon.all(do.Refuse):
        daemon.send(client="greedy")
    assert len(daemon.all(do.Refuse)) == 1
    daemon.send(client="quiet")
    assert len(daemon.all(do.Refuse)) == 1
    daemon.send(client="greedy", priority=1)
    assert len(daemon.all(do.Refuse)) == 1, "nor is an urgent one for those that it goes before"


def test_a_request_is_refused_for_the_last_of_its_frames() -> None:
    """It is answered when all of them are; the first alone would be in time."""
    daemon = Daemon(slots=2, target_s=10 * FRAME_S)
    daemon.connect("a", "b")
    daemon.go_live(COPIES)
    for frame in (daemon.send(), daemon.send()):
        daemon.feed(ev.PartDone(daemon.part(frame), FRAME_S), FRAME_S)
    daemon.send()
    daemon.send(frames=32)
    (refusal,) = daemon.all(do.Refuse)
    assert refusal.kind is Error.TARGET_OUT_OF_REACH
    daemon.send(frames=4)
    assert len(daemon.all(do.Refuse)) == 1
