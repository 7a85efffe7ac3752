"""The frames' part of the lifecycle (rules R1 and R3): accepted, given slots, computed by parts, decided, delivered.

- Every accepted frame is decided exactly once and delivered exactly once, in its stream's order.
- A slot is free only when no descriptor of its frame is with any worker and its answer has been decided (collected,
  or an error).
- The answer returns the memory that a client lends for outputs, so it is sent only when no part is out. Lent inputs are
  copied into the slot before any stage reads them there, and never again.
- A part is ready when all stages before its own are done; a reply that matches no descriptor is dropped.
- A frame restarts under another epoch only when none of its parts is out. A part that was lost may run again within its
  epoch at any time: its inputs are never overwritten, and its outputs are read only when it is done.
- A worker's death is charged once, to the frame that it was computing, and only if that part was dealt after the
  frame's last charge: if one frame kills two workers at the same time, one death counts.
- If a batch of several frames ends with a worker's death or an engine's error, the frame that caused it is not known:
  its frames are not charged but suspected. Each runs again alone, on the same place, and answers for what happens then.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from typing import Final

from shisha_rt.core.lifecycle import events as ev
from shisha_rt.core.lifecycle import instructions as do
from shisha_rt.core.lifecycle.dealing import Dealing
from shisha_rt.core.lifecycle.forecast import Forecast
from shisha_rt.core.lifecycle.outage import Outage
from shisha_rt.core.lifecycle.policy import Policy
from shisha_rt.core.lifecycle.records import Epoch, Frame, WorkerState
from shisha_rt.core.lifecycle.streams import Deadlines
from shisha_rt.core.lifecycle.tables import FRAME, FramePhase, Transition, Transitions
from shisha_rt.errors import Error

_WHATEVER_STAGE: Final = -1
_DRAINING: Final = Error.DRAINING, "the daemon is draining and admits no more frames"


class Frames:
    """`stranded`: the frames whose epoch has lost a stage. `replayed`: how many parts were lost and ran again.

    `slots_a_frame`: the number of slots in use with a plan without batches; with a largest batch of n frames it is n
    times as many. Slots that were never used occupy no memory, as none of their pages has been written.
    """

    def __init__(
        self,
        slots_a_frame: int,
        dealing: Dealing,
        policy: Policy,
        story: deque[Transition],
        emit: Callable[[do.Instruction], None],
    ) -> None:
        self.by_number: dict[int, Frame] = {}
        self.slot_count = slots_a_frame * dealing.epochs.rules.most_batch
        self.slots_a_frame = slots_a_frame
        # A heap, so that slots in use are neighbours, as those of a batch should be.
        self.free_slots = list(range(self.slot_count))
        self.streams = dealing.streams
        self.stranded: set[int] = set()
        self.draining = False
        self.stale_replies = 0
        self.replayed = 0
        self.kept_out = 0
        self.outage = Outage(dealing.places, dealing.epochs, policy)
        self._turns = itertools.count()
        self._forecast = Forecast(policy.target_s)
        self.deadlines = Deadlines(2 * policy.max_in_flight, self._is_decided)
        self._epochs = dealing.epochs
        self._dealing = dealing
        self._policy = policy
        self._step = Transitions("frame", FRAME, story).step
        self._emit = emit

    def queued(self, epoch: int) -> Mapping[int, int]:
        """Map each stage of `epoch` to the number of parts that wait for a worker or are with one."""
        return self._dealing.queued(epoch)

    # --- arriving, being admitted to a slot -------------------------------------------------------------------

    def arrived(self, event: ev.FrameArrived, now: float) -> None:
        """Accept a frame, or refuse it: draining, no worker, too many, out of sequence, or too late for its target."""
        streams = self.streams
        stream = streams.of(event)
        refusal = _DRAINING if self.draining else self.outage.refusal or streams.refusal(event, stream)
        predicted_s = 0.0
        if refusal is None and self._forecast.target_s < math.inf:
            predicted_s, refusal = self._foresee(event, now)
            self.kept_out += event.frames if refusal is not None else 0
        if refusal is not None:
            self._emit(do.Refuse(event.frame, *refusal, event.ticket))
            return
        frame = Frame(
            event.frame,
            stream,
            event.size_bytes,
            event.deadline_s,
            unread=event.lent_in,
            lent_out=event.lent_out,
            shape=event.shape,
            priority=event.priority,
            arrived_s=now,
            predicted_s=predicted_s,
            ticket=event.ticket,
        )
        self.by_number[frame.number] = frame
        streams.accept(frame, event.sequence)
        self._dealing.returns.came(now)
        if frame.deadline_s is not None:
            self.deadlines.note(frame.deadline_s, frame.number)
        epoch = self._epochs.runnable() if self.free_slots and not streams.turns.levels else None
        if epoch is not None and self.room(epoch) > 0:
            self._begin(frame, epoch, now)
        else:
            streams.wait(frame)

    def _foresee(self, event: ev.FrameArrived, now: float) -> tuple[float, tuple[Error, str] | None]:
        """Return the seconds predicted for the frame, and the reason to refuse its request if the last would be late.

        A frame without others before it is not refused: otherwise the target might be met again, and no frame show it.
        """
        if not self.streams.undelivered:
            return self._forecast.predicted_s(0, self._epochs.newest, now), None
        ahead = self.slot_count - len(self.free_slots) + self.streams.turns.ahead(event.client, event.priority)
        predicted_s = self._forecast.predicted_s(ahead, self._epochs.newest, now)
        last_s = self._forecast.predicted_s(ahead + event.frames - 1, self._epochs.newest, now)
        if not event.frames or not self._forecast.is_late(last_s):
            return predicted_s, None
        likely_ms, target_ms = 1e3 * self._forecast.at_most_s(last_s), 1e3 * self._forecast.target_s
        had = f"{ahead} frames are before it, so it would take up to {likely_ms:.3g} ms"
        return predicted_s, (Error.TARGET_OUT_OF_REACH, f"{had}; the target is {target_ms:g} ms")

    def admit(self, now: float) -> None:
        """Fill free slots, by priority, one frame of each client in turn, and of each of its streams."""
        levels = self.streams.turns.levels
        epoch = self._epochs.runnable() if self.free_slots and levels else None
        if epoch is None:
            return
        for _ in range(self.room(epoch)):
            if not levels:
                return
            self._begin(self.streams.next_waiting(), epoch, now)

    def _begin(self, frame: Frame, epoch: Epoch, now: float) -> None:
        frame.slot, frame.turn = heappop(self.free_slots), next(self._turns)
        self._step(frame.number, frame, "admit")
        self._emit(do.Fill(frame.number, frame.slot, frame.ticket))
        self._enlist(frame, epoch, now)

    def room(self, epoch: Epoch) -> int:
        """How many more slots may be filled under `epoch`; not positive if none."""
        return len(self.free_slots) - self.slot_count + self.slots_a_frame * max(epoch.batches)

    # --- parts ------------------------------------------------------------------------------------------------

    def _enlist(self, frame: Frame, epoch: Epoch, now: float) -> None:
        """Have an ACTIVE frame computed under `epoch`, from its input on."""
        frame.epoch = epoch
        epoch.frames.add(frame.number)
        if frame.unread and len(epoch.first) > 1:
            assert frame.slot is not None
            self._emit(do.ReadLent(frame.number, frame.slot, frame.ticket))
            frame.unread = False
        for stage in epoch.first:
            self._dealing.queue(frame, stage, now)

    def rescue(self, now: float) -> None:
        """Restart frames whose epoch lost a stage from their input, under the newest epoch if it can run."""
        for epoch in self._epochs.live.values():
            if epoch.frames and self._epochs.is_broken(epoch):
                for number in sorted(epoch.frames):
                    frame = self.by_number[number]
                    if frame.phase is FramePhase.ACTIVE and not frame.out:
                        self._strand(frame)
        target = self._epochs.runnable()
        if target is None:
            return
        for number in sorted(self.stranded):
            frame = self.by_number[number]
            frame.attempt += 1
            self._step(frame.number, frame, "restart")
            self._enlist(frame, target, now)
        self.stranded.clear()

    def _strand(self, frame: Frame) -> None:
        self._dealing.drop(frame)
        self._step(frame.number, frame, "strand")
        self._leave_epoch(frame)
        frame.done.clear()
        if frame.suspected is not None:
            frame.suspected = _WHATEVER_STAGE
        self.stranded.add(frame.number)

    def part_done(self, event: ev.PartDone, now: float) -> None:
        """Pass the frames of a run on to their next stages, or answer them. Stale replies are only counted."""
        frames = self._dealing.take_back(event.descriptor, now, event.service_s)
        if frames is None:
            self.stale_replies += 1
            return
        left, before = len(frames), self.streams.undelivered
        for frame in frames:
            left -= 1
            if frame.phase is FramePhase.LEAVING:
                self._returned(frame)
            else:
                self._passed(frame, event.descriptor.stage, left, now)
        self._dealing.returns.answered(before - self.streams.undelivered, now)

    def _passed(self, frame: Frame, stage: int, left: int, now: float) -> None:
        """Note that the frame has passed `stage`. `left`: frames of the same batch that are still to be handled."""
        epoch, done = frame.epoch, frame.done
        assert epoch is not None
        epoch.moved_s = now
        frame.unread = False
        if frame.suspected == stage:
            frame.suspected = None
            if not frame.deaths:
                frame.died_on = None
                self._dealing.charged.discard(frame.number)
        done.add(stage)
        if len(done) == len(epoch.followers):
            if frame.predicted_s:
                self._forecast.answered(frame.predicted_s, now - frame.arrived_s)
            self._finish(frame, epoch, left)
        else:
            self._go_on(frame, epoch, stage, now)

    def _go_on(self, frame: Frame, epoch: Epoch, done: int, now: float) -> None:
        """Queue the stages that waited only for stage `done`."""
        for stage in epoch.followers[done]:
            if frame.done.issuperset(epoch.plan.stages[stage].after):
                self._dealing.queue(frame, stage, now)

    def _finish(self, frame: Frame, epoch: Epoch, left: int) -> None:
        assert frame.slot is not None
        self._emit(do.Collect(frame.number, frame.slot, epoch.number, len(epoch.last) == 1, frame.ticket, left))
        self._step(frame.number, frame, "finish")
        self._free(frame)
        self._answer(frame)

    def part_failed(self, event: ev.PartFailed, now: float) -> None:
        """Answer the frame of a failed run with its error. If the run had several frames, run each again alone."""
        part = event.descriptor
        place = self._dealing.place_of(part)
        frames = self._dealing.take_back(part, now)
        if frames is None:
            self.stale_replies += 1
            return
        for frame in frames:
            if frame.phase is FramePhase.LEAVING:
                self._returned(frame)
            elif part.beside:
                self._suspect(frame, part.stage, place)
                self._dealing.queue(frame, part.stage, now)
            else:
                self._abandon(frame, Error.TASK_FAILED, event.reason)

    def _returned(self, frame: Frame) -> None:
        """Note that a part of a decided frame has come back; with the last one the frame leaves its slot."""
        if not frame.out:
            self._step(frame.number, frame, "return")
            self._free(frame)
            if frame.lent_out:
                self._answer(frame)

    def worker_gone(self, worker: WorkerState, event: ev.WorkerGone, now: float) -> None:
        """Take back what the dead worker held; only the frame that it was computing is charged with its death."""
        lost, worker.out = worker.out, {}
        for part, frames in lost.items():
            for frame in frames:
                del frame.out[part.stage]
        computed = next((part for part in lost if part.frame == event.running), None)  # the first: parts run in order
        if computed is not None and not worker.blameless:
            for frame in lost[computed]:
                self._blame(frame, computed, worker.place, event.reason)
        for part, frames in lost.items():
            for frame in frames:
                if frame.phase is FramePhase.ACTIVE:
                    self.replayed += 1
                    self._dealing.queue(frame, part.stage, now)
                elif frame.phase is FramePhase.LEAVING:
                    self._returned(frame)

    def _blame(self, frame: Frame, part: ev.Descriptor, place: str, reason: str) -> None:
        """Charge the frame, or suspect it: a worker died while it computed this part of the frame."""
        if frame.phase is not FramePhase.ACTIVE or part in frame.excused:
            return
        if part.beside:
            self._suspect(frame, part.stage, place)
        else:
            self._charge(frame, place, reason)

    def _suspect(self, frame: Frame, stage: int, place: str) -> None:
        frame.suspected, frame.excused = stage, frozenset(frame.out.values())
        if not frame.deaths:  # else it stays bound to the place whose worker it killed
            frame.died_on = place
        self._dealing.charged.add(frame.number)

    def _charge(self, frame: Frame, place: str, reason: str) -> None:
        frame.deaths += 1
        frame.died_on, frame.excused = place, frozenset(frame.out.values())
        self._dealing.charged.add(frame.number)
        if frame.suspected is not None:
            message = f"the worker on {place} died while it ran this frame with others, and then alone: {reason}"
            self._abandon(frame, Error.WORKER_DIED, message)
        elif frame.deaths >= self._policy.deaths_per_frame:
            message = f"the worker on {place} died {frame.deaths} times while it ran this frame: {reason}"
            self._abandon(frame, Error.WORKER_DIED, message)

    # --- being decided and delivered --------------------------------------------------------------------------

    def cancelled(self, event: ev.FrameCancelled, now: float) -> None:
        """Answer a frame as cancelled, unless its answer is decided."""
        if not self._is_decided(event.frame):
            self._abandon(self.by_number[event.frame], Error.CANCELLED, "cancelled by its client")

    def expire(self, now: float) -> None:
        """Answer all frames whose deadline has passed."""
        for number in self.deadlines.passed(now):
            self._abandon(self.by_number[number], Error.DEADLINE_PASSED, "the frame's deadline has passed")

    def give_up(self, now: float) -> None:
        """Answer all frames with an error if none could be computed for too long."""
        if self.outage.look(now) and self.outage.refusal is not None:
            for frame in list(self.by_number.values()):
                if not frame.decided:
                    self._abandon(frame, *self.outage.refusal)

    def drain(self) -> None:
        """Admit nothing more."""
        self.draining = True

    def stop(self) -> None:
        """Decide all undecided frames, and answer all. Workers have ended, so none can write to lent memory."""
        self.draining = True
        for frame in list(self.by_number.values()):
            owed = frame.decided and not frame.answerable
            frame.lent_out = False
            if owed:
                self._answer(frame)
            elif not frame.decided:
                self._abandon(frame, Error.STOPPED, "the daemon stopped before the frame was done")

    def _is_decided(self, number: int) -> bool:
        frame = self.by_number.get(number)
        return frame is None or frame.decided

    def _abandon(self, frame: Frame, kind: Error, message: str) -> None:
        """Decide the frame with an error. Its queued parts are dropped; its slot stays taken until no part is out."""
        if frame.phase is FramePhase.WAITING:
            self.streams.give_up(frame)
        elif frame.phase is FramePhase.ACTIVE:
            self._dealing.drop(frame)
        if frame.out:
            self._step(frame.number, frame, "leave")
        else:
            self._step(frame.number, frame, "decide")
            self._free(frame)
        frame.error = kind, message
        if frame.answerable:
            self._answer(frame)

    def _answer(self, frame: Frame) -> None:
        """Release the frame's answer in its stream's order, and the answers that waited behind it."""
        if not frame.stream.ordered:
            self._deliver(frame)
            return
        order = frame.stream.order
        while order and self.by_number[order[0]].answerable:
            self._deliver(self.by_number[order.pop(0)])

    def _deliver(self, frame: Frame) -> None:
        frame.delivered = True
        self.streams.delivered(frame)
        kind, message = frame.error or (None, "")
        self._emit(do.Deliver(frame.number, kind, message, frame.ticket))
        if frame.phase is FramePhase.GONE:
            del self.by_number[frame.number]

    def _free(self, frame: Frame) -> None:
        """Free the slot of a frame that no worker has any more, and take the frame out of its epoch."""
        self._leave_epoch(frame)
        self.stranded.discard(frame.number)
        self._dealing.charged.discard(frame.number)
        if frame.slot is not None:
            heappush(self.free_slots, frame.slot)
            frame.slot = None
        if frame.delivered:
            del self.by_number[frame.number]

    def _leave_epoch(self, frame: Frame) -> None:
        if frame.epoch is not None:
            frame.epoch.frames.discard(frame.number)
            frame.epoch = None
