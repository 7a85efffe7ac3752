"""The plans' part of the lifecycle (rule R2): proposals in, one prepared at a time, at most two live.

Every plan passes one gate, whoever made it: `verify` checks the plan once, and its operators' devices once they are
chosen. Proposals are prepared in the order in which they came, but none waits for one whose operators are not placed
yet. They are listed here and nowhere else: a proposal carries a ticket, which its proposer gets back with the end. Each
proposal ends once (`Settled`). Unless a client made it, it holds only as long as the epoch is live under
which it was made: what was searched, placed or chosen under another live plan is out of date.

A new plan takes over without a drain: its segments are built beside the old ones, new frames use it when every worker
concerned has loaded it, and the old epoch is retired with its last frame. If the two are to be compared, or one of them
is to serve later, both stay loaded, and `lead` says which of them new frames use. A death, error or timeout in
preparation drops the new epoch everywhere. A worker that has just started loads the live epochs, and then the one in
preparation.

Each (stage, team) is prepared separately, in the worker of the team's lead; other places of a team need no worker.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias, TypeVar

from shisha_rt.core.lifecycle import events as ev
from shisha_rt.core.lifecycle import instructions as do
from shisha_rt.core.lifecycle.events import Superseded
from shisha_rt.core.lifecycle.instructions import Ending
from shisha_rt.core.lifecycle.places import Places
from shisha_rt.core.lifecycle.policy import Policy
from shisha_rt.core.lifecycle.records import Epoch, QueuedPlan, WorkerState
from shisha_rt.core.lifecycle.tables import EPOCH, EpochPhase, Transition, Transitions
from shisha_rt.model.spans import Span
from shisha_rt.model.split import Split
from shisha_rt.plan.engine import StageEngine
from shisha_rt.plan.plan import Plan, Stage, Team, team_name
from shisha_rt.plan.verify import PlanRules

TensorT = TypeVar("TensorT")

_ANOTHER: Final = "another plan was proposed meanwhile"
_FAULTS_TOLD: Final = 5
_PARTS_OF_PATIENCE: Final = 20.0

_Content: TypeAlias = tuple[tuple[Span, ...], Team, tuple[str, ...], Split | None, StageEngine]
"""Identity of a stage for the worker that builds it: two stages with equal keys are built alike."""


class _How(NamedTuple):
    """How a proposal ends: the last fields of `Settled`."""

    ending: Ending
    reason: str
    bad_machine: str | None = None
    transient: bool = False
    failed_stage: int | None = None


class Epochs:
    """`live`: the epochs that frames may be in; new frames use the last of them. `preparing`: the next epoch, if any.

    `beside`: the live epoch that stays loaded even without frames: compared with the last one, or kept to serve later.
    """

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
        self.beside: Epoch | None = None
        self.proposals: deque[QueuedPlan] = deque()
        self.rules = rules
        self._numbers = itertools.count(1)
        self._places = places
        self._policy = policy
        self._transitions = Transitions("epoch", EPOCH, story)
        self._emit = emit
        self._replan_at_s = 0.0
        self._loading = _Loading(places.workers)
        self._of_plan: tuple[Plan | None, frozenset[str], frozenset[str]] = None, frozenset(), frozenset()
        self._crashes = _Crashes(policy.crashes_per_stage)
        self._closed = False

    @property
    def newest(self) -> Epoch | None:
        """The epoch that new frames use."""
        return next(reversed(self.live.values()), None)

    @property
    def at_rest(self) -> bool:
        """One plan is live, over available places, and no other has frames, is proposed, prepared or being retired."""
        newest, beside = self.newest, self.beside
        others = len(self.live) - (beside is not None and not beside.frames)
        if newest is None or others > 1 or self.preparing is not None or self.proposals:
            return False
        return not self._missing(newest.plan)

    @property
    def plans(self) -> list[Plan]:
        return [epoch.plan for epoch in self.all]

    @property
    def all(self) -> list[Epoch]:
        """Every epoch that a worker may have, oldest first."""
        return [*self.live.values(), *([self.preparing] if self.preparing else [])]

    def runnable(self) -> Epoch | None:
        """The newest epoch, if every stage has a team that can run it, now or soon."""
        newest = self.newest
        return None if newest is None or self.is_broken(newest) else newest

    @property
    def can_run(self) -> bool:
        """Whether every stage of the newest epoch has a team whose worker has it loaded."""
        return self._is_loaded_by(any)

    @property
    def is_whole(self) -> bool:
        """Whether each team of the newest epoch has a worker that has its stages loaded."""
        return self._is_loaded_by(all)

    def _is_loaded_by(self, enough: Callable[[Iterable[bool]], bool]) -> bool:
        newest, serving = self.newest, self._places.serving
        return newest is not None and all(
            enough(lead in serving and (newest.number, stage) in serving[lead].loaded for lead in pool.leads)
            for pool in newest.pools
            for stage in pool.stages
        )

    def is_broken(self, epoch: Epoch) -> bool:
        """Whether the epoch is overdue, or has a stage without any team whose lead has a worker or gets one soon."""
        lost = self._places.lost
        return epoch.overdue or (len(lost) > 0 and any(lost.issuperset(pool.leads) for pool in epoch.pools))

    def places_in_use(self) -> set[str]:
        """The places whose workers are needed by a live epoch, or by the one in preparation."""
        return {lead for epoch in self.all for pool in epoch.pools for lead in pool.leads}

    def places_planned(self) -> set[str]:
        """Places whose cores a live epoch, or the one in preparation, uses: whole teams, not just leads."""
        return {name for epoch in self.all for name in epoch.plan.places}

    def passed_by_none_but(self, ended: Plan, passing: Callable[[Plan], set[TensorT]]) -> set[TensorT]:
        """Tensors that slots need not hold any more, as only `ended`, whose epoch has ended, passed them on.

        `passing`: returns the tensors that a plan's stages pass to each other.
        """
        return passing(ended).difference(*map(passing, self.plans))

    # --- proposals --------------------------------------------------------------------------------------------

    def propose(self, proposed: ev.PlanProposed, now: float) -> None:
        """Queue a proposed plan; refuse it if it breaks a rule, crashes workers, or too many of its owner wait."""
        plan, crashing = proposed.plan, self._crashing(proposed.owner, proposed.plan)
        faults = self.rules.problems(plan) or list(crashing.values())
        placed = not self.rules.devices or any(stage.placement for stage in plan.stages)
        if not faults and placed:
            faults = self.rules.placement_problems(plan)
        waiting = sum(other.proposed.owner is proposed.owner for other in self.proposals)
        queued = QueuedPlan(proposed, plan, placed, now + self._policy.prepare_s)
        if self._closed:
            self._end(queued, _How(Ending.REFUSED, "the daemon is stopping"))
        elif faults:
            self._refuse(queued, faults, crashing)
        elif why := self._why_vain(proposed):
            self._end(queued, _How(Ending.REFUSED, why, transient=True))
        elif waiting >= self._policy.waiting_plans:
            self._end(queued, _How(Ending.REFUSED, f"{waiting} plans wait already"))
        else:
            self._make_way(now)
            self.proposals.append(queued)
            if not placed:
                self._emit(do.PlaceOperators(proposed))

    def _why_vain(self, proposed: ev.PlanProposed) -> str:
        """Why a client would wait in vain for a plan, as a worker for it does not start; empty if none does so."""
        if proposed.owner is ev.Owner.CLIENT:
            for place in map(self._places.by_name.__getitem__, proposed.plan.leads):
                if place.failed_starts >= self._policy.failed_starts:
                    return f"the worker on {place.name} does not start: {place.last_error}"
        return ""

    def placed(self, event: ev.PlanPlaced) -> None:
        """Take the placement of a queued plan, or refuse the plan if the placement breaks a rule."""
        queued, plan = self._unplaced(event.proposed), event.plan
        if queued is None:
            return
        crashing = self._crashing(event.proposed.owner, plan)
        changed = [] if plan == queued.plan else ["other stages were placed than are proposed"]
        faults = changed or self.rules.placement_problems(plan) or list(crashing.values())
        if faults:
            self._refuse(queued, faults, crashing)
        else:
            queued.plan, queued.placed = plan, True

    def _crashing(self, owner: ev.Owner, plan: Plan) -> dict[int, str]:
        """Return the stages of `plan` that are blacklisted for crashes, by index.

        Plans that the daemon proposes as a fallback are exempt: if their stages crash, the place is given up instead.
        """
        return {} if owner is ev.Owner.DAEMON else self._crashes.faults(plan)

    def not_placed(self, event: ev.PlanNotPlaced) -> None:
        """Refuse a queued plan that cannot be placed."""
        queued = self._unplaced(event.proposed)
        if queued is not None:
            self._end(queued, _How(Ending.REFUSED, event.reason))

    def _first_placed(self) -> QueuedPlan | None:
        return next((queued for queued in self.proposals if queued.placed), None)

    def _unplaced(self, proposed: ev.PlanProposed) -> QueuedPlan | None:
        """Return the queued plan that waits for its placement; None if the proposal has ended meanwhile."""
        waiting = (queued for queued in self.proposals if not queued.placed)
        return next((queued for queued in waiting if queued.proposed is proposed), None)

    def _refuse(self, queued: QueuedPlan, faults: list[str], crashing: Mapping[int, str]) -> None:
        more = f"; and {len(faults) - _FAULTS_TOLD} more" if len(faults) > _FAULTS_TOLD else ""
        reason = "; ".join(faults[:_FAULTS_TOLD]) + more  # of many faults, most follow from the first
        self._end(queued, _How(Ending.REFUSED, reason, failed_stage=next(iter(crashing), None)))

    def _end(self, queued: QueuedPlan, how: _How) -> None:
        """End a proposal that has no epoch."""
        if queued in self.proposals:
            self.proposals.remove(queued)
        self._emit(do.Settled(queued.proposed, queued.plan, None, *how))

    def advance(self, now: float) -> None:
        """Drop a preparation that lost a place, begin the next if no old epoch lingers, ask for a plan if needed."""
        if self.preparing is not None and (missing := self._missing(self.preparing.plan)):
            self._drop(_How(Ending.DROPPED, missing, transient=True))
        if self.beside is not None:
            self._end_if_lost(self.beside, now)
        while self.preparing is None and len(self.live) < 2 and (queued := self._first_placed()) is not None:
            proposed, newest = queued.proposed, self.newest.number if self.newest is not None else None
            if proposed.owner is not ev.Owner.CLIENT and proposed.under != newest:
                self._end(queued, _How(Ending.DROPPED, f"epoch {newest} has gone live meanwhile", transient=True))
            elif missing := self._missing(queued.plan):
                self._end(queued, _How(Ending.REFUSED, missing, transient=True))
            else:
                self.proposals.remove(queued)
                self._begin(proposed, queued.plan, now)
        self._ask_for_plan(now)

    # --- preparing --------------------------------------------------------------------------------------------

    def _begin(self, proposed: ev.PlanProposed, plan: Plan, now: float) -> None:
        batched = plan if proposed.owner is ev.Owner.CLIENT else self.rules.in_batches(plan, self._policy.batch)
        batches = tuple(stage.batch for stage in batched.stages)
        epoch = Epoch(next(self._numbers), plan, proposed, batches, prepare_until_s=now + self._policy.prepare_s)
        self.preparing = epoch
        self._emit(do.EpochStarted(proposed, epoch.number, plan))
        for name in plan.leads:
            worker = self._places.serving.get(name)
            if worker is not None:
                self._ask(worker, epoch, now)

    def _ask(self, worker: WorkerState, epoch: Epoch, now: float) -> None:
        """Ask `worker` to prepare every stage that it has in `epoch`.

        The time limit of an epoch in preparation starts anew for all its workers: waiting for one does not count.
        """
        pool = next((pool for pool in epoch.pools if worker.place in pool.at), None)
        if pool is None:
            return
        teams = epoch.plan.stages[pool.stages[0]].teams
        team = teams[pool.at[worker.place]]
        until_s = now + self._policy.prepare_s
        if epoch.phase is EpochPhase.PREPARING:
            epoch.asked.add(worker.incarnation)
            epoch.prepare_until_s, until_s = until_s, math.inf
        for index in pool.stages:
            self._loading.ask(worker, epoch.number, index, until_s)
            batch = epoch.batches[index]
            self._emit(do.PrepareStage(worker.incarnation, epoch.number, index, team, epoch.plan, batch))

    def load(self, worker: WorkerState, now: float) -> None:
        """Have a worker that has come up load its stages of each live epoch, and of the one in preparation."""
        for epoch in sorted(self.all, key=lambda epoch: epoch is self.beside):  # what serves is loaded first
            self._ask(worker, epoch, now)

    def prepared(self, event: ev.StagePrepared, now: float) -> None:
        """Note that a worker has built a stage. The plan goes live once all workers have built all of their stages."""
        worker, key = self._places.workers.get(event.incarnation), (event.epoch, event.stage)
        if worker is None or worker.loading.pop(key, None) is None:
            return  # its epoch was dropped meanwhile
        self._loading.note_fewer()
        worker.loaded.add(key)
        for known in self.all:
            if known.number == event.epoch:
                self._crashes.forget(known.plan.stages[event.stage], worker.place)
                if event.alone:
                    known.keep_alone(event.stage)
        epoch = self.preparing
        if epoch is None or epoch.number != event.epoch:
            return
        if event.alone and epoch.plan.stages[event.stage].batch > 1:  # the plan itself asks for batches
            reason = f"{worker.place} could not prepare it: {event.alone}"
            self._drop(_How(Ending.DROPPED, reason, failed_stage=event.stage))
            return
        epoch.unprepared.discard((event.stage, worker.place))
        if not epoch.unprepared:
            self._complete(epoch, now)

    def _complete(self, epoch: Epoch, now: float) -> None:
        superseded = epoch.proposed.superseded
        if superseded is Superseded.COMPARED and self.proposals:
            self._drop(_How(Ending.DROPPED, _ANOTHER, transient=True))
            return
        if self.newest is not None:
            self.beside = None if superseded is Superseded.RETIRES or self.proposals else self.newest
            self._supersede(self.newest, now)
        self._step(epoch, "complete")
        self.live[epoch.number] = epoch
        self.preparing = None
        reason = "every worker concerned has it loaded"
        self._emit(do.Settled(epoch.proposed, epoch.plan, epoch.number, Ending.LIVE, reason))

    # --- two that are loaded ----------------------------------------------------------------------------------

    def lead(self, number: int, now: float) -> None:
        """Have new frames use epoch `number`, if that is the one of two loaded epochs that they do not use now."""
        epoch, newest = self.beside, self.newest
        if epoch is None or newest is None or epoch.number != number:
            return
        self._supersede(newest, now)
        self._step(epoch, "recall")
        self.live[number] = self.live.pop(number)
        self.beside = newest

    def let_go(self, now: float) -> None:
        """Keep only the epoch that new frames use. The time limit for frames of the other one starts now."""
        if self.beside is not None:
            self.beside.moved_s = now
        self.beside = None

    def _make_way(self, now: float) -> None:
        """Keep one epoch only, for another plan: if a comparison is not decided, the one that served before."""
        if self.preparing is not None and self.preparing.proposed.superseded is Superseded.COMPARED:
            self._drop(_How(Ending.DROPPED, _ANOTHER, transient=True))
        if self.beside is not None and self.newest is not None:
            if self._are_compared:
                self.lead(min(self.beside.number, self.newest.number), now)
            self.let_go(now)

    @property
    def _are_compared(self) -> bool:
        """Whether both live epochs are compared: the newer one was proposed for that."""
        newer = max(self.live.values(), key=lambda epoch: epoch.number)
        return newer.proposed.superseded is Superseded.COMPARED

    def _supersede(self, epoch: Epoch, now: float) -> None:
        self._step(epoch, "supersede")
        epoch.moved_s = now

    def _end_if_lost(self, beside: Epoch, now: float) -> None:
        """Keep one epoch alone if either has lost a place: of two that are compared, the one that can run."""
        newest = self.newest
        assert newest is not None  # `beside` is never alone
        newest_lost, beside_lost = (self._missing(epoch.plan) or self.is_broken(epoch) for epoch in (newest, beside))
        if newest_lost and not beside_lost and self._are_compared:
            self.lead(beside.number, now)
        if newest_lost or beside_lost:
            self.let_go(now)

    def prepare_failed(self, event: ev.StageFailed, now: float) -> None:
        """Drop the plan that is being prepared, or kept; a worker that cannot build the live plan is killed instead."""
        worker = self._places.workers.get(event.incarnation)
        if worker is None or worker.loading.pop((event.epoch, event.stage), None) is None:
            return
        self._loading.note_fewer()
        if self.preparing is not None and self.preparing.number == event.epoch:
            reason = f"{worker.place} could not prepare it: {event.reason}"
            bad_machine = event.reason if event.bad_machine else None
            self._drop(_How(Ending.DROPPED, reason, bad_machine, failed_stage=event.stage))
        elif (beside := self.beside) is not None and beside.number == event.epoch and not beside.frames:
            self.let_go(now)
        else:
            self._places.kill(worker, f"it could not load the live plan: {event.reason}", now)

    def blames_plan(self, worker: WorkerState, event: ev.WorkerGone) -> bool:
        """Whether a worker crashed while preparing a stage of the new epoch, and computed nothing; note the crash."""
        epoch = self.preparing
        if epoch is None or not event.crashed or event.running is not None:
            return False
        return self._note_crash(worker, epoch)

    def _note_crash(self, worker: WorkerState, epoch: Epoch) -> bool:
        """Count the end of a worker against the first stage of `epoch` that it had yet to build; False if it had none.

        A worker builds stages in the order of requests, so it ended over that one. Plans that the daemon proposes as a
        fallback are never blamed.
        """
        first = self._first_unfinished(worker, epoch)
        if first is None or epoch.proposed.owner is ev.Owner.DAEMON:
            return False
        self._crashes.note(epoch.plan.stages[first], worker.place)
        return True

    def worker_gone(self, worker: WorkerState, reason: str) -> None:
        """Drop the epoch that the dead worker was preparing; end clients' proposals if its place does not start."""
        self._loading.note_fewer()
        epoch = self.preparing
        if epoch is not None and worker.incarnation in epoch.asked:
            died = f"the worker on {worker.place} died in its preparation: {reason}"
            self._drop(_How(Ending.DROPPED, died, transient=True))
        elif epoch is not None and (why := self._why_vain(epoch.proposed)):
            self._drop(_How(Ending.DROPPED, why, transient=True))
        for queued in list(self.proposals):
            if why := self._why_vain(queued.proposed):
                self._end(queued, _How(Ending.DROPPED, why, transient=True))

    def tick(self, now: float) -> None:
        """End what took too long: placement, a proposal's wait for its turn, preparation, loading, retiring."""
        for queued in [due for due in self.proposals if due.until_s <= now]:
            late = "its turn did not come" if queued.placed else "its operators were not placed"
            self._end(queued, _How(Ending.DROPPED, f"{late} within {self._policy.prepare_s:g} s", transient=True))
        if self.preparing is not None and self.preparing.prepare_until_s <= now:
            self._end_late(self.preparing, now)
        for worker in self._loading.late(now):
            self._places.kill(worker, f"a live plan was not loaded within {self._policy.prepare_s:g} s", now)
        for epoch in self.live.values():
            if epoch.phase is EpochPhase.RETIRING and self._overdue_from_s(epoch) <= now:
                self._hurry(epoch, now)

    def _end_late(self, epoch: Epoch, now: float) -> None:
        """Drop an epoch that takes too long to prepare; kill workers that have not built their stages."""
        reason = f"not prepared within {self._policy.prepare_s:g} s"
        late = [worker for worker in self._places.workers.values() if self._first_unfinished(worker, epoch) is not None]
        for worker in late:
            self._note_crash(worker, epoch)
        self._drop(_How(Ending.DROPPED, reason))
        for worker in late:
            self._places.kill(worker, f"a stage of epoch {epoch.number} was {reason}", now, blameless=True)

    @staticmethod
    def _first_unfinished(worker: WorkerState, epoch: Epoch) -> int | None:
        """The first stage of `epoch`, in the order of requests, that the worker was asked for and has not built."""
        return next((stage for number, stage in worker.loading if number == epoch.number), None)

    def _overdue_from_s(self, epoch: Epoch) -> float:
        if epoch.overdue or epoch is self.beside:
            return math.inf
        runs = zip(epoch.service_s, epoch.batches, strict=True)
        slowest_s = max((batch * taken_s for by_lead, batch in runs for taken_s in by_lead.values()), default=0.0)
        return epoch.moved_s + max(self._policy.retire_s, _PARTS_OF_PATIENCE * slowest_s)

    def _hurry(self, epoch: Epoch, now: float) -> None:
        """Kill the workers of a superseded epoch none of whose parts was done for too long; its frames start anew."""
        epoch.overdue = True
        for worker in self._places.workers.values():
            if any(part.epoch == epoch.number for part in worker.out):
                reason = (
                    f"epoch {epoch.number} is superseded, and nothing of it was done for {now - epoch.moved_s:.0f} s"
                )
                self._places.kill(worker, reason, now, blameless=True)

    def wake_times(self) -> list[float]:
        """Return the times in seconds at which a limit passes, if no event comes before."""
        times = [self.preparing.prepare_until_s] if self.preparing else []
        times += [queued.until_s for queued in self.proposals]
        times += [self._overdue_from_s(epoch) for epoch in self.live.values() if epoch.phase is EpochPhase.RETIRING]
        times += self._loading.wake_times()
        return [*times, self._replan_at_s] if self._needs_plan() else times

    def _drop(self, how: _How) -> None:
        epoch = self.preparing
        assert epoch is not None
        self.preparing = None
        self._step(epoch, "drop")
        self._unload(epoch)
        self._emit(do.Settled(epoch.proposed, epoch.plan, epoch.number, *how))
        self._emit(do.EpochEnded(epoch.number, epoch.plan))

    def _unload(self, epoch: Epoch) -> None:
        self._loading.note_fewer()
        stages = {(epoch.number, index) for index in range(len(epoch.plan.stages))}
        for worker in self._places.workers.values():
            if not stages.isdisjoint(worker.loaded) or not stages.isdisjoint(worker.loading):
                worker.loaded -= stages
                for key in stages & worker.loading.keys():
                    del worker.loading[key]
                self._emit(do.RetireEpoch(worker.incarnation, epoch.number))

    def finish_retiring(self) -> None:
        """Retire superseded epochs that have no frame any more."""
        for epoch in list(self.live.values()):
            if epoch.phase is EpochPhase.RETIRING and not epoch.frames and epoch is not self.beside:
                self._step(epoch, "empty")
                del self.live[epoch.number]
                self._unload(epoch)
                self._emit(do.EpochEnded(epoch.number, epoch.plan))

    def close(self, now: float) -> None:
        """The daemon stops: settle what is still proposed."""
        self._closed = True
        self.let_go(now)
        if self.preparing is not None:
            self._drop(_How(Ending.DROPPED, "the daemon stopped", transient=True))
        while self.proposals:
            self._end(self.proposals[0], _How(Ending.DROPPED, "the daemon stopped", transient=True))

    def _needs_plan(self) -> bool:
        """Whether to ask for a plan. If none is live yet, a proposal whose placement is still awaited is enough; if the
        live plan has lost a place, it is not, as placement may take long.
        """
        newest = self.newest
        if self._closed or self.preparing is not None or self._first_placed() is not None:
            return False
        return not self.proposals if newest is None else bool(self._missing(newest.plan))

    def _ask_for_plan(self, now: float) -> None:
        if self._needs_plan() and self._replan_at_s <= now:
            self._replan_at_s = now + self._policy.replan_s
            self._emit(do.Replan("no plan is live" if self.newest is None else self._missing(self.newest.plan)))

    def _missing(self, plan: Plan) -> str:
        """Why `plan` must not run on the places as they are now; empty if it may. Only leads need workers."""
        down, away = self._places.down, self._places.away
        if (down or away) and self._of_plan[0] is not plan:  # cached, as this is called after every event
            self._of_plan = plan, frozenset(plan.places), frozenset(plan.leads)
        if not down.isdisjoint(self._of_plan[1]):
            return f"place {next(name for name in plan.places if name in down)} is down"
        if not away.isdisjoint(self._of_plan[2]):
            return f"place {next(name for name in plan.leads if name in away)} is without a worker for too long"
        return ""

    def _step(self, epoch: Epoch, action: str) -> None:
        self._transitions.step(epoch.number, epoch, action)


class _Loading:
    """Times by which workers must have loaded their stages. There may be thousands: most events look at none of them.

    The earliest of them is searched for again only after some have been removed.
    """

    def __init__(self, workers: Mapping[int, WorkerState]) -> None:
        self._workers = workers
        self._by_s = math.inf
        self._fewer = False

    def ask(self, worker: WorkerState, epoch: int, stage: int, until_s: float) -> None:
        worker.loading[epoch, stage] = until_s
        self._by_s = min(self._by_s, until_s)

    def note_fewer(self) -> None:
        """Note that times were removed: a stage is loaded or not needed any more, or its worker is gone."""
        self._fewer = True

    def late(self, now: float) -> list[WorkerState]:
        """The workers that have not loaded a stage in time."""
        if now < self._by_s:
            return []
        self._fewer = True
        return [worker for worker in self._workers.values() if any(until <= now for until in worker.loading.values())]

    def wake_times(self) -> list[float]:
        """The earliest time among workers that are not killed; empty if nothing is being loaded."""
        if self._fewer:
            untils = (
                until for worker in self._workers.values() if not worker.killed for until in worker.loading.values()
            )
            self._by_s, self._fewer = min(untils, default=math.inf), False
        return [self._by_s] if self._by_s < math.inf else []


class _Crashes:
    """Stages whose preparation crashed workers that did nothing else; after `most` crashes a stage is not prepared any
    more.

    Crashes are counted for a stage's content, whatever plan the stage comes in, and forgotten once it is prepared.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._times: Counter[_Content] = Counter()

    def note(self, stage: Stage, place: str) -> None:
        """Count a crash of the worker on `place` while it prepared `stage`."""
        self._times.update(_contents(stage, place))

    def forget(self, stage: Stage, place: str) -> None:
        """Clear the record of `stage` on `place`: the stage has been prepared there."""
        for content in _contents(stage, place):
            self._times.pop(content, None)

    def faults(self, plan: Plan) -> dict[int, str]:
        """Map the index of each stage of `plan` that must not be prepared to a message with the reason."""
        return {
            index: f"stage {index} on {team_name(team)} has ended its worker {times} times in its preparation"
            for index, stage in enumerate(plan.stages)
            for team in stage.teams
            if (times := self._times[_content(stage, team)]) >= self._most
        }


def _contents(stage: Stage, place: str) -> list[_Content]:
    return [_content(stage, team) for team in stage.teams if team[0] == place]


def _content(stage: Stage, team: Team) -> _Content:
    return stage.work, team, stage.placement, stage.split, stage.engine
