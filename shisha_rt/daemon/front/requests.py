"""Requests between their client and their slot: what the lifecycle decides about frames, done to real bytes.

One copy in (request to slot), one copy out (slot to answer), none between stages. Nothing here knows of ZeroMQ: a
client is an opaque key and a function that takes its answers, so any front end can be one.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from shisha_rt.fabric.arena import Arena
from shisha_rt.lifecycle.events import Collect, Deliver, Fill, FrameArrived, FrameCancelled, Refuse
from shisha_rt.wire.codes import Code
from shisha_rt.wire.request import InferRequest


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a request: raw `outputs` by name, or an error `code` and `message`."""

    request: InferRequest
    frame: int
    code: Code | None
    message: str
    outputs: dict[str, bytes]
    epoch: int
    queue_s: float
    compute_s: float


AnswerTo: TypeAlias = Callable[[Answer], None]


@dataclass(slots=True)
class _Pending:
    request: InferRequest
    client: Hashable
    answer_to: AnswerTo
    arrived_s: float
    compute_s: float = 0.0
    epoch: int = 0
    outputs: dict[str, bytes] = field(default_factory=dict)


class Admission:
    """Frames that are accepted and unanswered. `post` hands an event to the lifecycle."""

    def __init__(self, arena: Arena, post: Callable[[FrameArrived | FrameCancelled], None]) -> None:
        self._arena = arena
        self._post = post
        self._numbers = itertools.count()
        self._pending: dict[int, _Pending] = {}
        self._by_id: dict[tuple[Hashable, str], int] = {}
        self.on_answered: Callable[[Answer, float], None] = lambda answer, latency_s: None

    def is_waiting(self, client: Hashable, request_id: str) -> bool:
        return (client, request_id) in self._by_id

    def submit(self, client: Hashable, request: InferRequest, answer_to: AnswerTo) -> None:
        """Offer a validated request; `answer_to` is called exactly once, now (a refusal) or later."""
        frame = next(self._numbers)
        now_s = time.monotonic()
        self._pending[frame] = _Pending(request, client, answer_to, now_s)
        self._by_id[client, request.id] = frame
        deadline_s = None if request.deadline_ms is None else now_s + request.deadline_ms / 1e3
        self._post(FrameArrived(frame, client, request.stream, request.size_bytes, request.sequence, deadline_s))

    def cancel(self, client: Hashable, request_id: str) -> bool:
        """Whether there was such a frame to cancel; its answer (CANCELLED, at its turn) is still to come."""
        frame = self._by_id.get((client, request_id))
        if frame is None:
            return False
        self._post(FrameCancelled(frame))
        return True

    def spent(self, frame: int, compute_s: float) -> None:
        """A part of the frame has been computed."""
        pending = self._pending.get(frame)
        if pending is not None:
            pending.compute_s += compute_s

    # --- the lifecycle's instructions -------------------------------------------------------------------------

    def fill(self, instruction: Fill) -> None:
        pending = self._pending[instruction.frame]
        for name, data in pending.request.tensors.items():
            room = self._arena.raw(instruction.slot, self._arena.layout.regions[name])
            room[:] = np.frombuffer(data, np.uint8)
        pending.request = replace(pending.request, tensors={})  # its own buffers are free from here on

    def collect(self, instruction: Collect) -> None:
        pending = self._pending.get(instruction.frame)
        if pending is None:
            return
        pending.epoch = instruction.epoch
        for name in pending.request.outputs:
            pending.outputs[name] = self._arena.raw(instruction.slot, self._arena.layout.regions[name]).tobytes()

    def deliver(self, instruction: Deliver) -> None:
        self._answer(instruction.frame, instruction.code, instruction.message)

    def refuse(self, instruction: Refuse) -> None:
        self._answer(instruction.frame, instruction.code, instruction.message)

    def _answer(self, frame: int, code: Code | None, message: str) -> None:
        pending = self._pending.pop(frame)
        del self._by_id[pending.client, pending.request.id]
        latency_s = time.monotonic() - pending.arrived_s
        answer = Answer(
            request=pending.request,
            frame=frame,
            code=code,
            message=message,
            outputs=pending.outputs if code is None else {},
            epoch=pending.epoch,
            queue_s=max(0.0, latency_s - pending.compute_s),
            compute_s=pending.compute_s,
        )
        self.on_answered(answer, latency_s)
        pending.answer_to(answer)
