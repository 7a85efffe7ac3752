"""Link between the cores and the world: passes the loop's events to the cores, and carries out their instructions.

All that follows from an event is done before the next event, in the order of the cores' instructions. The journal names
the event as the cause.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from shisha_rt.core import event_log as records
from shisha_rt.core.lifecycle import events as ev
from shisha_rt.core.lifecycle import instructions as do
from shisha_rt.core.tuning import events as te
from shisha_rt.core.tuning import instructions as td
from shisha_rt.core.tuning.cores import CoreEvent, Cores
from shisha_rt.daemon.children.children import Children
from shisha_rt.daemon.counting import Counting
from shisha_rt.daemon.event_log import EventLog, proposal_ended, proposal_started
from shisha_rt.daemon.fleet.supervisor import Supervisor
from shisha_rt.daemon.fleet.telemetry import Telemetry
from shisha_rt.daemon.front.requests import AnswerTo, Requests, Ticket
from shisha_rt.daemon.own_frames import OwnFrames
from shisha_rt.daemon.releases import Releases
from shisha_rt.daemon.sweep import Sweep
from shisha_rt.daemon.tracing import Tracing
from shisha_rt.hosts import messages as cm
from shisha_rt.messages import worker as messages
from shisha_rt.messages.shadow import NextFrame, ShadowEnds
from shisha_rt.plan.plan import Plan, Stage, Team
from shisha_rt.process.lent import LentPiece
from shisha_rt.protocol.request import InferRequest

if TYPE_CHECKING:
    from shisha_rt.costs.layer_costs import PacedCosts

log = logging.getLogger(__name__)


class Shell:
    """Does for the cores everything that has side effects. `pacing`: as in `PreparedModel`."""

    def __init__(
        self,
        cores: Cores,
        supervisor: Supervisor,
        children: Children,
        requests: Requests,
        counting: Counting,
        tracing: Tracing,
        releases: Releases,
        pacing: PacedCosts | None = None,
    ) -> None:
        indexes = [shape.index for shape in supervisor.ready.compiled.each]
        machine = cores.tuning.choice.filed
        self.cores = cores
        self.supervisor = supervisor
        self.requests = requests
        self.counting = counting
        self.tracing = tracing
        self.releases = releases
        self.journal = EventLog()
        self.sweep = Sweep(supervisor.arena, indexes)
        self.telemetry = Telemetry(counting, scale=machine.time_scale, shapes=len(indexes), power_w=machine.power_w)
        self.own_frames = OwnFrames(self, indexes)
        self.shadow = children.shadow
        self._pacing = pacing
        self._clients_plans = 0
        self._cause = "start"
        self._events: deque[tuple[CoreEvent, str]] = deque()
        self._handling = False
        self._alone: tuple[int, float] | None = None
        self.hears = self._what_comes()
        self._carry_out = self._what_to_do(children)

    def _what_comes(self) -> Mapping[type, Callable[[Any], object]]:
        """Handlers of messages from workers and children, and of their ends, by type. The loop dispatches each once."""
        return {
            messages.Done: self._part_done,
            messages.Failed: self._part_failed,
            messages.Ready: self._worker_ready,
            messages.Prepared: self._prepared,
            messages.PrepareFailed: self._prepare_failed,
            messages.Forgotten: self._forgotten,
            ev.WorkerGone: self._worker_gone,
            ev.WorkerHung: lambda e: self.post(e, f"worker {e.incarnation} hangs"),
            messages.Hail: lambda e: self.supervisor.far.hailed(e.incarnation, e.public_key),
            messages.LinkSeen: self._link_seen,
            cm.FarStarted: lambda e: self._send(e.incarnation, messages.Connect(e.endpoint, e.public_key)),
            cm.FarFailed: self._far_failed,
            cm.PlaceThere: self._place_there,
            cm.PlaceLost: lambda e: self.write(records.HostLost(place=e.place, reason=e.reason), "the cluster"),
            cm.Lacking: lambda e: log.warning("the cluster lacks something: %s", e.reason),
            **dict.fromkeys(
                (cm.AllThere, cm.Shipped, cm.Told, cm.MeasuredThere), lambda e: log.info("the cluster: %s", e)
            ),
            records.ClusterEnded: lambda e: self.write(e, "the end of the cluster process"),
            records.ProfilerEnded: lambda e: self.write(e, "the profiler's end"),
            records.ProfilerWaits: lambda e: self.write(e, "the profiler"),
            records.HttpEnded: lambda e: self.write(e, "the end of the HTTP process"),
            records.TracerEnded: lambda e: self.write(e, "the tracer's end"),
            te.PlannedAhead: lambda e: self.post(e, "the preparation"),
            te.TunerSaid: lambda e: self.post(e, "the tuner"),
            te.TunerDied: lambda e: self.post(e, "the tuner's end"),
            NextFrame: lambda _: None,
            ShadowEnds: self.shadow.ended,
            te.PlacerSaid: lambda e: self.post(e, "the placer"),
            te.PlacerDied: lambda e: self.post(e, "the placer's end"),
        }

    def _what_to_do(self, children: Children) -> Mapping[type, Callable[[Any], object]]:
        return {
            do.Refuse: self._answer,
            do.Fill: self._fill,
            do.ReadLent: lambda i: self.requests.read_lent(i.ticket, i.slot),
            do.RunPart: self._run,
            do.Collect: self._collect,
            do.Deliver: self._answer,
            do.Start: self._start,
            do.Kill: self._kill,
            do.PrepareStage: self._prepare,
            do.RetireEpoch: lambda i: self._send(i.incarnation, messages.Retire(i.epoch)),
            do.Settled: self._settled,
            do.EpochStarted: self._epoch_started,
            do.EpochEnded: self._epoch_ended,
            do.PlaceAway: lambda i: self.write(records.PlaceMissed(place=i.place)),
            do.PlaceBack: lambda i: self.write(records.PlaceIsBack(place=i.place)),
            do.PlaceReleased: self._planless,
            do.GivenUp: lambda i: self.write(records.PlaceGivenUp(place=i.place, reason=i.reason)),
            **dict.fromkeys((do.PlaceOperators, do.Replan, ev.PlanProposed, ev.PlanPlaced), _nothing),
            **dict.fromkeys((ev.PlanNotPlaced, ev.Lead, ev.LetGo), _nothing),
            td.Write: lambda i: self.write(i.record),
            td.TellTuner: lambda i: children.tell_tuner(i.message),
            td.TellProfiler: lambda i: children.profiler.send(i.message),
            td.TellPlacer: lambda i: children.placer.send(i.message),
            td.Keep: lambda i: children.plan_writer.keep(i.key, i.best),
            td.CountTrial: self._count_trial,
            td.CountSolve: lambda i: self.counting.count("shisha_placement_solves", i.solver),
        }

    # --- events -----------------------------------------------------------------------------------------------

    def post(self, event: CoreEvent, cause: str) -> None:
        """Hand an event to the cores and carry out their instructions; while another is handled, queue it instead."""
        if self._handling:
            self._events.append((event, cause))
            return
        self._handling, carry_out = True, self._carry_out
        try:
            while True:
                self._cause = cause
                for instruction in self.cores.handle(event, time.monotonic(), cause):
                    carry_out[type(instruction)](instruction)
                if not self._events:
                    return
                event, cause = self._events.popleft()
        except BaseException:
            self._events.clear()
            raise
        finally:
            self._handling = False

    def submit(self, client: Hashable, request: InferRequest, answer_to: AnswerTo, frames: int = 1) -> Ticket:
        """Submit a checked request of one frame; return its ticket. `answer_to` is called exactly once, perhaps now."""
        self.own_frames.make_way()
        arrived = self.requests.arrived(client, request, answer_to, time.monotonic(), frames)
        ticket: Ticket = arrived.ticket
        self.tracing.arrived(ticket)
        self.post(arrived, "a frame came")
        return ticket

    def submit_own(self, request: InferRequest, answer_to: AnswerTo) -> int:
        """Submit a frame of the daemon's own, which no client sees and no count of answers has; return its number."""
        arrived = self.requests.arrived(self.own_frames, request, answer_to, time.monotonic())
        arrived.ticket.own = True
        self.post(arrived, "a frame of the daemon's own")
        return arrived.frame

    @property
    def in_flight(self) -> int:
        """Number of clients' frames that were accepted and are not answered yet."""
        return self.cores.lifecycle.frames.streams.undelivered - self.own_frames.in_flight

    def propose(self, plan: Plan, cause: str, settled: Callable[[do.Settled], None]) -> None:
        """Propose a client's plan; `settled` is called once, when the plan is live, refused or dropped."""
        self._clients_plans += 1
        proposed = ev.PlanProposed(ev.Owner.CLIENT, self._clients_plans, plan, ticket=settled, cause=cause)
        self.post(proposed, cause)

    def repace(self, place: str) -> None:
        """Have the place's worker adjust a pacing wait, as the place's speed has changed, or it is down or up."""
        places = self.cores.lifecycle.places
        worker = places.serving.get(place)
        if worker is not None:
            self._send(worker.incarnation, messages.Repace(at_once=place in places.down))

    def _part_failed(self, failed: messages.Failed) -> None:
        part, cause = failed.part, f"worker {failed.part.incarnation} failed"
        frame = self.cores.lifecycle.frames.by_number.get(part.frame)
        # A delivered frame is not reported: its client may have taken back the memory that it lent.
        if frame is not None and not frame.delivered:
            worker = self.cores.lifecycle.places.workers.get(part.incarnation)
            place, reason = "" if worker is None else worker.place, failed.reason
            log.warning("frame %d failed on %s: %s", part.frame, place, reason)
            raised = records.PartRaised(
                frame=part.frame, stage=part.stage, epoch=part.epoch, reason=reason, place=place
            )
            self.write(raised, cause)
        self.post(ev.PartFailed(part, failed.reason), cause)

    def _worker_ready(self, ready: messages.Ready) -> None:
        self.supervisor.is_ready(ready.incarnation)
        self.post(ev.WorkerReady(ready.incarnation), f"worker {ready.incarnation} is ready")

    def _prepare_failed(self, failed: messages.PrepareFailed) -> None:
        cause = f"worker {failed.incarnation} cannot prepare stage {failed.stage} of epoch {failed.epoch}"
        bad = failed.bad_machine
        self.post(ev.StageFailed(failed.epoch, failed.stage, failed.incarnation, failed.reason, bad), cause)

    def _place_there(self, there: cm.PlaceThere) -> None:
        self.write(records.HostCame(place=there.place, host=there.host), "the cluster")
        self.post(ev.PlaceReachable(there.place), "the cluster")

    def _far_failed(self, failed: cm.FarFailed) -> None:
        """Handle the failure of a far end before its relay is ready; a ready relay reports the end itself."""
        incarnation = failed.incarnation
        process = self.supervisor.processes.get(incarnation)
        if process is not None and not process.ready:
            hung = ev.WorkerHung(incarnation, f"its far end: {failed.reason}")
            self.post(hung, f"worker {incarnation} has no far end")

    def _link_seen(self, seen: messages.LinkSeen) -> None:
        place = self.supervisor.place_of(seen.incarnation)
        if place is not None and self.supervisor.far.link_seen(place, seen.speed):
            self.write(
                records.LinkChanged(place=place, **seen.speed.fields),
                f"worker {seen.incarnation} has measured its link",
            )

    def _part_done(self, done: messages.Done) -> None:
        part = done.part
        worker = self.cores.lifecycle.places.workers.get(part.incarnation)
        frames = None if worker is None else worker.out.get(part)
        if worker is not None and frames is not None:  # otherwise the reply is late, or a duplicate
            service_s, segments_s = self.telemetry.took(done, worker.place, [frame.ticket for frame in frames])
            for frame in frames:
                if frame.ticket.trace is not None:
                    frame.ticket.trace.done(part.stage, done.service_s, time.monotonic())
            if self.cores.wants_parts(time.monotonic()):
                full = len(frames) == self.cores.lifecycle.epochs.live[part.epoch].batches[part.stage]
                taken = te.PartTaken(part.epoch, part.stage, worker.place, service_s, segments_s, full)
                for _ in frames:
                    self.post(taken, "a part was computed")
        self.post(ev.PartDone(part, done.service_s), "a part was computed")

    def _prepared(self, said: messages.Prepared) -> None:
        epoch, stage, incarnation = said.epoch, said.stage, said.incarnation
        worker = self.cores.lifecycle.places.workers.get(incarnation)
        if worker is not None and (epoch, stage) in worker.loading:  # otherwise the plan has been dropped
            window = self.telemetry.window(epoch, stage, worker.place)
            window.note_built(said)
            epochs = self.cores.lifecycle.epochs.all
            most = next(known.batches[stage] for known in epochs if known.number == epoch)
            window.most = 1 if said.alone else most
        cause = f"worker {incarnation} is prepared for stage {stage} of epoch {epoch}"
        if said.alone:
            log.warning("stage %d of epoch %d: runs of one frame: %s", stage, epoch, said.alone)
        self.post(ev.StagePrepared(epoch, stage, incarnation, said.alone), cause)

    def _worker_gone(self, gone: ev.WorkerGone) -> None:
        cause = f"worker {gone.incarnation} ended"
        worker = self.cores.lifecycle.places.workers.get(gone.incarnation)
        if worker is not None:
            place, dismissed = worker.place, worker.dismissed
            ended = records.WorkerEnded(
                place=place, incarnation=gone.incarnation, reason=gone.reason, dismissed=dismissed
            )
            self.write(ended, cause)
        self.post(gone, cause)
        self.releases.gone(gone.incarnation)
        self._finish_releases(cause)

    def _forgotten(self, said: messages.Forgotten) -> None:
        self.releases.forgotten(said.incarnation)
        self._finish_releases(f"worker {said.incarnation} has forgotten stages")

    def _planless(self, instruction: do.PlaceReleased) -> None:
        until_s = time.monotonic() + self.cores.lifecycle.policy.prepare_s  # no build takes longer
        having, cores = self.releases.planless(instruction.place, until_s)
        for incarnation in having:
            self._send(incarnation, messages.Forget(tuple(sorted(cores))))
        self._finish_releases(self._cause)

    def look_at_releases(self, now_s: float) -> None:
        """Called periodically: replace workers that still keep a place from being released after its time limit."""
        for incarnation in self.releases.late(now_s):
            self.post(ev.WorkerHung(incarnation, "it does not forget stages of a place that is down"), "the clock")

    def _finish_releases(self, cause: str) -> None:
        for place in self.releases.finish(self.cores.lifecycle.available):
            self.write(records.PlaceLeft(place=place), cause)

    def write(self, record: records.Record, cause: str | None = None) -> None:
        self.journal.write(record, cause or self._cause)

    # --- instructions -----------------------------------------------------------------------------------------

    def _send(self, incarnation: int, message: messages.ToWorker) -> None:
        if (hung := self.supervisor.link.send(incarnation, message)) is not None:
            self._note_hung(hung)

    def _note_hung(self, hung: ev.WorkerHung) -> None:
        self.post(hung, f"worker {hung.incarnation} takes no messages")

    def take_back_regions(self) -> None:
        """Tell workers to close their descriptors of regions that have ended."""
        left = self.requests.regions.left
        while left:
            for hung in self.supervisor.link.take_back(left.pop()):
                self._note_hung(hung)

    def _fill(self, instruction: do.Fill) -> None:
        """Copy a frame's inputs into its slot. If no other slot is in use, note the frame as alone until one is."""
        ticket: Ticket = instruction.ticket
        begin_s = time.monotonic()
        self.requests.fill(ticket, instruction.slot)
        if ticket.trace is not None:
            ticket.trace.filled(begin_s, time.monotonic())
        frames = self.cores.lifecycle.frames
        alone = len(frames.free_slots) == frames.slot_count - 1
        self._alone = (instruction.frame, time.monotonic()) if alone else None

    def _collect(self, instruction: do.Collect) -> None:
        ticket: Ticket = instruction.ticket
        if self.shadow.wants_frame and not ticket.own:
            self.shadow.show(instruction.slot, ticket.request.layout)
        begin_s = time.monotonic()
        self.requests.collect(ticket, instruction)
        if ticket.trace is not None:
            ticket.trace.collected(begin_s, time.monotonic())
        now_s = time.monotonic()
        is_compared = self.cores.tuning.wants_answer(now_s)
        if is_compared:
            frames = self.cores.lifecycle.frames
            answered = te.FrameAnswered(
                instruction.epoch, frames.streams.undelivered, instruction.left, frames.kept_out
            )
            self.post(answered, "a frame was computed")
        is_heard = is_compared or self.cores.wants_parts(now_s)
        if is_heard and self._alone is not None and self._alone[0] == instruction.frame:
            latency_s = self.telemetry.alone_s(ticket, time.monotonic() - self._alone[1])
            self.post(te.FrameAlone(instruction.epoch, latency_s), "a frame was by itself")

    def _run(self, instruction: do.RunPart) -> None:
        d = instruction.descriptor
        ticket: Ticket = instruction.ticket
        tickets: list[Ticket] = [ticket, *(shared.ticket for shared in instruction.beside)]
        for at, traced in enumerate(tickets):
            if traced.trace is not None:
                place = self.cores.lifecycle.places.workers[d.incarnation].place
                own = d._replace(attempt=d.beside[at - 1].attempt) if at else d
                traced.trace.dealt(own, place, instruction.ready_s, time.monotonic())
        layout = ticket.request.layout
        ready_ns = int(instruction.ready_s * 1e9)
        if not (instruction.reads or instruction.writes or instruction.beside):
            self._send(d.incarnation, messages.Run(d, layout, ready_ns))
            return
        reads, writes = self._lend(d.incarnation, instruction)
        beside = tuple(messages.Copies(*self._lend(d.incarnation, shared)) for shared in instruction.beside)
        if not any(copies.reads or copies.writes for copies in beside):
            beside = ()
        self._send(d.incarnation, messages.Run(d, layout, ready_ns, reads, writes, beside))

    def _lend(self, incarnation: int, frame: do.RunPart | do.Shared) -> tuple[tuple[LentPiece, ...], ...]:
        """Lend the worker the client's regions for a frame. Returns the pieces to read, and those to write."""
        ticket: Ticket = frame.ticket
        reads, writes = ticket.reads if frame.reads else (), ticket.writes if frame.writes else ()
        for piece in (*reads, *writes):
            hung = self.supervisor.link.lend(incarnation, piece.region, self.requests.regions.fd)
            if hung is not None:
                self._note_hung(hung)
        return reads, writes

    def _start(self, instruction: do.Start) -> None:
        place, incarnation = instruction.place, instruction.incarnation
        if self.cores.lifecycle.places.by_name[place].restarts:
            self.counting.count("shisha_worker_restarts", place)
        try:
            self.supervisor.start(place, incarnation)
        except OSError as error:  # out of descriptors or processes; the place is started again later
            gone = ev.WorkerGone(incarnation, None, f"it could not be started: {error.strerror}", started=False)
            self.post(gone, f"worker {incarnation} could not be started")
            return
        self.write(records.WorkerStarted(place=place, incarnation=incarnation))

    def _kill(self, instruction: do.Kill) -> None:
        place = self.supervisor.place_of(instruction.incarnation)
        if place is not None:
            self.write(records.WorkerKilled(place=place, **asdict(instruction)))
        level = logging.INFO if instruction.dismissed else logging.WARNING
        self.supervisor.kill(instruction.incarnation, instruction.reason, level)

    def _prepare(self, instruction: do.PrepareStage) -> None:
        stage = instruction.plan.stages[instruction.stage]
        filed = self.cores.tuning.choice.filed
        team = [filed.place(name) for name in instruction.team] if len(instruction.team) > 1 else []
        if team:
            self.releases.note_team(instruction.incarnation, instruction.team)
        order = messages.Prepare(
            instruction.epoch,
            instruction.stage,
            stage.work,
            self._modelled_s(instruction.team, stage),
            stage.placement,
            cores=tuple(core for place in team for core in place.cores),
            threads=sum(place.threads for place in team),
            split=stage.split,
            engine=stage.engine,
            batch=instruction.batch,
        )
        self._send(instruction.incarnation, order)

    def _modelled_s(self, team: Team, stage: Stage) -> float:
        """CPU seconds of a stage by the machine's modelled timing; a shard takes its share of the split layers.

        0 where nothing is modelled, or a stage was placed at once.
        """
        lead = team[0]
        if stage.paced_s:
            threads = self.cores.tuning.choice.filed.place(lead).threads
            return threads * stage.paced_s[stage.teams.index(team)]
        if self._pacing is None:
            return 0.0
        whole_s = sum(self._pacing.segment_cpu_s(first, last, lead) for first, last in stage.work)
        if stage.split is None:
            return whole_s
        split_s = self._pacing.segment_cpu_s(*stage.split.span, lead)
        return whole_s - split_s if stage.split.joins else split_s * stage.split.fraction

    def _count_trial(self, trial: td.CountTrial) -> None:
        self.counting.count("shisha_tuner_trials", trial.verdict)
        self.counting.count("shisha_tuner_moves", by=trial.moves)

    def _settled(self, end: do.Settled) -> None:
        self.counting.count("shisha_plan_proposals", end.ending.value)
        if end.proposed.owner is ev.Owner.CLIENT:
            end.proposed.ticket(end)
        self.write(proposal_ended(end))

    def _epoch_started(self, started: do.EpochStarted) -> None:
        self.sweep.keep(started.plan)
        self.write(proposal_started(started))

    def _epoch_ended(self, ended: do.EpochEnded) -> None:
        """Free slots' memory for tensors that only the ended plan passed between stages; forget its measurements."""
        epochs = self.cores.lifecycle.epochs
        self.sweep.want(epochs.passed_by_none_but(ended.plan, self.sweep.passing))
        self.telemetry.forget(ended.epoch)
        self.counting.plan_ended(epochs.plans)

    def _answer(self, instruction: do.Deliver | do.Refuse) -> None:
        ticket = self.requests.end(instruction, time.monotonic())
        if not ticket.own:
            self.counting.answered(ticket)
            if ticket.trace is not None:
                self.counting.exemplify(ticket, self.tracing.ended(ticket))
            if ticket.error is None and self.telemetry.mix is not None:
                self.telemetry.mix.came(ticket.request.layout, ticket.compute_s)
        ticket.answer_to(ticket)


def _nothing(_: object) -> None:
    """Ignore an instruction from one core to another: the cores have carried it out."""
