"""The frames' part of the lifecycle (rules R1 and R3): accepted, given slots, dealt to workers, decided, delivered.

- Every accepted frame is decided exactly once and delivered exactly once, in its stream's order.
- A slot is free only when no descriptor of its frame is with any worker and its answer has been decided (collected,
  or an error).
- A part runs only on an incarnation that has loaded its epoch; a reply that matches no descriptor is dropped.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable

from shisha_rt.lifecycle import events as ev
from shisha_rt.lifecycle import instructions as do
from shisha_rt.lifecycle.epochs import Epochs
from shisha_rt.lifecycle.places import Places
from shisha_rt.lifecycle.policy import Policy
from shisha_rt.lifecycle.records import Frame, WorkerState
from shisha_rt.lifecycle.streams import Deadlines, Streams
from shisha_rt.lifecycle.tables import FRAME, FramePhase, Transition, step
from shisha_rt.wire.codes import Code


class Frames:
    """`ready`: by place, the frames that wait for its worker. `stranded`: those whose epoch has lost a place."""

    def __init__(
        self,
        slot_count: int,
        places: Places,
        epochs: Epochs,
        policy: Policy,
        story: deque[Transition],
        emit: Callable[[do.Instruction], None],
    ) -> None:
        self.by_number: dict[int, Frame] = {}
        self.slot_count = slot_count
        self.free_slots = list(range(slot_count))[::-1]
        self.streams = Streams(policy)
        self.ready: dict[str, set[int]] = {name: set() for name in places.by_name}
        self.stranded: set[int] = set()
        self.draining = False
        self.stale_replies = 0
        self.replayed = 0
        self._deadlines = Deadlines(policy.max_in_flight, self._is_decided)
        self._places = places
        self._epochs = epochs
        self._policy = policy
        self._story = story
        self._emit = emit

    def next_wake_s(self) -> float | None:
        return self._deadlines.next_s()

    # --- arriving, being admitted to a slot -------------------------------------------------------------------

    def arrived(self, event: ev.FrameArrived, now: float) -> None:
        streams = self.streams
        stream = streams.of(event)
        draining = Code.UNAVAILABLE, "the daemon is draining and admits no more frames"
        refusal = draining if self.draining else streams.refusal(event, stream)
        if refusal is not None:
            self._emit(do.Refuse(event.frame, *refusal))
            return
        frame = Frame(event.frame, event.client, stream, event.size_bytes, event.deadline_s)
        self.by_number[frame.number] = frame
        streams.accept(frame, event.sequence)
        if frame.deadline_s is not None:
            self._deadlines.note(frame.deadline_s, frame.number)

    def admit(self) -> None:
        """Fill free slots, one frame of each stream in turn."""
        epoch = self._epochs.runnable()
        while epoch is not None and self.free_slots and self.streams.turn:
            frame = self.by_number[self.streams.next_number()]
            frame.slot = self.free_slots.pop()
            self._step(frame, "admit")
            self.streams.waiting_bytes -= frame.size_bytes
            self._emit(do.Fill(frame.number, frame.slot))
            self._enlist(frame, epoch.number)

    # --- parts ------------------------------------------------------------------------------------------------

    def _enlist(self, frame: Frame, epoch: int) -> None:
        """Put a frame that is READY under `epoch` from its own input, to wait for stage 0's worker."""
        frame.epoch, frame.stage = epoch, 0
        self._epochs.live[epoch].frames.add(frame.number)
        self._queue(frame)

    def _queue(self, frame: Frame) -> None:
        """A READY frame waits for the worker of its stage; if its epoch has lost a place it starts over instead."""
        assert frame.epoch is not None
        epoch = self._epochs.live[frame.epoch]
        if self._epochs.is_broken(epoch):
            self._strand(frame)
        else:
            self.ready[epoch.stage_places[frame.stage]].add(frame.number)

    def _strand(self, frame: Frame) -> None:
        self._step(frame, "strand")
        self._leave_epoch(frame)
        self.stranded.add(frame.number)

    def rescue(self) -> None:
        """Frames whose epoch lost a place start over from their own input, under the newest epoch that can run."""
        for epoch in self._epochs.live.values():
            if epoch.frames and self._epochs.is_broken(epoch):
                for number in sorted(epoch.frames):
                    frame = self.by_number[number]
                    if frame.phase is FramePhase.READY:
                        self._strand(frame)
        target = self._epochs.runnable()
        if target is None:
            return
        for number in sorted(self.stranded):
            frame = self.by_number[number]
            frame.attempt += 1
            self._step(frame, "restart")
            self._enlist(frame, target.number)
        self.stranded.clear()

    def dispatch(self) -> None:
        """Give each worker its oldest runnable frames, up to its depth."""
        for worker in self._places.workers.values():
            queue = self.ready[worker.place]
            room = self._policy.descriptors_per_worker - len(worker.out)
            if worker.killed or room <= 0 or not queue:
                continue
            loaded = (n for n in sorted(queue) if self.by_number[n].epoch in worker.loaded)
            for number in list(itertools.islice(loaded, room)):
                self._run(self.by_number[number], worker)

    def _run(self, frame: Frame, worker: WorkerState) -> None:
        assert frame.epoch is not None
        assert frame.slot is not None
        self._step(frame, "dispatch")
        frame.out = ev.Descriptor(worker.incarnation, frame.number, frame.attempt, frame.stage, frame.epoch, frame.slot)
        worker.out[frame.out] = None
        self._emit(do.RunPart(frame.out))

    def _take_back(self, descriptor: ev.Descriptor) -> Frame | None:
        """The frame whose outstanding part this is, or None (counted) for a late or unknown reply."""
        worker = self._places.workers.get(descriptor.incarnation)
        if worker is None or descriptor not in worker.out:
            self.stale_replies += 1
            return None
        del worker.out[descriptor]
        frame = self.by_number[descriptor.frame]
        frame.out = None
        return frame

    def part_done(self, event: ev.PartDone, now: float) -> None:
        frame = self._take_back(event.descriptor)
        if frame is None:
            return
        if frame.phase is FramePhase.LEAVING:
            self._step(frame, "return")
            self._free(frame)
            return
        assert frame.epoch is not None
        if frame.stage + 1 < len(self._epochs.live[frame.epoch].plan.stages):
            frame.stage += 1
            self._step(frame, "advance")
            self._queue(frame)
            return
        assert frame.slot is not None
        self._emit(do.Collect(frame.number, frame.slot, frame.epoch))
        self._step(frame, "finish")
        self._free(frame)
        self._decide(frame)

    def part_failed(self, event: ev.PartFailed, now: float) -> None:
        frame = self._take_back(event.descriptor)
        if frame is None:
            return
        leaving = frame.phase is FramePhase.LEAVING
        self._step(frame, "return" if leaving else "fail")
        self._free(frame)
        if not leaving:
            self._decide(frame, Code.INTERNAL, event.reason)

    def worker_gone(self, worker: WorkerState, running: int | None, reason: str) -> None:
        """Take back what the dead worker held; only the frame that it was computing is charged with its death."""
        for descriptor in worker.out:
            frame = self.by_number[descriptor.frame]
            frame.out = None
            if frame.phase is FramePhase.LEAVING:
                self._step(frame, "return")
                self._free(frame)
            else:
                self._replay(frame, charged=running == frame.number, place=worker.place, reason=reason)
        worker.out.clear()

    def _replay(self, frame: Frame, *, charged: bool, place: str, reason: str) -> None:
        self._step(frame, "lose")
        frame.attempt += 1
        frame.deaths += charged
        if frame.deaths >= self._policy.deaths_per_frame:
            message = f"the worker on {place} died {frame.deaths} times while it ran this frame: {reason}"
            self._abandon(frame, Code.INTERNAL, message)
            return
        self.replayed += 1
        self._queue(frame)

    # --- being decided and delivered --------------------------------------------------------------------------

    def cancelled(self, event: ev.FrameCancelled, now: float) -> None:
        if not self._is_decided(event.frame):
            self._abandon(self.by_number[event.frame], Code.CANCELLED, "cancelled by its client")

    def expire(self, now: float) -> None:
        for number in self._deadlines.passed(now):
            self._abandon(self.by_number[number], Code.DEADLINE_EXCEEDED, "the frame's deadline has passed")

    def drain(self) -> None:
        """Admit nothing more."""
        self.draining = True

    def stop(self) -> None:
        """Decide whatever is undecided."""
        self.draining = True
        for frame in [f for f in self.by_number.values() if not f.decided]:
            self._abandon(frame, Code.UNAVAILABLE, "the daemon stopped before the frame was done")

    def _is_decided(self, number: int) -> bool:
        frame = self.by_number.get(number)
        return frame is None or frame.decided

    def _abandon(self, frame: Frame, code: Code, message: str) -> None:
        """Decide an error now. A part that is still out keeps the slot until it is back."""
        if frame.phase is FramePhase.WAITING:
            self.streams.give_up(frame)
        self._step(frame, "decide")
        if frame.phase is FramePhase.GONE:
            self._free(frame)
        self._decide(frame, code, message)

    def _decide(self, frame: Frame, code: Code | None = None, message: str = "") -> None:
        frame.error = None if code is None else (code, message)
        for one in self.streams.in_order(frame, self.by_number):
            self._deliver(one)

    def _deliver(self, frame: Frame) -> None:
        frame.delivered = True
        self.streams.undelivered -= 1
        self._emit(do.Deliver(frame.number, *(frame.error or ())))
        self._forget(frame)

    def _free(self, frame: Frame) -> None:
        """The frame is out of every worker's hands: its slot and its place in the epoch are open again."""
        self._leave_epoch(frame)
        self.stranded.discard(frame.number)
        if frame.slot is not None:
            self.free_slots.append(frame.slot)
            frame.slot = None
        self._forget(frame)

    def _forget(self, frame: Frame) -> None:
        if frame.delivered and frame.phase is FramePhase.GONE:
            self.by_number.pop(frame.number, None)

    def _leave_epoch(self, frame: Frame) -> None:
        if frame.epoch is not None:
            self._epochs.live[frame.epoch].frames.discard(frame.number)
            frame.epoch = None

    def _step(self, frame: Frame, action: str) -> None:
        """Every change of a frame's phase; one that stops being READY leaves its queue."""
        if frame.phase is FramePhase.READY and frame.epoch is not None:
            self.ready[self._epochs.live[frame.epoch].stage_places[frame.stage]].discard(frame.number)
        frame.phase = step(FRAME, "frame", frame.number, frame.phase, action, self._story)
