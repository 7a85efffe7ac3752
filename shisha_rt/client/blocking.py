"""The blocking client: each call is sent on a `Link` and waits for its outcome."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Literal, Self, TypeAlias, cast, overload

import numpy as np
from numpy.typing import DTypeLike

from shisha_rt.client.connected import ConnectedClient, FrameStream
from shisha_rt.client.link import PROBE_S, Patience
from shisha_rt.errors import Error
from shisha_rt.protocol.conversation import Fields, FrameTerms, Outcome, Outgoing, RequestOutcome, Stages, stages_of
from shisha_rt.protocol.exceptions import FailedPrecondition, ShishaError, error_for
from shisha_rt.protocol.frame_tensors import Answer, Array, Inputs, Shape


class _OneThread:
    """Refuses a thread while another is within: two at once would take each other's answers, and hang."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise error_for(
                Error.CLIENT_MISUSED, "another thread is in a call of this client; expected a client for each thread"
            )

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Client(ConnectedClient):
    """The blocking client of one daemon."""

    def _begin(self) -> None:
        self._alone = _OneThread()
        self._given_up = deque[str]()  # frames of streams that were collected while another thread was in a call
        self._settled: dict[str, Outcome] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect; requests in flight end `Unavailable`. Raises `FailedPrecondition` while a thread is in a call."""
        with self._alone:
            self._link.close()
            self._settle(self._link.drain())

    def infer(
        self,
        inputs: Inputs,
        *,
        deadline_s: float | None = None,
        timeout_s: float | None = None,
        stream: str | None = None,
        sequence: int | None = None,
        priority: int = 0,
        outputs: Sequence[str] = (),
        request_id: str | None = None,
        traceparent: str | None = None,
    ) -> Answer:
        """Run one frame. Arrays must have exactly the model's dtypes and shapes; they are never converted.

        The daemon gives up after `deadline_s` (`DeadlineExceeded`), this client after `timeout_s` (`Timeout`).
        `priority`: 1 is the most urgent, 9 the least, 0 the default (5); it orders streams, not frames within one.
        `outputs`: names of the outputs to return; empty for all. `request_id`: an id for `cancel`. `traceparent` (W3C):
        the trace that the frame is part of.
        """
        with self._alone:
            patience = self._patience(timeout_s)
            self._introduce(patience)
            terms = FrameTerms(stream, sequence, deadline_s, priority, traceparent)
            outgoing = self._link.conversation.infer(inputs, terms, outputs=outputs, request_id=request_id)
            # No copy: the caller waits in this call, so its arrays do not change meanwhile.
            return cast("Answer", self._result(outgoing, patience, copy=False))

    def empty(self, shape: Shape, dtype: DTypeLike) -> Array:
        """Return an array to fill with an input, in memory shared with the daemon if there is any: it is sent uncopied.

        So are its contiguous views. **The array is lent until its frame is answered**, and read-only until then;
        writing to it meanwhile through another view may spoil that frame. So take a new array for each frame: that
        costs no more than `numpy.empty`, as the memory of arrays that are no longer referenced is reused. The array
        stays valid after the client is closed.
        """
        if not self._link.might_lend(shape, dtype):
            return np.empty(shape, dtype)
        with self._alone:
            patience = self._patience(None)
            with suppress(ShishaError):  # no daemon is there: sending will raise
                if self._link.conversation.to_ask is not None:
                    self._introduce(patience)
            array = self._link.empty(shape, dtype)
            if array is None:
                with suppress(ShishaError):
                    self._introduce(patience)
                array = self._link.empty(shape, dtype)
            return np.empty(shape, dtype) if array is None else array

    def stream(
        self,
        name: str | None = None,
        *,
        in_flight: int = 8,
        deadline_s: float | None = None,
        timeout_s: float | None = None,
        priority: int = 0,
    ) -> Stream:
        """Open an ordered series of frames, up to `in_flight` of them at once. Times are per frame."""
        terms = FrameTerms(name, deadline_s=deadline_s, priority=priority)
        return Stream(self, terms, in_flight, timeout_s)

    def call(self, op: str, *, timeout_s: float | None = None, **arguments: object) -> Fields:
        """Run any other operation of the wire protocol; return the fields of its answer."""
        with self._alone:
            return self._ask(op, arguments, self._patience(timeout_s))

    def live(self) -> bool:
        """Return True once the daemon answers, also while it is not ready."""
        return bool(self.call("server_live")["live"])

    def ready(self) -> bool:
        """Return whether every stage of the live plan has a worker that can run it now."""
        return bool(self.call("server_ready")["ready"])

    def metadata(self) -> Fields:
        """`{"server": ..., "model": ...}`: the metadata of the daemon and of its model."""
        return {"server": self.call("server_metadata"), "model": self.call("model_metadata")}

    def status(self) -> Fields:
        """Return what `shisha-rt status --json` prints: places, plan, tuner, queues and more."""
        return cast("Fields", self.call("status")["status"])

    def plan(self) -> Fields:
        """`{"epoch", "stages"}`: the plan for new frames; `plan_of(stages)` makes a `Plan` of it."""
        return self.call("plan_get")

    def set_plan(self, plan: Stages, *, timeout_s: float | None = None) -> Fields:
        """Propose a plan and wait until it is live, refused or dropped: `{"epoch", "outcome", "reason"}`."""
        return self.call("plan_set", timeout_s=timeout_s, stages=stages_of(plan))

    def events(self, since: int = 0, limit: int = 1000) -> Fields:
        """`{"events", "next"}`: up to `limit` events from number `since` on; repeat with `next` until none come."""
        return self.call("events", since=since, limit=limit)

    def cancel(self, request_id: str) -> bool:
        """Cancel a request; return whether it was still waiting."""
        return bool(self.call("cancel", target=request_id)["cancelled"])

    def _introduce(self, patience: Patience) -> None:
        """Once per connection, get the daemon's identity and its model's signature; get shared memory if wanted."""
        self._settle(self._link.look())
        while self._given_up:
            self._abandon(self._given_up.popleft())
        while True:
            if self._link.is_to_leave:
                self._leave(patience)
            self._link.follow()
            if (op := self._link.conversation.to_ask) is None:
                break
            self._ask(op, {}, patience)
        while self._link.awaits_line and patience.left_s:
            self._link.advance_line(patience.left_s)
        self._share(patience)

    def _leave(self, patience: Patience) -> None:
        """Wait until the old daemon has answered what is in flight, then connect to the public address again."""
        while self._link.is_to_leave and patience.left_s:
            if not self._link.conversation.in_flight:
                self._link.leave()
            else:
                self._settle(self._link.wait(min(patience.left_s, PROBE_S)))

    def _share(self, patience: Patience) -> None:
        memory = self._link.memory
        while memory is not None and memory.wants and patience.left_s:
            memory.advance(patience.left_s)

    def _ask(self, op: str, arguments: Mapping[str, object], patience: Patience) -> Fields:
        self._settle(self._link.look())
        return cast("Fields", self._result(self._link.conversation.ask(op, arguments), patience))

    def _send(self, outgoing: Outgoing, patience: Patience, *, copy: bool = True) -> None:
        while not self._link.try_send(outgoing, copy=copy):
            if not patience.left_s:
                raise self._link.refused(patience)
            self._settle(self._link.wait(self._link.wait_s(patience), to_send=True))

    def _result(self, outgoing: Outgoing, patience: Patience, *, copy: bool = True) -> Answer | Fields:
        """Send a request and wait for its outcome."""
        try:
            self._send(outgoing, patience, copy=copy)
            outcome = self._outcome(outgoing.id, patience)
        except BaseException:
            self._abandon(outgoing.id)
            raise
        if isinstance(outcome, ShishaError):
            raise outcome
        return outcome

    def _outcome(self, request_id: str, patience: Patience) -> Outcome:
        """The outcome of a request; whoever is interrupted while waiting for it has to abandon it."""
        overdue = False
        while (outcome := self._settled.pop(request_id, None)) is None:
            if overdue:
                self._abandon(request_id)
                return self._link.silence(request_id, patience)
            left_s = patience.left_s
            overdue = not left_s
            if overdue:
                self._settle(self._link.drain())  # an answer that has come by now still counts
            elif (settled := self._link.wait(min(left_s, PROBE_S))) is None:
                self._settle(self._link.probe())
            else:
                self._settle(settled)
        return outcome

    def _settle(self, settled: Sequence[RequestOutcome] | None) -> None:
        if settled:
            self._settled.update(settled)

    def _abandon(self, request_id: str) -> None:
        self._settled.pop(request_id, None)
        self._link.abandon(request_id)


_Entry: TypeAlias = tuple[str, Patience] | ShishaError
"""A frame in flight (its id), or the error of one that could not be sent."""


def _in_flight(entries: Iterable[_Entry]) -> list[str]:
    return [entry[0] for entry in entries if isinstance(entry, tuple)]


class Stream(FrameStream[Client]):
    """An ordered series of frames of a `Client`. Leaving the context cancels what is still in flight."""

    def _begin(self) -> None:
        self._pending: deque[_Entry] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Cancel what is still in flight, and end a `run` that has not ended."""
        with self._client._alone:
            pending, self._pending = self._pending, deque()
            for request_id in _in_flight(pending):
                self._client._abandon(request_id)

    @overload
    def run(self, inputs: Iterable[Inputs], *, errors: Literal["raise"] = "raise") -> Generator[Answer, None, None]: ...
    @overload
    def run(
        self, inputs: Iterable[Inputs], *, errors: Literal["return"]
    ) -> Generator[Answer | ShishaError, None, None]: ...
    def run(
        self, inputs: Iterable[Inputs], *, errors: Literal["raise", "return"] = "raise"
    ) -> Generator[Answer | ShishaError, None, None]:
        """Send each of `inputs` and yield its answer, in order.

        A frame's error is raised at its turn, which ends the stream; with `errors="return"` it is yielded instead.
        An array may be overwritten as soon as it has been taken from `inputs`, except one of `Client.empty`: that is
        lent, and read-only, until its answer has come.
        """
        if self._pending:
            raise error_for(Error.CLIENT_MISUSED, "the stream is running already; open another")
        pending = self._pending = deque()
        try:
            for item in inputs:
                if self._pending is not pending:  # the stream was closed by whoever gives the inputs
                    return
                self._start(item, pending)
                while len(pending) >= self._in_flight or self._head_is_settled():
                    yield self._finish(errors)
                    if self._pending is not pending:  # the stream was closed meanwhile
                        return
            while pending:
                yield self._finish(errors)
        finally:
            if self._pending is pending:
                try:
                    self.close()
                except FailedPrecondition:  # another thread is in a call as this generator is collected
                    self._client._given_up.extend(_in_flight(pending))

    def _start(self, inputs: Inputs, pending: deque[_Entry]) -> None:
        """Send a frame, which is pending before it is sent: if Ctrl-C comes then, it is cancelled."""
        client = self._client
        with client._alone:
            patience = client._patience(self._timeout_s)
            try:
                client._introduce(patience)
                outgoing = client._link.conversation.infer(inputs, self._terms)
            except ShishaError as error:
                pending.append(error)
                return
            pending.append((outgoing.id, patience))
            try:
                client._send(outgoing, patience)
            except ShishaError as error:
                pending[-1] = error

    def _head_is_settled(self) -> bool:
        if not self._pending:
            return False
        head = self._pending[0]
        return isinstance(head, ShishaError) or head[0] in self._client._settled

    def _finish(self, errors: Literal["raise", "return"]) -> Answer | ShishaError:
        with self._client._alone:
            head = self._pending[0]
            outcome = head if isinstance(head, ShishaError) else self._client._outcome(*head)
            self._pending.popleft()
        if isinstance(outcome, ShishaError) and errors == "raise":
            raise outcome
        return cast("Answer | ShishaError", outcome)
