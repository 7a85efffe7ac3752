"""Carries out what the lifecycle says. Events are queued, so an instruction may cause one without nesting."""

from __future__ import annotations

import functools
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, TypeAlias

from shisha_rt.daemon.fleet.link import Link
from shisha_rt.daemon.fleet.supervisor import Supervisor
from shisha_rt.daemon.fleet.telemetry import Telemetry
from shisha_rt.daemon.front.requests import Admission, Answer
from shisha_rt.daemon.journal import Journal
from shisha_rt.daemon.metrics import Metrics
from shisha_rt.fabric import messages
from shisha_rt.fabric.arena import Arena
from shisha_rt.fabric.model_index import ModelIndex
from shisha_rt.lifecycle import events as ev
from shisha_rt.lifecycle.lifecycle import Lifecycle
from shisha_rt.plan.plan import Plan

Place: TypeAlias = Callable[[Plan, Callable[[Plan], None], Callable[[str], None]], None]
"""Chooses the devices of a plan's operators, and calls one of the two: with the placed plan, or with why it cannot."""


class Shell:
    """Between the lifecycle and everything that it must not touch."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        *,
        arena: Arena,
        index: ModelIndex,
        link: Link,
        supervisor: Supervisor,
        journal: Journal,
        metrics: Metrics,
        make_plan: Callable[[tuple[str, ...]], Plan],
        time_scale: float = 1.0,
        modelled_s: Callable[[str, int, int], float] = lambda _place, _first, _last: 0.0,
    ) -> None:
        self.lifecycle = lifecycle
        self.arena = arena
        self.link = link
        self.supervisor = supervisor
        self.journal = journal
        self.metrics = metrics
        self.telemetry = Telemetry()
        self.admission = Admission(arena, self.post)
        self.admission.on_answered = self._answered
        self.plans: dict[int, Plan] = {}
        self.fault: str | None = None
        self.on_live: Callable[[int, Plan], None] = lambda epoch, plan: None
        self.on_replanned: Callable[[], None] = lambda: None
        self.on_part: Callable[[int, int, float], None] = lambda epoch, stage, service_s: None
        self.place: Place = lambda plan, placed, refused: placed(plan)
        self._index = index
        self._make_plan = make_plan
        self._time_scale = time_scale
        self._modelled_s = modelled_s
        self.bad_machine: str | None = None
        self._events: deque[ev.Event] = deque()
        self._handling = False
        self._proposals: dict[int, Callable[[ev.Settled], None]] = {}
        self._proposal_count = 0
        self._replanning: set[tuple[str, ...]] = set()  # the places over which a plan of the daemon's own is under way
        self._service_of = functools.cache(metrics.service.labels)  # looking a label up costs more than observing
        self.outcomes: Counter[str] = Counter()
        self.totals_s = {"latency": 0.0, "queue": 0.0, "compute": 0.0}  # of the frames answered with a result
        self._counted = (0, 0)
        self._carry_out: dict[type, Callable[[Any], None]] = {
            ev.Refuse: self.admission.refuse,
            ev.Fill: self.admission.fill,
            ev.Run: self._run,
            ev.Collect: self.admission.collect,
            ev.Deliver: self.admission.deliver,
            ev.Start: self._start,
            ev.Kill: lambda i: supervisor.kill(i.incarnation, i.reason),
            ev.Prepare: self._prepare,
            ev.Retire: lambda i: link.send(i.incarnation, messages.Retire(i.epoch)),
            ev.Settled: self._settled,
            ev.EpochStarted: self._epoch_started,
            ev.EpochEnded: self._epoch_ended,
            ev.Replan: lambda i: self.replan(i.reason),
            ev.GivenUp: self._given_up,
        }

    def post(self, event: ev.Event) -> None:
        """Hand an event to the lifecycle and carry out what follows from it."""
        self._events.append(event)
        if self._handling:
            return
        self._handling = True
        try:
            while self._events:
                for instruction in self.lifecycle.handle(self._events.popleft(), time.monotonic()):
                    self._carry_out[type(instruction)](instruction)
        finally:
            self._handling = False
        self._count()

    def propose(self, plan: Plan, settled: Callable[[ev.Settled], None]) -> None:
        """Propose a plan that `verify` has passed; `settled` is called once, when it is live, refused or dropped."""

        def refused(reason: str) -> None:
            self.count_refused(plan, reason)
            settled(ev.Settled(0, None, "refused", reason))

        self.place(plan, lambda placed: self.propose_placed(placed, settled), refused)

    def propose_placed(self, plan: Plan, settled: Callable[[ev.Settled], None]) -> None:
        """The same for one whose operators have their devices already, or need none."""
        self._proposal_count += 1
        self._proposals[self._proposal_count] = settled
        self.post(ev.PlanProposed(self._proposal_count, plan))

    def count_refused(self, plan: Plan, reason: str) -> None:
        """A plan that `verify` did not pass: refused before the lifecycle saw it."""
        self.metrics.plans.labels("refused").inc()
        self.journal.write("plan_refused", epoch=None, plan=str(plan), reason=reason)

    # --- what workers say -------------------------------------------------------------------------------------

    def worker_said(self, message: messages.FromWorker) -> None:
        match message:
            case messages.Done(run=run):
                self._part_done(message)
                self.post(ev.PartDone(_descriptor(run)))
            case messages.Failed(run=run, reason=reason):
                self.journal.write("part_failed", frame=run.frame, stage=run.stage, epoch=run.epoch, reason=reason)
                self.post(ev.PartFailed(_descriptor(run), reason))
            case messages.Ready(incarnation=incarnation):
                self.supervisor.ready(incarnation)
                self.post(ev.WorkerReady(incarnation))
            case messages.Prepared(epoch=epoch, incarnation=incarnation):
                self._note_prepared(message)
                self.post(ev.Prepared(epoch, incarnation))
            case messages.PrepareFailed(epoch=epoch, incarnation=incarnation, reason=reason):
                self.bad_machine = reason if message.bad_machine else None
                self.post(ev.PrepareFailed(epoch, incarnation, reason))

    def _part_done(self, done: messages.Done) -> None:
        run = done.run
        plan = self.plans.get(run.epoch)
        if plan is None:
            return
        place, scale = plan.stages[run.stage].place, self._time_scale
        window = self.telemetry.window(run.epoch, run.stage)
        window.add(done.service_s / scale, done.cpu_s, done.waited_s / scale, done.segments_s)
        self._service_of(run.stage, place).observe(done.service_s / scale)
        if done.dropped_s:
            self.metrics.debt_dropped.labels(place).inc(done.dropped_s)
        self.admission.spent(run.frame, done.service_s)
        self.on_part(run.epoch, run.stage, done.service_s / scale)

    def _note_prepared(self, message: messages.Prepared) -> None:
        plan = self.plans.get(message.epoch)
        worker = self.lifecycle.places.workers.get(message.incarnation)
        if plan is not None and worker is not None and worker.place in plan.places:
            self.telemetry.window(message.epoch, plan.places.index(worker.place)).prepared = message

    # --- instructions -----------------------------------------------------------------------------------------

    def _run(self, instruction: ev.Run) -> None:
        d = instruction.descriptor
        run = messages.Run(
            d.incarnation,
            d.frame,
            d.attempt,
            d.stage,
            d.epoch,
            d.slot,
            self.arena.layout.number,
            time.monotonic_ns(),
        )
        self.link.send(d.incarnation, run)

    def _start(self, instruction: ev.Start) -> None:
        if self.lifecycle.places.by_name[instruction.place].restarts:
            self.metrics.restarts.labels(instruction.place).inc()
        self.supervisor.start(instruction.place, instruction.incarnation)
        self.journal.write("worker_started", place=instruction.place, incarnation=instruction.incarnation)

    def _prepare(self, instruction: ev.Prepare) -> None:
        stage = self.plans[instruction.epoch].stages[instruction.stage]
        order = messages.Prepare(
            instruction.epoch,
            self.arena.layout.number,
            instruction.stage,
            stage.first,
            stage.last,
            self._modelled_s(stage.place, stage.first, stage.last),
            stage.placement,
        )
        self.link.send(instruction.incarnation, order)

    def _settled(self, instruction: ev.Settled) -> None:
        self.metrics.plans.labels(instruction.outcome).inc()
        plan = self.plans.get(instruction.epoch) if instruction.epoch is not None else None
        self.journal.write(
            f"plan_{instruction.outcome}",
            epoch=instruction.epoch,
            plan=str(plan) if plan else None,
            reason=instruction.reason,
        )
        if instruction.outcome == "live" and instruction.epoch is not None and plan is not None:
            self.on_live(instruction.epoch, plan)
        self._proposals.pop(instruction.proposal)(instruction)

    def _epoch_started(self, instruction: ev.EpochStarted) -> None:
        self.plans[instruction.epoch] = instruction.plan
        self.journal.write("plan_preparing", epoch=instruction.epoch, plan=str(instruction.plan))

    def _epoch_ended(self, instruction: ev.EpochEnded) -> None:
        """Slots need no room any more where only the ended plan's cuts were."""
        ended = self._crossing(self.plans.pop(instruction.epoch))
        still = {name for plan in self.plans.values() for name in self._crossing(plan)}
        self.arena.punch(self.arena.layout.regions[name] for name in ended if name not in still)
        self.telemetry.forget(instruction.epoch)

    def _crossing(self, plan: Plan) -> set[str]:
        cuts = {stage.last for stage in plan.stages[:-1]}
        return self._index.only_crossing_at(cuts)

    def replan(self, reason: str) -> None:
        """Propose a plan of the daemon's own over the places that are available."""
        available = self.lifecycle.places.available
        if available in self._replanning:
            return  # the lifecycle asks again until it sees a proposal, and placing it may take a while
        self._replanning.add(available)
        plan = self._make_plan(available)
        self.journal.write("replan", reason=reason, plan=str(plan))
        self.propose(plan, functools.partial(self._replan_settled, available))

    def _replan_settled(self, available: tuple[str, ...], settled: ev.Settled) -> None:
        self._replanning.discard(available)
        self.fault = None if settled.outcome == "live" else settled.reason
        if settled.outcome == "live":
            self.on_replanned()

    def _given_up(self, instruction: ev.GivenUp) -> None:
        self.journal.write("place_given_up", place=instruction.place, reason=instruction.reason)

    # --- counting ---------------------------------------------------------------------------------------------

    def _answered(self, answer: Answer, latency_s: float) -> None:
        outcome = "OK" if answer.code is None else answer.code.value
        self.outcomes[outcome] += 1
        self.metrics.frames.labels(outcome).inc()
        if answer.code is None:
            self.metrics.latency.observe(latency_s)
            for name, seconds in (("latency", latency_s), ("queue", answer.queue_s), ("compute", answer.compute_s)):
                self.totals_s[name] += seconds

    def update_gauges(self) -> None:
        """Bring the metrics page up to what is true now (counters and histograms are kept as things happen)."""
        m, lifecycle = self.metrics, self.lifecycle
        m.in_flight.set(lifecycle.undelivered)
        newest = lifecycle.epochs.newest
        if newest is None:
            return
        m.epoch.set(newest.number)
        m.layers.clear()
        m.queue.clear()
        queued = Counter((frame.epoch, frame.stage) for frame in lifecycle.frames.values())
        for i, stage in enumerate(newest.plan.stages):
            m.layers.labels(i, stage.place).set(stage.layer_count)
            m.queue.labels(i, stage.place).set(queued[newest.number, i])
        times = [self.telemetry.window(newest.number, i).median_service_s for i in range(len(newest.plan.stages))]
        known = [t for t in times if t is not None]
        if len(known) == len(times):
            m.throughput.set(1 / max(known))
            m.bottleneck.set(times.index(max(known)))

    def _count(self) -> None:
        replayed, stale = self.lifecycle.replayed, self.lifecycle.stale_replies
        if (replayed, stale) != self._counted:
            self.metrics.replayed.inc(replayed - self._counted[0])
            self.metrics.stale.inc(stale - self._counted[1])
            self._counted = (replayed, stale)


def _descriptor(run: messages.Run) -> ev.Descriptor:
    return ev.Descriptor(run.incarnation, run.frame, run.attempt, run.stage, run.epoch, run.slot)
