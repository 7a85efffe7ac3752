"""Batches that wait for the frames that follow answers. In virtual time: two workers, runs with a fixed cost."""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections import Counter
from dataclasses import dataclass, field
from statistics import median

import pytest

from shisha_rt.core.lifecycle import events as ev
from shisha_rt.core.lifecycle import instructions as do
from shisha_rt.core.lifecycle.batch_filling import Returns, RunTimes
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.verify import PlanRules
from tests.core.lifecycle.driven_lifecycle import Daemon

FIXED_S, FRAME_S = 0.012, 0.015
MESSAGE_S = 0.0002
COPIES = Plan.chain([(0, 3, [["a"], ["b"]])])
MOST_WAIT_S = FIXED_S  # three quarters of it, by estimates


@dataclass
class _Served:
    """Sizes of all runs; seconds that answers took; the longest time for which a worker idled while a frame waited."""

    sizes: list[int] = field(default_factory=list)
    took_s: list[float] = field(default_factory=list)
    idle_s: float = 0.0
    unanswered: int = 0


@dataclass
class _Clients:
    """Some with `window` ordered frames in flight, which take `frame_s` to send each; or frames at random moments."""

    count: int = 1
    window: int = 8
    frame_s: float = 0.0014
    rate: float = 0.0
    until_s: float = math.inf


def _serve(
    clients: _Clients, seconds: float, fixed_s: float = FIXED_S, batch: int = 4, seed: int = 1, faults: float = 0.0
) -> _Served:
    """`faults`: how often, on average, a worker dies or a plan is proposed, in a second."""
    rules = PlanRules(4, ("a", "b"), most_batch=32)
    daemon = Daemon(slots=64, rules=rules, batch=batch, restart_delay_s=0.0, deaths_in_window=1_000_000)
    daemon.connect("a", "b")
    daemon.propose(COPIES, ev.Owner.DAEMON)
    daemon.prepare("a", "b")
    lifecycle, rng, served, order = daemon.lifecycle, random.Random(seed), _Served(), itertools.count()
    queue: list[tuple[float, int, ev.Event | int | None]] = []  # events, clients that send a frame, None: a fault
    busy_until = dict.fromkeys(lifecycle.places.workers, 0.0)
    sender_free, sender_of, sent_s = [0.0] * clients.count, dict[int, int](), dict[int, float]()

    def send(client: int, now_s: float) -> None:
        if clients.rate:
            sender_free[client] += rng.expovariate(clients.rate)
        else:
            sender_free[client] = max(now_s, sender_free[client]) + clients.frame_s * rng.uniform(0.7, 1.3)
        if sender_free[client] < clients.until_s:
            heapq.heappush(queue, (sender_free[client] + MESSAGE_S, next(order), client))

    for client in range(clients.count):
        for _ in range(1 if clients.rate else clients.window):
            send(client, 0.0)
    if faults:
        heapq.heappush(queue, (rng.expovariate(faults), next(order), None))
    while daemon.now < seconds and not (daemon.now > clients.until_s and lifecycle.idle):
        wake_s = lifecycle.next_wake_s()
        event: ev.Event | int | None = ev.Tick()
        before_s = daemon.now
        if queue and (wake_s is None or queue[0][0] <= wake_s):
            daemon.now, _, event = heapq.heappop(queue)
        else:
            assert wake_s is not None
            daemon.now = max(wake_s, daemon.now)
        if _idles(daemon):
            served.idle_s = max(served.idle_s, daemon.now - max(before_s, _ready_s(daemon)))
        if isinstance(event, int):
            number = len(sender_of) + 1
            sender_of[number], sent_s[number] = event, daemon.now
            stream = None if clients.rate else "s"
            if clients.rate:
                send(event, daemon.now)
            event = ev.FrameArrived(number, f"client {event}", stream, 1)
        daemon.clear()
        if event is None:
            heapq.heappush(queue, (daemon.now + rng.expovariate(faults), next(order), None))
            _disturb(daemon, rng)
            busy_until |= dict.fromkeys(lifecycle.places.workers.keys() - busy_until.keys(), 0.0)
        elif faults:
            daemon.feed(event)  # and look at the invariants
        else:
            daemon.made += lifecycle.handle(event, daemon.now)
        for made in daemon.made:
            if isinstance(made, do.RunPart):
                part, frames = made.descriptor, len(made.descriptor.frames)
                took_s = (fixed_s + FRAME_S * frames) * rng.uniform(0.95, 1.05)
                begins_s = max(daemon.now + MESSAGE_S, busy_until[part.incarnation])
                busy_until[part.incarnation] = begins_s + took_s
                served.sizes.append(frames)
                heapq.heappush(queue, (begins_s + took_s + MESSAGE_S, next(order), ev.PartDone(part, took_s)))
            elif isinstance(made, do.Deliver):
                served.took_s.append(daemon.now - sent_s[made.frame])
                if not clients.rate:
                    send(sender_of[made.frame], daemon.now + MESSAGE_S)
    served.unanswered = len(sent_s) - len(served.took_s)
    return served


def _disturb(daemon: Daemon, rng: random.Random) -> None:
    """A worker ends with a frame of its run, or at rest, and comes back; or a plan is proposed, and goes live."""
    place = rng.choice("ab")
    if rng.random() < 0.5:
        worker = daemon.lifecycle.places.serving.get(place)
        out = [] if worker is None else list(worker.out)
        daemon.kill(place, running=out[0].frame if out else None)
        daemon.restart(place)
    else:
        daemon.propose(COPIES, ev.Owner.DAEMON)
        daemon.prepare("a", "b")


def _idles(daemon: Daemon) -> bool:
    """Whether a worker has nothing to do while a frame waits for one."""
    return bool(_waiting(daemon)) and any(not worker.out for worker in daemon.lifecycle.places.workers.values())


def _ready_s(daemon: Daemon) -> float:
    return min(part[2] for part in _waiting(daemon))


def _waiting(daemon: Daemon) -> list[tuple[int, int, float, object]]:
    return [part for epoch in daemon.lifecycle.epochs.live.values() for pool in epoch.pools for part in pool.queue]


@pytest.mark.parametrize(("clients", "window"), [(1, 8), (4, 2), (8, 1)])
def test_frames_that_follow_answers_share_runs_in_full(clients: int, window: int) -> None:
    """Half of all runs had a single frame, with eight frames in flight and batches of four on two workers."""
    served = _serve(_Clients(clients, window), 10)
    later = served.sizes[len(served.sizes) // 4 :]
    assert sum(later) / len(later) > 3.7
    assert len(served.took_s) > 100 * 10
    assert served.idle_s < MOST_WAIT_S


def test_fewer_frames_in_flight_than_batches_hold_are_shared_out() -> None:
    served = _serve(_Clients(window=6), 20, batch=16)
    later = served.sizes[len(served.sizes) // 4 :]
    assert Counter(later).most_common(1)[0][0] == 3, "each of the two workers has its half"
    assert served.idle_s < MOST_WAIT_S


@pytest.mark.parametrize("load", [0.5, 0.75, 0.9])
def test_frames_at_random_moments_are_hardly_waited_for(load: float, monkeypatch: pytest.MonkeyPatch) -> None:
    clients = _Clients(count=4, rate=load * 2 * 4 / (FIXED_S + 4 * FRAME_S) / 4)
    served = _serve(clients, 30)
    monkeypatch.setattr(RunTimes, "worth_waiting_s", lambda *_: 0.0)
    at_once = _serve(clients, 30)
    assert at_once.idle_s == 0.0
    assert served.idle_s < MOST_WAIT_S
    assert median(served.took_s) < 1.1 * median(at_once.took_s)


def test_runs_without_a_fixed_cost_wait_for_nothing() -> None:
    served = _serve(_Clients(), 20, fixed_s=0.0)
    assert served.idle_s < 0.1 * MOST_WAIT_S, "as far as the times of runs tell"


def test_a_frame_that_nothing_follows_is_not_held_up() -> None:
    served = _serve(_Clients(until_s=10.0), 20)
    assert served.idle_s < MOST_WAIT_S
    assert len(served.took_s) == sum(served.sizes), "all are answered"


@pytest.mark.parametrize("seed", range(4))
def test_deaths_and_new_plans_while_batches_wait_lose_nothing(seed: int) -> None:
    rng = random.Random(seed)
    clients = _Clients(rng.randint(1, 4), rng.randint(4, 9), rng.uniform(0.0, 0.004), until_s=4.0)
    served = _serve(clients, math.inf, rng.uniform(0.0, 0.1), rng.choice((2, 4, 8)), seed, faults=5.0)
    assert served.unanswered == 0
    assert len(served.took_s) > 50


def test_only_the_newest_plan_waits() -> None:
    """Frames come for it alone, so batches of the one before it are never filled."""
    daemon = Daemon(slots=64, rules=PlanRules(4, ("a",), most_batch=4), batch=4, places=("a",))
    daemon.connect("a")
    daemon.propose(Plan.of([(0, 3, "a")]), ev.Owner.DAEMON)
    daemon.prepare("a")
    returns = daemon.lifecycle.dealing.returns
    epoch = daemon.lifecycle.epochs.newest
    assert epoch is not None
    for frames in (1, 4) * 20:
        epoch.run_times[0].note("a", frames, FIXED_S + frames * FRAME_S)
    returns.filled = lambda *_: (4, 0.0)  # type: ignore[method-assign]
    frame = daemon.send()
    assert not daemon.parts(frame)
    daemon.propose(Plan.of([(0, 3, "a")]))
    daemon.prepare("a")
    assert daemon.part(frame).epoch == epoch.number


def test_what_a_run_takes_beside_its_frames_is_told_by_runs_of_several_sizes() -> None:
    times = RunTimes()
    times.note("a", 4, 0.072)
    assert (times.worth_waiting_s("a"), times.of("a", 1)) == (0.0, 0.018), "one size alone says nothing"
    rng = random.Random(1)
    for _ in range(200):
        frames = rng.randint(1, 4)
        times.note("a", frames, (FIXED_S + FRAME_S * frames) * rng.uniform(0.98, 1.02))
    times.note("b", 1, 2 * (FIXED_S + FRAME_S))
    for _ in range(10_000):
        times.note("a", 4, 0.072)
    assert times.worth_waiting_s("a") == pytest.approx(0.75 * FIXED_S, rel=0.3), "kept while all runs are full"
    assert times.of("b", 4) == pytest.approx(2 * 0.072, rel=0.1), "what is known of the one holds for the other"
    assert times.alone_s() == pytest.approx(0.027, rel=0.1)


def test_frames_are_expected_after_answers_for_a_while() -> None:
    returns = Returns()
    for burst in range(80):
        returns.answered(4, 0.08 * burst)
        for position in range(4):
            returns.came(0.08 * burst + 0.01 + 0.001 * position)
    returns.answered(4, 7.0)
    returns.came(7.01)
    frames, takes_s = returns.filled(1, 0, 1, 8, 7.011)
    assert frames == 4
    assert takes_s == pytest.approx(0.003, rel=0.5), "three follow, a millisecond apart"
    assert returns.filled(1, 0, 1, 2, 7.011)[0] == 2, "as many as a run may have"
    assert returns.filled(1, 0, 2, 8, 7.011)[0] == 2, "another idle team has its share of them"
    frames, takes_s = returns.filled(2, 4, 1, 8, 7.2)
    assert frames == 6
    assert takes_s == pytest.approx(0.014, rel=0.5), "four are answered first"
    assert returns.filled(1, 0, 1, 8, 7.2)[0] == 1, "they would have come"
