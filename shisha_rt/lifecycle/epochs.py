"""The plans' part of the lifecycle (rule R2): proposals in, one prepared at a time, at most two live.

A new plan takes over without a drain: its segments are built beside the old ones, new frames take it when every
worker concerned has said so, and the old epoch is retired with its last frame. A death, error or timeout in
preparation drops the new epoch everywhere. A restarted worker loads live epochs only.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from typing import Final

from shisha_rt.lifecycle import events as ev
from shisha_rt.lifecycle.places import Places
from shisha_rt.lifecycle.policy import Policy
from shisha_rt.lifecycle.states import EPOCH, Epoch, EpochPhase, PlacePhase, Worker, step
from shisha_rt.plan.plan import Plan

LIVE: Final = "live"
REFUSED: Final = "refused"
DROPPED: Final = "dropped"


class Epochs:
    """`live`: the epochs that frames may be in, oldest first; `preparing`: the next one, if any."""

    def __init__(
        self, places: Places, policy: Policy, story: deque[str], emit: Callable[[ev.Instruction], None]
    ) -> None:
        self.live: dict[int, Epoch] = {}
        self.preparing: Epoch | None = None
        self.proposals: deque[tuple[int, Plan]] = deque()
        self._numbers = itertools.count(1)
        self._places = places
        self._policy = policy
        self._story = story
        self._emit = emit
        self._replan_at_s = 0.0
        self._closed = False

    @property
    def newest(self) -> Epoch | None:
        """The epoch that new frames take."""
        return next(reversed(self.live.values()), None)

    @property
    def settled(self) -> bool:
        """One plan is live, and no other is proposed, being prepared, or being retired."""
        return len(self.live) == 1 and self.preparing is None and not self.proposals

    def runnable(self) -> Epoch | None:
        """The newest epoch, if every place that it needs has a process or will have one."""
        newest = self.newest
        return None if newest is None or self.is_broken(newest) else newest

    def is_broken(self, epoch: Epoch) -> bool:
        """Whether a place of its plan has no worker and will not get one."""
        return any(self._places.by_name[name].phase is PlacePhase.OUT for name in epoch.plan.places)

    def places_in_use(self) -> set[str]:
        """The places that some live epoch, or the one in preparation, runs on."""
        epochs = [*self.live.values(), *([self.preparing] if self.preparing else [])]
        return {name for epoch in epochs for name in epoch.plan.places}

    def propose(self, proposal: int, plan: Plan) -> None:
        if self._closed:
            self._emit(ev.Settled(proposal, None, REFUSED, "the daemon is stopping"))
        elif len(self.proposals) >= self._policy.waiting_plans:
            self._emit(ev.Settled(proposal, None, REFUSED, f"{len(self.proposals)} plans wait already"))
        else:
            self.proposals.append((proposal, plan))

    def advance(self, now: float) -> None:
        """Drop a preparation that lost a place, begin the next if no old epoch lingers, ask for a plan if needed."""
        if self.preparing is not None and (down := self._unavailable(self.preparing.plan)):
            self._drop(f"place {down[0]} is down")
        while self.proposals and self.preparing is None and len(self.live) < 2:
            proposal, plan = self.proposals.popleft()
            if down := self._unavailable(plan):
                self._emit(ev.Settled(proposal, None, REFUSED, f"place {down[0]} is down"))
                continue
            self._begin(proposal, plan, now)
        self._ask_for_plan(now)

    def _begin(self, proposal: int, plan: Plan, now: float) -> None:
        epoch = Epoch(next(self._numbers), plan, proposal, prepare_until_s=now + self._policy.prepare_s)
        self.preparing = epoch
        self._emit(ev.EpochStarted(epoch.number, plan))
        for name in plan.places:
            worker = self._places.worker_of(name)
            if worker is not None:
                self._ask(worker, epoch, epoch.prepare_until_s)

    def _ask(self, worker: Worker, epoch: Epoch, until_s: float) -> None:
        stage = epoch.plan.places.index(worker.place)
        worker.loading[epoch.number] = until_s
        if epoch.phase is EpochPhase.PREPARING:
            epoch.asked[worker.incarnation] = False
        self._emit(ev.Prepare(worker.incarnation, epoch.number, stage))

    def load(self, worker: Worker, now: float) -> None:
        """A worker has come up: it loads its stage of each live epoch, and of the one that waits for it."""
        for epoch in [*self.live.values(), *([self.preparing] if self.preparing else [])]:
            if worker.place in epoch.plan.places:
                self._ask(worker, epoch, now + self._policy.prepare_s)

    def prepared(self, number: int, incarnation: int) -> None:
        worker = self._places.workers.get(incarnation)
        if worker is None or worker.loading.pop(number, None) is None:
            return  # of an epoch that was dropped meanwhile
        worker.loaded.add(number)
        epoch = self.preparing
        if epoch is None or epoch.number != number:
            return
        epoch.asked[incarnation] = True
        ready = {self._places.workers[one].place for one, done in epoch.asked.items() if done}
        if ready.issuperset(epoch.plan.places):
            self._complete(epoch)

    def _complete(self, epoch: Epoch) -> None:
        if self.newest is not None:
            self._step(self.newest, "supersede")
        self._step(epoch, "complete")
        self.live[epoch.number] = epoch
        self.preparing = None
        self._emit(ev.Settled(epoch.proposal, epoch.number, LIVE, "every worker concerned has it loaded"))

    def prepare_failed(self, number: int, incarnation: int, reason: str) -> None:
        worker = self._places.workers.get(incarnation)
        if worker is None or worker.loading.pop(number, None) is None:
            return
        if self.preparing is not None and self.preparing.number == number:
            self._drop(f"{worker.place} could not prepare it: {reason}")
        else:
            self._places.kill(worker, f"it could not load the live plan: {reason}")

    def worker_gone(self, worker: Worker, reason: str) -> None:
        epoch = self.preparing
        if epoch is not None and worker.incarnation in epoch.asked:
            self._drop(f"the worker on {worker.place} died in its preparation: {reason}")

    def tick(self, now: float) -> None:
        """Give up on preparations that took too long."""
        if self.preparing is not None and self.preparing.prepare_until_s <= now:
            self._drop(f"not prepared within {self._policy.prepare_s:g} s")
        for worker in self._places.workers.values():
            if any(until <= now for until in worker.loading.values()):
                self._places.kill(worker, f"a live plan was not loaded within {self._policy.prepare_s:g} s")

    def wake_times(self) -> list[float]:
        times = [self.preparing.prepare_until_s] if self.preparing else []
        times += [t for w in self._places.workers.values() if not w.killed for t in w.loading.values()]
        return [*times, self._replan_at_s] if self._needs_plan() else times

    def _drop(self, reason: str) -> None:
        epoch = self.preparing
        assert epoch is not None
        self.preparing = None
        self._step(epoch, "drop")
        self._unload(epoch)
        self._emit(ev.Settled(epoch.proposal, epoch.number, DROPPED, reason))
        self._emit(ev.EpochEnded(epoch.number))

    def _unload(self, epoch: Epoch) -> None:
        for worker in self._places.workers.values():
            if worker.loading.pop(epoch.number, None) is not None or epoch.number in worker.loaded:
                worker.loaded.discard(epoch.number)
                self._emit(ev.Retire(worker.incarnation, epoch.number))

    def finish_retiring(self) -> None:
        """Retire a superseded epoch that has lost its last frame."""
        for epoch in list(self.live.values()):
            if epoch.phase is EpochPhase.RETIRING and not epoch.frames:
                self._step(epoch, "empty")
                del self.live[epoch.number]
                self._unload(epoch)
                self._emit(ev.EpochEnded(epoch.number))

    def close(self) -> None:
        """The daemon stops: settle what is still proposed."""
        self._closed = True
        if self.preparing is not None:
            self._drop("the daemon stopped")
        while self.proposals:
            proposal, _ = self.proposals.popleft()
            self._emit(ev.Settled(proposal, None, DROPPED, "the daemon stopped"))

    def _needs_plan(self) -> bool:
        if self._closed or self.preparing is not None or self.proposals:
            return False
        newest = self.newest
        return newest is None or bool(self._unavailable(newest.plan))

    def _ask_for_plan(self, now: float) -> None:
        if self._needs_plan() and self._replan_at_s <= now:
            self._replan_at_s = now + self._policy.replan_s
            newest = self.newest
            lost = self._unavailable(newest.plan) if newest else []
            self._emit(ev.Replan(f"place {lost[0]} is out of planning" if lost else "no plan is live"))

    def _unavailable(self, plan: Plan) -> list[str]:
        """The places of `plan` that are out of planning."""
        return [name for name in plan.places if not self._places.by_name[name].available]

    def _step(self, epoch: Epoch, action: str) -> None:
        epoch.phase = step(EPOCH, f"epoch {epoch.number}", epoch.phase, action, self._story)
