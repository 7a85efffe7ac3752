"""A request of several frames: split on arrival, and answered as one when all of its frames are answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from shisha_rt.daemon.front.requests import AnswerTo, Output, Ticket
from shisha_rt.protocol.request import InferRequest, Signature


class SeveralFrames:
    """`each`: the frames, as requests of one frame. The given `answer_to` is called once, with the joint answer."""

    def __init__(self, request: InferRequest, signature: Signature, answer_to: AnswerTo) -> None:
        self.each = request.each(signature)
        self._request = request
        self._answer_to = answer_to
        self._answers: list[Ticket | None] = [None] * request.frames
        self._missing = request.frames

    def submit(self, submit: Callable[[InferRequest, AnswerTo, int], Ticket]) -> tuple[int, ...]:
        """Submit the frames; return their numbers. If the first is refused the others are not submitted.

        `submit`: takes a frame, what to do with its answer, and how many frames are admitted with it.
        """
        first, *others = self.each
        ticket = submit(first, partial(self._take, 0), len(self.each))
        if ticket.refused:
            self._answer_to(self._together([ticket]))
            return (ticket.frame,)
        tickets = [submit(frame, partial(self._take, number), 0) for number, frame in enumerate(others, 1)]
        return ticket.frame, *(ticket.frame for ticket in tickets)

    def _take(self, number: int, answer: Ticket) -> None:
        self._answers[number] = answer
        self._missing -= 1
        if not self._missing:
            self._answer_to(self._together([answer for answer in self._answers if answer is not None]))

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
