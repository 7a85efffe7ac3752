"""Requests between their client and their slot: what the lifecycle decides about frames, done to real bytes.

One copy in (request to slot), one copy out (slot to answer), none between stages. What a client lends is copied by the
worker that begins the frame and by the one that ends it; here only where there are several of them. Nothing here knows
of ZeroMQ: a client is an opaque key and a function that takes its answers, so any front end can be one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TypeAlias

from msgspec import Struct

from shisha_rt.core.codes import Code
from shisha_rt.core.lifecycle.events import FrameArrived, FrameCancelled
from shisha_rt.core.lifecycle.instructions import Collect, Deliver, Fill, ReadLent, Refuse
from shisha_rt.daemon.front.regions import Regions
from shisha_rt.process.arena import Arena, NoRoom
from shisha_rt.process.lent import LentFault, LentPiece, read_lent, write_lent
from shisha_rt.protocol.request import InferRequest, Lent
from shisha_rt.tensors import TensorSpec


class Output(Struct, frozen=True):
    """A tensor on its way out: its `data`, or where its client finds it."""

    tensor: TensorSpec
    shape: tuple[int, ...]
    data: bytes
    lent: Lent | None = None


class FrameAnswer(Struct, frozen=True):
    """What became of a request: its `outputs`, each with its own shape, or an error `code` and `message`."""

    request: InferRequest
    frame: int
    code: Code | None
    message: str
    outputs: tuple[Output, ...]
    epoch: int
    latency_s: float
    queue_s: float
    compute_s: float


AnswerTo: TypeAlias = Callable[[FrameAnswer], None]


@dataclass(slots=True)
class _Pending:
    request: InferRequest
    client: Hashable
    answer_to: AnswerTo
    arrived_s: float
    compute_s: float = 0.0
    epoch: int = 0
    reads: tuple[LentPiece, ...] = ()
    writes: tuple[LentPiece, ...] = ()
    outputs: list[Output] = field(default_factory=list)
    fault: NoRoom | LentFault | None = None


class Requests:
    """Requests that are unanswered. What `answer` makes of one is handed to its sender by the caller."""

    def __init__(self, arena: Arena, regions: Regions) -> None:
        self.regions = regions
        self._arena = arena
        self._layouts = [0] * arena.slot_count  # the number of each slot's
        self._numbers = itertools.count()
        self._pending: dict[int, _Pending] = {}
        self._by_id: dict[tuple[Hashable, str], int] = {}

    def submit(self, client: Hashable, request: InferRequest, answer_to: AnswerTo, now_s: float) -> FrameArrived:
        """A validated request, as the lifecycle is to hear of it; its answer will be for `answer_to`, once."""
        frame = next(self._numbers)
        pending = self._pending[frame] = _Pending(request, client, answer_to, now_s)
        if request.lent_in:
            pending.reads = self.regions.hold(request.lent_in)
        if request.lent_out:
            pending.writes = self.regions.hold(request.lent_out)
        self._by_id[client, request.id] = frame
        deadline_s = None if request.deadline_ms is None else now_s + request.deadline_ms / 1e3
        lent_in, lent_out = bool(pending.reads), bool(pending.writes)
        size_bytes, stream, sequence = request.size_bytes, request.stream, request.sequence
        return FrameArrived(frame, client, stream, size_bytes, sequence, deadline_s, lent_in, lent_out)

    def cancel(self, client: Hashable, request_id: str) -> FrameCancelled | None:
        """Return the event that cancels a frame; None if there is no such frame.

        The frame's answer (CANCELLED, in its turn) is still to come.
        """
        frame = self._by_id.get((client, request_id))
        return None if frame is None else FrameCancelled(frame)

    def spent(self, frame: int, compute_s: float) -> None:
        """A part of the frame has been computed."""
        pending = self._pending.get(frame)
        if pending is not None:
            pending.compute_s += compute_s

    def waits(self, frame: int) -> bool:
        """Whether the frame is unanswered."""
        return frame in self._pending

    # --- the lifecycle's instructions -------------------------------------------------------------------------

    def fill(self, instruction: Fill) -> None:
        pending = self._pending[instruction.frame]
        self._layouts[instruction.slot] = pending.request.layout
        regions = self._arena.layouts[pending.request.layout].regions
        for name, data in pending.request.tensors.items():
            self._arena.write(instruction.slot, regions[name], data)
        pending.request.tensors.clear()  # its own buffers are free from here on

    def read_lent(self, instruction: ReadLent) -> None:
        pending, slot = self._pending[instruction.frame], instruction.slot
        try:
            read_lent(pending.reads, self.regions.fds, self._arena, slot, self._layouts[slot])
        except LentFault as fault:
            pending.fault = fault

    def lent(self, frame: int, *, reads: bool, writes: bool) -> tuple[tuple[LentPiece, ...], tuple[LentPiece, ...]]:
        """What the worker of one of its parts is to copy."""
        pending = self._pending[frame]
        return pending.reads if reads else (), pending.writes if writes else ()

    def layout_in(self, slot: int) -> int:
        """The number of the layout of the frame that has `slot`."""
        return self._layouts[slot]

    def collect(self, instruction: Collect) -> None:
        pending = self._pending.get(instruction.frame)
        if pending is None:
            return
        pending.epoch = instruction.epoch
        arena, slot = self._arena, instruction.slot
        layout, lent_out = pending.request.layout, pending.request.lent_out
        try:
            if pending.writes and not instruction.written:
                write_lent(pending.writes, self.regions.fds, arena, slot, layout)
            for name in pending.request.outputs:
                region = arena.layouts[layout].regions[name]
                data, shape = arena.raw(slot, region), arena.shape(slot, region)
                lent = lent_out.get(name)
                if lent is None:
                    pending.outputs.append(Output(region.tensor, shape, data.tobytes()))
                else:
                    lent_piece = lent._replace(size_bytes=data.nbytes)
                    pending.outputs.append(Output(region.tensor, shape, b"", lent_piece))
        except (NoRoom, LentFault) as fault:
            pending.fault = fault

    def answer(self, instruction: Deliver | Refuse, now_s: float) -> tuple[FrameAnswer, AnswerTo]:
        """What the request's sender is to be told, and where; it is forgotten here."""
        pending = self._pending.pop(instruction.frame)
        code, message = instruction.code, instruction.message
        if code is None and pending.fault is not None:
            code, message = Code.INTERNAL, str(pending.fault)
        if pending.reads or pending.writes:
            self.regions.release((*pending.reads, *pending.writes))
        del self._by_id[pending.client, pending.request.id]
        outputs = tuple(pending.outputs) if code is None else ()
        latency_s, compute_s = now_s - pending.arrived_s, pending.compute_s
        times_s = latency_s, max(0.0, latency_s - compute_s), compute_s
        answer = FrameAnswer(pending.request, instruction.frame, code, message, outputs, pending.epoch, *times_s)
        return answer, pending.answer_to
