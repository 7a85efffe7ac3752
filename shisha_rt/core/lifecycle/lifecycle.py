"""The state of serving, changed here alone: events in, instructions out (rules R1, R2, R3 and R6). No side effects.

It owns slots, attempts, epochs, replays, order and deadlines, and the gate that every plan passes. What it guarantees,
whatever moves, dies or restarts, is in the docstrings of `frames.py`, `dealing.py`, `epochs.py` and `places.py`;
`tests/core/lifecycle/invariants.py` checks it.

`handle` first lets time pass (deadlines, timeouts, restarts), then applies the event, then hands out the work that this
made possible. Times are seconds of one monotonic clock that the caller reads.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection
from typing import Any, Final

from shisha_rt.core.lifecycle import events as ev
from shisha_rt.core.lifecycle.dealing import Dealing
from shisha_rt.core.lifecycle.epochs import Epochs
from shisha_rt.core.lifecycle.frames import Frames
from shisha_rt.core.lifecycle.instructions import Instruction
from shisha_rt.core.lifecycle.places import Places
from shisha_rt.core.lifecycle.policy import Policy
from shisha_rt.core.lifecycle.streams import Streams
from shisha_rt.core.lifecycle.tables import Transition
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.verify import PlanRules

_STORY: Final = 256  # the last transitions, for error messages: few, to stay in caches, as every frame adds some
OF_FRAMES: Final = frozenset((ev.FrameArrived, ev.FrameCancelled, ev.PartDone, ev.PartFailed, ev.Tick))
"""Events that change nothing but frames while all is calm."""


class Lifecycle:
    """The state of a serving daemon. Read its fields freely; change it only through `handle`.

    `rules`: what plans may be, and on which places. Each place gets a worker, unless it is `down` at first.
    `slot_count`: slots used without batches; the largest batch allowed multiplies their number. `calm`: only frames can
    change until an event that is not in `OF_FRAMES`.
    """

    def __init__(self, rules: PlanRules, slot_count: int, policy: Policy, down: Collection[str] = ()) -> None:
        self.policy = policy
        self.story: deque[Transition] = deque(maxlen=_STORY)
        self.instructions: list[Instruction] = []
        emit = self.instructions.append
        self.places = Places(rules.places, policy, self.story, emit, down)
        self.epochs = Epochs(self.places, rules, policy, self.story, emit)
        self.dealing = Dealing(self.places, self.epochs, Streams(policy), policy, emit)
        self.frames = Frames(slot_count, self.dealing, policy, self.story, emit)
        self.calm = False
        frames, epochs, places = self.frames, self.epochs, self.places
        self._apply: dict[type, Callable[[Any, float], None]] = {
            ev.FrameArrived: frames.arrived,
            ev.FrameCancelled: frames.cancelled,
            ev.PartDone: frames.part_done,
            ev.PartFailed: frames.part_failed,
            ev.WorkerReady: self._worker_ready,
            ev.WorkerHung: lambda e, now: places.hung(e.incarnation, e.reason, now),
            ev.PlanProposed: epochs.propose,
            ev.PlanPlaced: lambda e, now: epochs.placed(e),
            ev.PlanNotPlaced: lambda e, now: epochs.not_placed(e),
            ev.Lead: lambda e, now: epochs.lead(e.epoch, now),
            ev.LetGo: lambda e, now: epochs.let_go(now),
            ev.StagePrepared: epochs.prepared,
            ev.StageFailed: epochs.prepare_failed,
            ev.PlaceDown: lambda e, now: places.take_down(e.place),
            ev.PlaceUp: lambda e, now: places.bring_up(e.place, now),
            ev.PlaceReachable: lambda e, now: places.reachable(e.place, now),
            ev.Drain: lambda e, now: frames.drain(),
            ev.Stop: self._stop,
            ev.Tick: lambda e, now: None,
        }

    def handle(self, event: ev.Event, now_s: float) -> list[Instruction]:
        """Apply one event; the instructions are to be carried out in their order before the next event."""
        if self.frames.deadlines.first_s <= now_s:
            self.frames.expire(now_s)
        if self.calm and type(event) in OF_FRAMES:
            self._apply[type(event)](event, now_s)
            if self.frames.streams.turns.levels:
                self.frames.admit(now_s)
            if self.places.roomy or self.dealing.wake_s <= now_s:
                self.dealing.dispatch(now_s)
        else:
            self._let_pass(event, now_s)
        done = self.instructions[:]
        self.instructions.clear()
        return done

    def _let_pass(self, event: ev.Event, now_s: float) -> None:
        self.places.tick(now_s)
        if isinstance(event, ev.WorkerGone):  # before `epochs.tick`, which excuses frames of the workers that it kills
            self._worker_gone(event, now_s)
            self.epochs.tick(now_s)
        else:
            self.epochs.tick(now_s)
            self._apply[type(event)](event, now_s)
        self._pump(now_s)

    def next_wake_s(self) -> float | None:
        """When `Tick` is due at the latest, if nothing else happens."""
        deadlines = self.frames.deadlines
        deadline_s = deadlines.next_s() if deadlines.first_s < math.inf else None
        if self.dealing.wake_s < math.inf:
            deadline_s = self.dealing.wake_s if deadline_s is None else min(deadline_s, self.dealing.wake_s)
        if self.calm:
            return deadline_s
        times = [] if deadline_s is None else [deadline_s]
        times += [self.frames.outage.wake_s, *self.places.wake_times()]
        times += self.epochs.wake_times()
        return min((at_s for at_s in times if at_s < math.inf), default=None)

    @property
    def idle(self) -> bool:
        """No accepted frame is unanswered."""
        return not self.frames.streams.undelivered

    @property
    def live(self) -> tuple[int, Plan] | None:
        """The epoch that new frames use, and its plan: kept here and nowhere else."""
        newest = self.epochs.newest
        return None if newest is None else (newest.number, newest.plan)

    @property
    def can_run(self) -> bool:
        """Whether frames can be computed: each stage of the live plan is loaded by the worker of at least one team."""
        return self.epochs.can_run

    @property
    def changing(self) -> bool:
        """Whether frames of another epoch than the live one are still under way."""
        live = self.epochs.live
        return len(live) > 1 and any(epoch.frames for epoch in live.values() if epoch is not self.epochs.newest)

    @property
    def is_whole(self) -> bool:
        """Whether no team is missing: each team of the live plan has a worker with its stages loaded."""
        return self.epochs.is_whole

    @property
    def beside(self) -> tuple[int, Plan] | None:
        """The epoch that is compared with the live one, or kept beside it, and its plan."""
        beside = self.epochs.beside
        return None if beside is None else (beside.number, beside.plan)

    @property
    def proposals(self) -> list[ev.PlanProposed]:
        """All proposals that have not ended, the one in preparation first: kept here and nowhere else."""
        preparing = self.epochs.preparing
        first = [] if preparing is None else [preparing.proposed]
        return [*first, *(queued.proposed for queued in self.epochs.proposals)]

    @property
    def available(self) -> tuple[str, ...]:
        """The places that a plan may use, in the machine's order."""
        return self.places.available

    def _worker_ready(self, event: ev.WorkerReady, now: float) -> None:
        if self.places.ready(event.incarnation, now):
            self.epochs.load(self.places.workers[event.incarnation], now)

    def _worker_gone(self, event: ev.WorkerGone, now: float) -> None:
        worker = self.places.workers.get(event.incarnation)
        if worker is not None:
            worker.blameless |= self.epochs.blames_plan(worker, event)
            self.places.gone(worker, event, now)
            self.epochs.worker_gone(worker, event.reason)
            self.frames.worker_gone(worker, event, now)

    def _stop(self, event: ev.Stop, now: float) -> None:
        self.frames.stop()
        self.epochs.close(now)
        self.places.close()

    def _pump(self, now: float) -> None:
        """Do what the event has made possible."""
        self.epochs.advance(now)
        self.frames.give_up(now)
        self.frames.rescue(now)
        self.frames.admit(now)
        self.dealing.dispatch(now)
        self.epochs.finish_retiring()
        self.epochs.advance(now)
        if self.places.dismissed:
            self.places.dismiss(self.epochs.places_in_use(), now)
        if self.places.leaving:
            self.places.release(self.epochs.places_planned())
        # The usual state: every worker up, one plan, nothing pending. Frames cannot change that, so while requests
        # alone arrive, the passes above would find nothing. Skipping them saves a third of the daemon's time per frame.
        self.calm = (
            self.epochs.at_rest and self.places.at_rest and not self.frames.stranded and not self.frames.outage.lasts
        )
