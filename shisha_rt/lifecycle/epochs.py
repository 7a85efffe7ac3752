"""The plans' part of the lifecycle (rule R2): proposals in, one prepared at a time, at most two live.

Every plan passes one gate, whoever made it: `verify`, as it is proposed, and again when its operators are placed.
Proposals take their turns in the order in which they came, but none waits for one whose operators are not placed yet.
Each ends once (`Settled`), and one of the daemon's own holds only for the epoch under which it was made: what was
searched, placed or chosen for another plan is out of date.

A new plan takes over without a drain: its segments are built beside the old ones, new frames take it when every
worker concerned has said so, and the old epoch is retired with its last frame. A death, error or timeout in
preparation drops the new epoch everywhere. A restarted worker loads live epochs only.

Each (stage, team) is prepared by itself, in the worker of the team's lead; the other places of a team need no worker.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from typing import Final

from shisha_rt.lifecycle import events as ev
from shisha_rt.lifecycle import instructions as do
from shisha_rt.lifecycle.instructions import Ending
from shisha_rt.lifecycle.places import Places
from shisha_rt.lifecycle.policy import Policy
from shisha_rt.lifecycle.records import Epoch, QueuedPlan, WorkerState
from shisha_rt.lifecycle.tables import EPOCH, EpochPhase, Transition, step
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.verify import PlanRules

_FAULTS_TOLD: Final = 5


class Epochs:
    """`live`: the epochs that frames may be in, oldest first; `preparing`: the next one, if any."""

    def __init__(
        self,
        places: Places,
        rules: PlanRules,
        policy: Policy,
        story: deque[Transition],
        emit: Callable[[do.Instruction], None],
    ) -> None:
        self.live: dict[int, Epoch] = {}
        self.preparing: Epoch | None = None
        self.proposals: deque[QueuedPlan] = deque()
        self._rules = rules
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

    @property
    def plans(self) -> list[Plan]:
        """Of every epoch that a worker may have."""
        return [epoch.plan for epoch in self._epochs()]

    def _epochs(self) -> list[Epoch]:
        return [*self.live.values(), *([self.preparing] if self.preparing else [])]

    def runnable(self) -> Epoch | None:
        """The newest epoch, if every stage has a team that can run it, now or soon."""
        newest = self.newest
        return None if newest is None or self.is_broken(newest) else newest

    def is_broken(self, epoch: Epoch) -> bool:
        """Whether some stage has no team left whose lead has a worker or will get one."""
        out = self._places.out
        return bool(out) and any(out.issuperset(pool.leads) for pool in epoch.pools)

    def places_in_use(self) -> set[str]:
        """The places whose workers some live epoch, or the one in preparation, needs."""
        return {lead for epoch in self._epochs() for pool in epoch.pools for lead in pool.leads}

    def passed_by_none_but(self, ended: Plan, passing: Callable[[Plan], set[str]]) -> set[str]:
        """The tensors for which slots need no room any more, now that `ended` has.

        `passing`: the names of those that a plan's stages pass to each other.
        """
        return passing(ended).difference(*map(passing, self.plans))

    # --- proposals --------------------------------------------------------------------------------------------

    def propose(self, event: ev.PlanProposed, now: float) -> None:
        faults = self._rules.problems(event.plan)
        placed = not self._rules.devices or any(stage.placement for stage in event.plan.stages)
        if not faults and placed:
            faults = self._rules.placement_problems(event.plan)
        if self._closed:
            self._refuse(event, "the daemon is stopping")
        elif faults:
            self._refuse(event, _told(faults))
        elif len(self.proposals) >= self._policy.waiting_plans:
            self._refuse(event, f"{len(self.proposals)} plans wait already")
        else:
            self.proposals.append(QueuedPlan(event, event.plan, placed, now + self._policy.prepare_s))
            if not placed:
                self._emit(do.PlaceOperators(event.owner, event.proposal, event.plan))

    def placed(self, event: ev.PlanPlaced) -> None:
        proposal = self._unplaced(event.owner, event.proposal)
        if proposal is None:
            return
        faults = self._rules.problems(event.plan) or self._rules.placement_problems(event.plan)
        if faults:
            self.proposals.remove(proposal)
            self._refuse(proposal.event, _told(faults))
        else:
            proposal.plan, proposal.placed = event.plan, True

    def not_placed(self, event: ev.PlanNotPlaced) -> None:
        proposal = self._unplaced(event.owner, event.proposal)
        if proposal is not None:
            self.proposals.remove(proposal)
            self._refuse(proposal.event, event.reason)

    def _first_placed(self) -> QueuedPlan | None:
        return next((one for one in self.proposals if one.placed), None)

    def _unplaced(self, owner: ev.Owner, number: int) -> QueuedPlan | None:
        """None if it has ended meanwhile."""
        waiting = (one for one in self.proposals if not one.placed)
        return next((one for one in waiting if (one.event.owner, one.event.proposal) == (owner, number)), None)

    def _refuse(self, event: ev.PlanProposed, reason: str) -> None:
        self._settle(event, event.plan, None, Ending.REFUSED, reason)

    def _settle(
        self,
        event: ev.PlanProposed,
        plan: Plan,
        epoch: int | None,
        ending: Ending,
        reason: str,
        bad: str | None = None,
        failed: int | None = None,
    ) -> None:
        self._emit(do.Settled(event.owner, event.proposal, plan, epoch, ending, reason, bad, failed))

    def advance(self, now: float) -> None:
        """Drop a preparation that lost a place, begin the next if no old epoch lingers, ask for a plan if needed."""
        if self.preparing is not None and (down := self._unavailable(self.preparing.plan)):
            self._drop(f"place {down[0]} is down")
        while self.preparing is None and len(self.live) < 2 and (proposal := self._first_placed()) is not None:
            self.proposals.remove(proposal)
            event = proposal.event
            newest = self.newest.number if self.newest is not None else None
            if event.owner is not ev.Owner.CLIENT and event.under != newest:
                self._settle(event, proposal.plan, None, Ending.DROPPED, f"epoch {newest} has gone live meanwhile")
            elif down := self._unavailable(proposal.plan):
                self._refuse(event, f"place {down[0]} is down")
            else:
                self._begin(event, proposal.plan, now)
        self._ask_for_plan(now)

    # --- preparing --------------------------------------------------------------------------------------------

    def _begin(self, proposal: ev.PlanProposed, plan: Plan, now: float) -> None:
        epoch = Epoch(next(self._numbers), plan, proposal, prepare_until_s=now + self._policy.prepare_s)
        self.preparing = epoch
        self._emit(do.EpochStarted(proposal.owner, proposal.proposal, epoch.number, plan))
        for name in plan.leads:
            worker = self._places.serving.get(name)
            if worker is not None:
                self._ask(worker, epoch, epoch.prepare_until_s)

    def _ask(self, worker: WorkerState, epoch: Epoch, until_s: float) -> None:
        """For every stage that the worker has in this epoch."""
        pool = next((pool for pool in epoch.pools if worker.place in pool.leads), None)
        if pool is None:
            return
        teams = epoch.plan.stages[pool.stages[0]].teams
        team = teams[pool.leads.index(worker.place)]
        if epoch.phase is EpochPhase.PREPARING:
            epoch.asked.add(worker.incarnation)
        for index in pool.stages:
            worker.loading[epoch.number, index] = until_s
            self._emit(do.PrepareStage(worker.incarnation, epoch.number, index, team, epoch.plan))

    def load(self, worker: WorkerState, now: float) -> None:
        """A worker has come up: it loads its stages of each live epoch, and of the one that waits for it."""
        for epoch in self._epochs():
            self._ask(worker, epoch, now + self._policy.prepare_s)

    def prepared(self, event: ev.StagePrepared) -> None:
        worker, key = self._places.workers.get(event.incarnation), (event.epoch, event.stage)
        if worker is None or worker.loading.pop(key, None) is None:
            return  # of an epoch that was dropped meanwhile
        worker.loaded.add(key)
        epoch = self.preparing
        if epoch is None or epoch.number != event.epoch:
            return
        epoch.unprepared.discard((event.stage, worker.place))
        if not epoch.unprepared:
            self._complete(epoch)

    def _complete(self, epoch: Epoch) -> None:
        if self.newest is not None:
            self._step(self.newest, "supersede")
        self._step(epoch, "complete")
        self.live[epoch.number] = epoch
        self.preparing = None
        reason = "every worker concerned has it loaded"
        self._settle(epoch.proposal, epoch.plan, epoch.number, Ending.LIVE, reason)

    def prepare_failed(self, event: ev.StageFailed) -> None:
        worker = self._places.workers.get(event.incarnation)
        if worker is None or worker.loading.pop((event.epoch, event.stage), None) is None:
            return
        if self.preparing is not None and self.preparing.number == event.epoch:
            reason = f"{worker.place} could not prepare it: {event.reason}"
            self._drop(reason, event.reason if event.bad_machine else None, event.stage)
        else:
            self._places.kill(worker, f"it could not load the live plan: {event.reason}")

    def worker_gone(self, worker: WorkerState, reason: str) -> None:
        epoch = self.preparing
        if epoch is not None and worker.incarnation in epoch.asked:
            self._drop(f"the worker on {worker.place} died in its preparation: {reason}")

    def tick(self, now: float) -> None:
        """Give up on preparations, and on placements, that took too long."""
        for proposal in [one for one in self.proposals if not one.placed and one.until_s <= now]:
            self.proposals.remove(proposal)
            reason = f"its operators were not placed within {self._policy.prepare_s:g} s"
            self._settle(proposal.event, proposal.plan, None, Ending.DROPPED, reason)
        if self.preparing is not None and self.preparing.prepare_until_s <= now:
            self._drop(f"not prepared within {self._policy.prepare_s:g} s")
        for worker in self._places.workers.values():
            if any(until <= now for until in worker.loading.values()):
                self._places.kill(worker, f"a live plan was not loaded within {self._policy.prepare_s:g} s")

    def wake_times(self) -> list[float]:
        times = [self.preparing.prepare_until_s] if self.preparing else []
        times += [one.until_s for one in self.proposals if not one.placed]
        times += [t for w in self._places.workers.values() if not w.killed for t in w.loading.values()]
        return [*times, self._replan_at_s] if self._needs_plan() else times

    def _drop(self, reason: str, bad_machine: str | None = None, failed_stage: int | None = None) -> None:
        epoch = self.preparing
        assert epoch is not None
        self.preparing = None
        self._step(epoch, "drop")
        self._unload(epoch)
        self._settle(epoch.proposal, epoch.plan, epoch.number, Ending.DROPPED, reason, bad_machine, failed_stage)
        self._emit(do.EpochEnded(epoch.number, epoch.plan))

    def _unload(self, epoch: Epoch) -> None:
        stages = {(epoch.number, index) for index in range(len(epoch.plan.stages))}
        for worker in self._places.workers.values():
            if not stages.isdisjoint(worker.loaded) or not stages.isdisjoint(worker.loading):
                worker.loaded -= stages
                for key in stages & worker.loading.keys():
                    del worker.loading[key]
                self._emit(do.RetireEpoch(worker.incarnation, epoch.number))

    def finish_retiring(self) -> None:
        """Retire a superseded epoch that has lost its last frame."""
        for epoch in list(self.live.values()):
            if epoch.phase is EpochPhase.RETIRING and not epoch.frames:
                self._step(epoch, "empty")
                del self.live[epoch.number]
                self._unload(epoch)
                self._emit(do.EpochEnded(epoch.number, epoch.plan))

    def close(self) -> None:
        """The daemon stops: settle what is still proposed."""
        self._closed = True
        if self.preparing is not None:
            self._drop("the daemon stopped")
        while self.proposals:
            proposal = self.proposals.popleft()
            self._settle(proposal.event, proposal.plan, None, Ending.DROPPED, "the daemon stopped")

    def _needs_plan(self) -> bool:
        """One that waits for its placement, perhaps for long, may be the first, but stands in for none that is lost."""
        newest = self.newest
        if self._closed or self.preparing is not None or self._first_placed() is not None:
            return False
        return not self.proposals if newest is None else bool(self._unavailable(newest.plan))

    def _ask_for_plan(self, now: float) -> None:
        if self._needs_plan() and self._replan_at_s <= now:
            self._replan_at_s = now + self._policy.replan_s
            newest = self.newest
            lost = self._unavailable(newest.plan) if newest else []
            self._emit(do.Replan(f"place {lost[0]} is out of planning" if lost else "no plan is live"))

    def _unavailable(self, plan: Plan) -> list[str]:
        """The places of `plan` that are out of planning."""
        down = self._places.down
        return [name for name in plan.places if name in down] if down else []

    def _step(self, epoch: Epoch, action: str) -> None:
        epoch.phase = step(EPOCH, "epoch", epoch.number, epoch.phase, action, self._story)


def _told(faults: list[str]) -> str:
    """On one line; of many, which mostly follow from each other, the first."""
    more = len(faults) - _FAULTS_TOLD
    return "; ".join(faults[:_FAULTS_TOLD]) + (f"; and {more} more" if more > 0 else "")
