"""Copies requests' bytes into slots, and answers' bytes out of them, as the lifecycle decides.

One copy in (request to slot), one copy out (slot to answer), none between stages. Lent memory is copied by the worker
that begins the frame and by the one that ends it; if several workers do, it is copied here. Nothing here depends on
ZeroMQ: a client is an opaque key and a function that takes its answers, so it may use any front end.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from shisha_rt.core.lifecycle.events import DEFAULT_PRIORITY, FrameArrived
from shisha_rt.core.lifecycle.instructions import Collect, Deliver, Refuse
from shisha_rt.daemon.front.regions import Regions
from shisha_rt.errors import Error
from shisha_rt.process.arena import Arena, NoRoom
from shisha_rt.process.lent import LentFault, LentPiece, read_lent, write_lent
from shisha_rt.protocol.request import InferRequest, Lent
from shisha_rt.protocol.signature import Signature
from shisha_rt.tensors import Tensor

if TYPE_CHECKING:
    from shisha_rt.daemon.tracing import FrameTrace


class Output(Struct, frozen=True):
    """A tensor of an answer: its `data`, or the `lent` memory where its client finds it."""

    tensor: Tensor
    shape: tuple[int, ...]
    data: bytes
    lent: Lent | None = None


class Ticket(Struct, eq=False):
    """A request in flight and, in the end, its answer: `outputs`, each with its own shape, or `error` and `message`.

    `answer_to`: called with the ticket exactly once. `reads` and `writes`: pieces of memory that the client lends, held
    until then. `refused`: it was not admitted, and `frames` with it. `compute_s`: seconds of its parts so far;
    `latency_s`: from `arrived_s` to the answer. `epochs`: for a request of several frames, if these differ in epoch.
    `own`: the frame is the daemon's own, not a client's. `trace`: set if the frame is traced.
    """

    request: InferRequest
    frame: int
    answer_to: AnswerTo
    arrived_s: float
    frames: int = 1
    reads: tuple[LentPiece, ...] = ()
    writes: tuple[LentPiece, ...] = ()
    compute_s: float = 0.0
    epoch: int = 0
    outputs: tuple[Output, ...] = ()
    error: Error | None = None
    message: str = ""
    latency_s: float = 0.0
    epochs: tuple[int, ...] | None = None
    own: bool = False
    refused: bool = False
    trace: FrameTrace | None = None

    @property
    def queue_s(self) -> float:
        """Seconds that the frame spent other than being computed."""
        return max(0.0, self.latency_s - self.compute_s)

    def fail(self, error: Error, message: str) -> None:
        """Answer with an error; the first one stays."""
        if self.error is None:
            self.error, self.message, self.outputs = error, message, ()


AnswerTo: TypeAlias = Callable[[Ticket], None]


class Requests:
    """Copies between requests, slots and answers. A frame's ticket has all of the frame's state here."""

    def __init__(self, arena: Arena, regions: Regions) -> None:
        self.regions = regions
        self._arena = arena
        self._numbers = itertools.count()

    def arrived(
        self, client: Hashable, request: InferRequest, answer_to: AnswerTo, now_s: float, frames: int = 1
    ) -> FrameArrived:
        """The lifecycle's event of a validated request. `answer_to`: as in `Ticket`; `frames`: as in `FrameArrived`."""
        ticket = Ticket(request, next(self._numbers), answer_to, now_s, frames)
        if request.lent_in:
            ticket.reads = self.regions.hold(request.lent_in)
        if request.lent_out:
            ticket.writes = self.regions.hold(request.lent_out)
        deadline_s = None if request.deadline_ms is None else now_s + request.deadline_ms / 1e3
        lent_in, lent_out = bool(ticket.reads), bool(ticket.writes)
        return FrameArrived(
            ticket.frame,
            client,
            request.stream,
            request.size_bytes,
            request.sequence,
            deadline_s,
            lent_in,
            lent_out,
            request.layout,
            ticket,
            request.priority or DEFAULT_PRIORITY,
            frames,
        )

    def fill(self, ticket: Ticket, slot: int) -> None:
        regions = self._arena.layouts[ticket.request.layout].regions
        for name, data in ticket.request.tensors.items():
            self._arena.write(slot, regions[name], data)
        ticket.request.tensors.clear()  # frees the request's own buffers

    def read_lent(self, ticket: Ticket, slot: int) -> None:
        """Copy a request's lent tensors into a slot; a lent region that is no longer there fails the ticket."""
        try:
            read_lent(ticket.reads, self.regions.fds, self._arena, slot, ticket.request.layout)
        except LentFault as fault:
            ticket.fail(Error.REGION_FAILED, str(fault))

    def collect(self, ticket: Ticket, instruction: Collect) -> None:
        """Copy a frame's outputs out of its slot: to the ticket, or to where the client wants them lent."""
        ticket.epoch = instruction.epoch
        arena, slot = self._arena, instruction.slot
        layout, lent_out = ticket.request.layout, ticket.request.lent_out
        regions, outputs = arena.layouts[layout].regions, []
        try:
            if ticket.writes and not instruction.written:
                write_lent(ticket.writes, self.regions.fds, arena, slot, layout)
            for name in ticket.request.outputs:
                region, lent, data = regions[name], lent_out.get(name), b""
                if lent is None:
                    data = arena.read(slot, region)
                else:
                    lent = lent._replace(size_bytes=arena.raw(slot, region).nbytes)
                outputs.append(Output(region.tensor, arena.shape(slot, region), data, lent))
        except NoRoom as fault:
            ticket.fail(Error.OUTPUT_TOO_LARGE, str(fault))
        except LentFault as fault:
            ticket.fail(Error.REGION_FAILED, str(fault))
        if ticket.error is None:
            ticket.outputs = tuple(outputs)

    def end(self, instruction: Deliver | Refuse, now_s: float) -> Ticket:
        """Complete the ticket with the answer, and release the memory that the client lends. Returns the ticket."""
        ticket: Ticket = instruction.ticket
        if instruction.kind is not None:
            ticket.error, ticket.message, ticket.outputs = instruction.kind, instruction.message, ()
        ticket.refused = isinstance(instruction, Refuse)
        if ticket.reads or ticket.writes:
            self.regions.release((*ticket.reads, *ticket.writes))
        ticket.latency_s = now_s - ticket.arrived_s
        return ticket


class SeveralFrames:
    """A request of several frames: split on arrival, and answered as one when all of its frames are answered."""

    def __init__(self, request: InferRequest, signature: Signature, answer_to: AnswerTo) -> None:
        self._frames = request.each(signature)
        self._request = request
        self._answer_to = answer_to
        self._answers: dict[int, Ticket] = {}

    def submit(self, submit: Callable[[InferRequest, AnswerTo, int], Ticket]) -> tuple[int, ...]:
        """Submit the frames; return their numbers. If the first is refused the others are not submitted.

        `submit`: takes a frame, what to do with its answer, and how many frames are admitted with it.
        """
        first, *others = self._frames
        ticket = submit(first, partial(self._take, 0), len(self._frames))
        if ticket.refused:
            self._answer_to(self._together([ticket]))
            return (ticket.frame,)
        tickets = [submit(frame, partial(self._take, number), 0) for number, frame in enumerate(others, 1)]
        return ticket.frame, *(ticket.frame for ticket in tickets)

    def _take(self, number: int, answer: Ticket) -> None:
        self._answers[number] = answer
        if len(self._answers) == len(self._frames):
            self._answer_to(self._together([self._answers[number] for number in range(len(self._frames))]))

    def _together(self, answers: Sequence[Ticket]) -> Ticket:
        first = answers[0]
        whole = Ticket(
            self._request,
            first.frame,
            self._answer_to,
            first.arrived_s,
            compute_s=max(answer.compute_s for answer in answers),
            epoch=max(answer.epoch for answer in answers),
            latency_s=max(answer.latency_s for answer in answers),
        )
        if len({answer.epoch for answer in answers}) > 1:
            whole.epochs = tuple(answer.epoch for answer in answers)
        failed = [(number, answer) for number, answer in enumerate(answers) if answer.error is not None]
        if failed:
            number, answer = failed[0]
            others = f", and {len(failed) - 1} more failed" if len(failed) > 1 else ""
            where = "" if answer.refused else f"frame {number} of {len(answers)}: "
            whole.error, whole.message = answer.error, f"{where}{answer.message}{others}"
        else:
            whole.outputs = tuple(map(_joined, zip(*(answer.outputs for answer in answers), strict=True)))
        return whole


def _joined(outputs: tuple[Output, ...]) -> Output:
    """Concatenate an output of all frames along its first axis; its pieces of lent memory are contiguous."""
    first = outputs[0]
    shape = (sum(output.shape[0] for output in outputs), *first.shape[1:])
    lent = first.lent
    if lent is not None:
        lent = lent._replace(size_bytes=sum(output.lent.size_bytes for output in outputs if output.lent is not None))
    return Output(first.tensor, shape, b"".join(output.data for output in outputs), lent)
