"""The one mutator: events in, instructions out (rules R1, R2, R3 and R6). It touches nothing.

It owns slots, attempts, epochs, replays, order and deadlines. What it promises, whatever moves, dies or restarts:

- every accepted frame is decided exactly once and delivered exactly once, in its stream's order;
- a slot is free only when no descriptor of its frame is with any worker and its answer has been decided
  (collected, or an error);
- a part runs only on an incarnation that has loaded its epoch; a reply that matches no descriptor is dropped;
- at most one epoch is being prepared, and at most two are live; each proposal is settled exactly once.

`handle` first lets time pass (deadlines, timeouts, restarts), then applies the event, then hands out whatever work
that made possible. Times are seconds of one monotonic clock that the caller reads.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from shisha_rt.lifecycle import events as ev
from shisha_rt.lifecycle.epochs import Epochs
from shisha_rt.lifecycle.places import Places
from shisha_rt.lifecycle.policy import Policy
from shisha_rt.lifecycle.states import FRAME, Frame, FramePhase, Stream, step
from shisha_rt.wire.codes import Code

_OF_FRAMES: Final = (ev.FrameArrived, ev.FrameCancelled, ev.PartDone, ev.PartFailed, ev.Tick)
_IDLE_STREAMS_KEPT: Final = 10_000


class Lifecycle:
    """The state of a serving daemon. Read its fields freely; change it only through `handle`."""

    def __init__(self, places: Iterable[str], slot_count: int, policy: Policy) -> None:
        self.policy = policy
        self.story: deque[str] = deque(maxlen=1000)
        self.instructions: list[ev.Instruction] = []
        self.places = Places(places, policy, self.story, self.instructions.append)
        self.epochs = Epochs(self.places, policy, self.story, self.instructions.append)
        self.slot_count = slot_count
        self.free_slots = list(range(slot_count))[::-1]
        self.frames: dict[int, Frame] = {}
        self.streams: dict[tuple[Any, str | None], Stream] = {}
        self._calm = False
        self.draining = False
        self.undelivered = 0
        self.waiting_bytes = 0
        self.stale_replies = 0
        self.replayed = 0
        self.turn: deque[Stream] = deque()
        self._deadlines: list[tuple[float, int]] = []
        self.ready: dict[str, set[int]] = {name: set() for name in self.places.by_name}
        self.stranded: set[int] = set()
        self._apply: dict[type, Callable[[Any, float], None]] = {
            ev.FrameArrived: self._frame_arrived,
            ev.FrameCancelled: self._frame_cancelled,
            ev.PartDone: self._part_done,
            ev.PartFailed: self._part_failed,
            ev.WorkerReady: self._worker_ready,
            ev.WorkerGone: self._worker_gone,
            ev.PlanProposed: lambda e, now: self.epochs.propose(e.proposal, e.plan),
            ev.Prepared: lambda e, now: self.epochs.prepared(e.epoch, e.incarnation),
            ev.PrepareFailed: lambda e, now: self.epochs.prepare_failed(e.epoch, e.incarnation, e.reason),
            ev.PlaceDown: lambda e, now: self.places.take_down(e.place),
            ev.PlaceUp: lambda e, now: self.places.bring_up(e.place, now),
            ev.Drain: self._drain,
            ev.Stop: self._stop,
            ev.Tick: lambda e, now: None,
        }

    def handle(self, event: ev.Event, now_s: float) -> list[ev.Instruction]:
        """Apply one event; the instructions are to be carried out in their order before the next event."""
        calm = self._calm and isinstance(event, _OF_FRAMES)
        self._expire(now_s)
        if not calm:
            self.places.tick(now_s)
            self.epochs.tick(now_s)
        self._apply[type(event)](event, now_s)
        if calm:
            self._admit()
            self._dispatch()
        else:
            self._pump(now_s)
        done = self.instructions[:]
        self.instructions.clear()
        return done

    def next_wake_s(self) -> float | None:
        """When `Tick` is due at the latest, if nothing else happens."""
        while self._deadlines and self._is_decided(self._deadlines[0][1]):
            heapq.heappop(self._deadlines)
        times = [self._deadlines[0][0]] if self._deadlines else []
        if not self._calm:
            times += self.places.wake_times()
            times += self.epochs.wake_times()
        return min(times, default=None)

    @property
    def idle(self) -> bool:
        """No accepted frame is unanswered."""
        return not self.undelivered

    # --- frames: arriving, being admitted to a slot -----------------------------------------------------------

    def _frame_arrived(self, event: ev.FrameArrived, now: float) -> None:
        stream = self.streams.get((event.client, event.stream)) or Stream((event.client, event.stream))
        refusal = self._refusal(event, stream)
        if refusal is not None:
            self.instructions.append(ev.Refuse(event.frame, *refusal))
            return
        frame = Frame(event.frame, event.client, stream, event.size_bytes, event.deadline_s)
        self.frames[frame.number] = frame
        self._remember(stream)
        if event.sequence is not None:
            stream.last_sequence = event.sequence
        if stream.ordered:
            stream.order.append(frame.number)
        if not stream.waiting:
            self.turn.append(stream)
        stream.waiting.append(frame.number)
        self.undelivered += 1
        self.waiting_bytes += frame.size_bytes
        if frame.deadline_s is not None:
            self._note_deadline(frame.deadline_s, frame.number)

    def _refusal(self, event: ev.FrameArrived, stream: Stream) -> tuple[Code, str] | None:
        if self.draining:
            return Code.UNAVAILABLE, "the daemon is draining and admits no more frames"
        expected = None if stream.last_sequence is None else stream.last_sequence + 1
        if stream.ordered and event.sequence is not None and expected is not None and event.sequence != expected:
            return Code.INVALID_ARGUMENT, f"sequence is {event.sequence}, expected {expected} in this stream"
        if self.undelivered >= self.policy.max_in_flight:
            return Code.RESOURCE_EXHAUSTED, f"{self.undelivered} frames are in flight, the most that are admitted"
        if self.waiting_bytes + event.size_bytes > self.policy.waiting_bytes and self.waiting_bytes:
            return Code.RESOURCE_EXHAUSTED, f"{self.waiting_bytes} bytes of requests wait, the most that are held"
        return None

    def _remember(self, stream: Stream) -> None:
        """Keep the stream, most recently used last; forget the longest idle ones beyond a bound."""
        self.streams.pop(stream.key, None)
        self.streams[stream.key] = stream
        if len(self.streams) > _IDLE_STREAMS_KEPT:
            others = (one for one in self.streams.values() if one is not stream)
            idle = next((one for one in others if not one.order and not one.waiting), None)
            if idle is not None:
                del self.streams[idle.key]

    def _admit(self) -> None:
        """Fill free slots, one frame of each stream in turn."""
        epoch = self.epochs.runnable()
        while epoch is not None and self.free_slots and self.turn:
            stream = self.turn.popleft()
            frame = self.frames[stream.waiting.popleft()]
            if stream.waiting:
                self.turn.append(stream)
            frame.slot = self.free_slots.pop()
            self._step(frame, "admit")
            self.waiting_bytes -= frame.size_bytes
            self.instructions.append(ev.Fill(frame.number, frame.slot))
            self._enlist(frame, epoch.number)

    def _give_up_waiting(self, frame: Frame) -> None:
        self.waiting_bytes -= frame.size_bytes
        frame.stream.waiting.remove(frame.number)
        if not frame.stream.waiting:
            self.turn.remove(frame.stream)

    # --- frames: their parts ----------------------------------------------------------------------------------

    def _enlist(self, frame: Frame, epoch: int) -> None:
        """Put a frame that is READY under `epoch` from its own input, to wait for stage 0's worker."""
        frame.epoch, frame.stage = epoch, 0
        self.epochs.live[epoch].frames.add(frame.number)
        self._queue(frame)

    def _queue(self, frame: Frame) -> None:
        """A READY frame waits for the worker of its stage; if its epoch has lost a place it starts over instead."""
        assert frame.epoch is not None
        epoch = self.epochs.live[frame.epoch]
        if self.epochs.is_broken(epoch):
            self._strand(frame)
        else:
            self.ready[epoch.plan.stages[frame.stage].place].add(frame.number)

    def _strand(self, frame: Frame) -> None:
        self._step(frame, "strand")
        self._leave_epoch(frame)
        self.stranded.add(frame.number)

    def _dispatch(self) -> None:
        """Give each worker its oldest runnable frames, up to its depth."""
        for worker in self.places.workers.values():
            queue = self.ready[worker.place]
            room = self.policy.descriptors_per_worker - len(worker.out)
            if worker.killed or room <= 0 or not queue:
                continue
            loaded = (n for n in sorted(queue) if self.frames[n].epoch in worker.loaded)
            for number in list(itertools.islice(loaded, room)):
                self._run(self.frames[number], worker.incarnation)

    def _run(self, frame: Frame, incarnation: int) -> None:
        assert frame.epoch is not None
        assert frame.slot is not None
        self._step(frame, "dispatch")
        frame.out = ev.Descriptor(incarnation, frame.number, frame.attempt, frame.stage, frame.epoch, frame.slot)
        self.places.workers[incarnation].out[frame.out] = None
        self.instructions.append(ev.Run(frame.out))

    def _take_back(self, descriptor: ev.Descriptor) -> Frame | None:
        """The frame whose outstanding part this is, or None (counted) for a late or unknown reply."""
        worker = self.places.workers.get(descriptor.incarnation)
        if worker is None or descriptor not in worker.out:
            self.stale_replies += 1
            return None
        del worker.out[descriptor]
        frame = self.frames[descriptor.frame]
        frame.out = None
        return frame

    def _part_done(self, event: ev.PartDone, now: float) -> None:
        frame = self._take_back(event.descriptor)
        if frame is None:
            return
        if frame.phase is FramePhase.LEAVING:
            self._step(frame, "return")
            self._free(frame)
            return
        assert frame.epoch is not None
        if frame.stage + 1 < len(self.epochs.live[frame.epoch].plan.stages):
            frame.stage += 1
            self._step(frame, "advance")
            self._queue(frame)
            return
        assert frame.slot is not None
        self.instructions.append(ev.Collect(frame.number, frame.slot, frame.epoch))
        self._step(frame, "finish")
        self._free(frame)
        self._decide(frame, None, "")

    def _part_failed(self, event: ev.PartFailed, now: float) -> None:
        frame = self._take_back(event.descriptor)
        if frame is None:
            return
        leaving = frame.phase is FramePhase.LEAVING
        self._step(frame, "return" if leaving else "fail")
        self._free(frame)
        if not leaving:
            self._decide(frame, Code.INTERNAL, event.reason)

    # --- frames: being decided and delivered ------------------------------------------------------------------

    def _frame_cancelled(self, event: ev.FrameCancelled, now: float) -> None:
        if not self._is_decided(event.frame):
            self._abandon(self.frames[event.frame], Code.CANCELLED, "cancelled by its client")

    def _is_decided(self, number: int) -> bool:
        frame = self.frames.get(number)
        return frame is None or frame.decided

    def _note_deadline(self, deadline_s: float, number: int) -> None:
        """Remember a deadline; those of decided frames go at the latest when they are most of what is remembered."""
        heapq.heappush(self._deadlines, (deadline_s, number))
        if len(self._deadlines) > 2 * self.policy.max_in_flight:
            self._deadlines = [entry for entry in self._deadlines if not self._is_decided(entry[1])]
            heapq.heapify(self._deadlines)

    def _expire(self, now: float) -> None:
        while self._deadlines and self._deadlines[0][0] <= now:
            _, number = heapq.heappop(self._deadlines)
            if not self._is_decided(number):
                self._abandon(self.frames[number], Code.DEADLINE_EXCEEDED, "the frame's deadline has passed")

    def _abandon(self, frame: Frame, code: Code, message: str) -> None:
        """Decide an error now. A part that is still out keeps the slot until it is back."""
        if frame.phase is FramePhase.WAITING:
            self._give_up_waiting(frame)
        self._step(frame, "decide")
        if frame.phase is FramePhase.GONE:
            self._free(frame)
        self._decide(frame, code, message)

    def _decide(self, frame: Frame, code: Code | None, message: str) -> None:
        frame.decided, frame.code, frame.message = True, code, message
        if not frame.stream.ordered:
            self._deliver(frame)
            return
        order = frame.stream.order
        while order and self.frames[order[0]].decided:
            self._deliver(self.frames[order.popleft()])

    def _deliver(self, frame: Frame) -> None:
        frame.delivered = True
        self.undelivered -= 1
        self.instructions.append(ev.Deliver(frame.number, frame.code, frame.message))
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
            self.frames.pop(frame.number, None)

    def _leave_epoch(self, frame: Frame) -> None:
        if frame.epoch is not None:
            self.epochs.live[frame.epoch].frames.discard(frame.number)
            frame.epoch = None

    # --- workers ----------------------------------------------------------------------------------------------

    def _worker_ready(self, event: ev.WorkerReady, now: float) -> None:
        if self.places.ready(event.incarnation):
            self.epochs.load(self.places.workers[event.incarnation], now)

    def _worker_gone(self, event: ev.WorkerGone, now: float) -> None:
        """Take back what the dead worker held; only the frame that it was computing is charged with its death."""
        worker = self.places.workers.get(event.incarnation)
        if worker is None:
            return
        self.places.gone(worker, event.reason, now)
        self.epochs.worker_gone(worker, event.reason)
        for descriptor in worker.out:
            frame = self.frames[descriptor.frame]
            frame.out = None
            if frame.phase is FramePhase.LEAVING:
                self._step(frame, "return")
                self._free(frame)
            else:
                self._replay(frame, charged=event.running == frame.number, worker=worker.place, reason=event.reason)
        worker.out.clear()

    def _replay(self, frame: Frame, *, charged: bool, worker: str, reason: str) -> None:
        self._step(frame, "lose")
        frame.attempt += 1
        frame.deaths += charged
        if frame.deaths >= self.policy.deaths_per_frame:
            message = f"the worker on {worker} died {frame.deaths} times while it ran this frame: {reason}"
            self._abandon(frame, Code.INTERNAL, message)
            return
        self.replayed += 1
        self._queue(frame)

    # --- the end ----------------------------------------------------------------------------------------------

    def _drain(self, event: ev.Drain, now: float) -> None:
        self.draining = True

    def _stop(self, event: ev.Stop, now: float) -> None:
        self.draining = True
        for frame in [f for f in self.frames.values() if not f.decided]:
            self._abandon(frame, Code.UNAVAILABLE, "the daemon stopped before the frame was done")
        self.epochs.close()
        self.places.close()

    # --- handing out what has become possible -----------------------------------------------------------------

    def _pump(self, now: float) -> None:
        self.epochs.advance(now)
        self._rescue()
        self._admit()
        self._dispatch()
        self.epochs.finish_retiring()
        self.epochs.advance(now)
        self.places.dismiss(self.epochs.places_in_use())
        # Nearly all of a daemon's life: every worker up, one plan, nothing pending. Frames cannot change that, so
        # while only they come and go, the passes above would find nothing (a third of the daemon's time per frame).
        self._calm = self.places.settled and self.epochs.settled and not self.stranded

    def _rescue(self) -> None:
        """Frames whose epoch lost a place start over from their own input, under the newest epoch that can run."""
        for epoch in self.epochs.live.values():
            if epoch.frames and self.epochs.is_broken(epoch):
                for number in sorted(epoch.frames):
                    frame = self.frames[number]
                    if frame.phase is FramePhase.READY:
                        self._strand(frame)
        target = self.epochs.runnable()
        if target is None:
            return
        for number in sorted(self.stranded):
            frame = self.frames[number]
            frame.attempt += 1
            self._step(frame, "restart")
            self._enlist(frame, target.number)
        self.stranded.clear()

    def _step(self, frame: Frame, action: str) -> None:
        """Every change of a frame's phase; one that stops being READY leaves its queue."""
        if frame.phase is FramePhase.READY and frame.epoch is not None:
            self.ready[self.epochs.live[frame.epoch].plan.stages[frame.stage].place].discard(frame.number)
        frame.phase = step(FRAME, f"frame {frame.number}", frame.phase, action, self.story)
