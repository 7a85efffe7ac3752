"""The client for asyncio. Programs import it from `shisha_rt.client`.

It waits on the descriptors of a `Link`, as the blocking client does, instead of using pyzmq's asyncio sockets. Those
queue requests themselves, so the client would not know whether a request was in flight when a connection was lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Final, Literal, Self, TypeAlias, cast, overload

import numpy as np
from numpy.typing import DTypeLike

from shisha_rt.client.connected import ConnectedClient, FrameStream
from shisha_rt.client.link import PROBE_S, Patience
from shisha_rt.errors import Error
from shisha_rt.protocol.conversation import Fields, FrameTerms, Outcome, Outgoing, RequestOutcome, Stages, stages_of
from shisha_rt.protocol.exceptions import ShishaError, error_for
from shisha_rt.protocol.frame_tensors import Answer, Array, Inputs, Shape
from shisha_rt.protocol.signature import Signature

_LOOK_S: Final = 0.001
"""How often to check whether a region of shared memory has come. A daemon makes one in less time."""


class AsyncClient(ConnectedClient):
    """The client of one daemon for asyncio: as `Client`, with calls that are awaited and may overlap.

    The client belongs to the event loop of its first call. Arrays must not change until their call has returned.
    """

    def _begin(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: dict[str, asyncio.Future[Outcome]] = {}
        self._stirred = asyncio.Event()
        self._introducing = asyncio.Lock()
        self._prober: asyncio.TimerHandle | None = None
        self._watched: tuple[int, list[int]] = -1, []  # `Link.turns` at registration, and the descriptors

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Disconnect. Calls in flight raise `Unavailable`. Raises `FailedPrecondition` while another loop is in one."""
        if self._link.closed:
            return
        if self._loop is not None and self._loop.is_running():
            self._attach()
        if self._prober is not None:
            self._prober.cancel()
        if self._loop is not None and not self._loop.is_closed():
            for fd in self._watched[1]:
                self._loop.remove_reader(fd)
        self._link.close()
        self._collect()

    async def infer(
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
        caller: str | None = None,
    ) -> Answer:
        """As `Client.infer`.

        `caller`: for proxies, on whose behalf the frame is sent: callers take turns and share the daemon's capacity as
        if each had a connection of its own. To be reached, the daemon then has the client's own timeout, however long
        the frame may take.
        """
        patience = self._patience(timeout_s)
        await self._introduce(patience if caller is None else self._patience(None))
        terms = FrameTerms(stream, sequence, deadline_s, priority, traceparent, caller)
        outgoing = self._link.conversation.infer(inputs, terms, outputs=outputs, request_id=request_id)
        await self._send(outgoing, patience, copy=False)
        return cast("Answer", await self._result(outgoing.id, patience))

    async def empty(self, shape: Shape, dtype: DTypeLike) -> Array:
        """As `Client.empty`: an array in memory that the daemon shares, lent until its frame is answered."""
        if not self._link.might_lend(shape, dtype):
            return np.empty(shape, dtype)
        self._attach()
        patience = self._patience(None)
        with suppress(ShishaError):  # no daemon is there: sending will raise
            if self._link.conversation.to_ask is not None:
                await self._introduce(patience)
        array = self._link.empty(shape, dtype)
        if array is None:
            with suppress(ShishaError):
                await self._introduce(patience)
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
    ) -> AsyncStream:
        """Open an ordered series of frames, up to `in_flight` of them at once. Times are per frame."""
        terms = FrameTerms(name, deadline_s=deadline_s, priority=priority)
        return AsyncStream(self, terms, in_flight, timeout_s)

    async def call(self, op: str, *, timeout_s: float | None = None, **arguments: object) -> Fields:
        """Run any other operation of the wire protocol; return the fields of its answer."""
        return await self._ask(op, arguments, self._patience(timeout_s))

    async def live(self) -> bool:
        """As `Client.live`."""
        return bool((await self.call("server_live"))["live"])

    async def ready(self) -> bool:
        """As `Client.ready`."""
        return bool((await self.call("server_ready"))["ready"])

    async def metadata(self) -> Fields:
        """`{"server": ..., "model": ...}`: the metadata of the daemon and of its model."""
        return {"server": await self.call("server_metadata"), "model": await self.call("model_metadata")}

    async def status(self) -> Fields:
        """As `Client.status`."""
        return cast("Fields", (await self.call("status"))["status"])

    async def signature(self, *, timeout_s: float | None = None) -> Signature:
        """The model's inputs and outputs, as the daemon has reported them on this connection."""
        await self._introduce(self._patience(timeout_s))
        signature = self._link.conversation.signature
        assert signature is not None
        return signature

    async def plan(self) -> Fields:
        """`{"epoch", "stages"}`: the plan for new frames; `plan_of(stages)` makes a `Plan` of it."""
        return await self.call("plan_get")

    async def set_plan(self, plan: Stages, *, timeout_s: float | None = None) -> Fields:
        """Propose a plan and wait until it is live, refused or dropped: `{"epoch", "outcome", "reason"}`."""
        return await self.call("plan_set", timeout_s=timeout_s, stages=stages_of(plan))

    async def events(self, since: int = 0, limit: int = 1000) -> Fields:
        """`{"events", "next"}`: up to `limit` events from number `since` on; repeat with `next` until none come."""
        return await self.call("events", since=since, limit=limit)

    async def cancel(self, request_id: str) -> bool:
        """Cancel a request; return whether it was still waiting."""
        return bool((await self.call("cancel", target=request_id))["cancelled"])

    async def _introduce(self, patience: Patience) -> None:
        """Once per connection, get the daemon's identity and its model's signature; get shared memory if wanted."""
        self._attach()
        self._settle(self._link.look())
        if self._link.is_to_leave:
            await self._leave(patience)
        if self._link.follow():
            self._watch()
        if self._link.conversation.to_ask is None and not self._is_to_get:
            return
        try:
            # Not wait_for: in Python 3.11 it swallows a cancellation that comes just as the lock is acquired.
            async with asyncio.timeout(patience.left_s):
                await self._introducing.acquire()
        except TimeoutError:
            raise self._link.refused(patience) from None
        try:
            while True:
                if self._link.is_to_leave:
                    await self._leave(patience)
                if self._link.follow():
                    self._watch()
                if (op := self._link.conversation.to_ask) is not None:
                    await self._ask(op, {}, patience)
                    continue
                if not self._is_to_get or not patience.left_s:
                    break
                if self._link.awaits_line:
                    self._link.advance_line()
                elif self._link.memory is not None:
                    self._link.memory.advance()
                self._watch()
                if self._is_to_get:
                    await asyncio.sleep(_LOOK_S)  # meanwhile the connection may be lost, and with it the signature
        finally:
            self._introducing.release()

    @property
    def _is_to_get(self) -> bool:
        """Whether the daemon is to be asked for a direct line, or for memory."""
        memory = self._link.memory
        return self._link.awaits_line or (memory is not None and memory.wants)

    async def _leave(self, patience: Patience) -> None:
        """Wait until the old daemon has answered what is in flight, then connect to the public address again."""
        while self._link.is_to_leave and patience.left_s:
            if not self._link.conversation.in_flight:
                self._link.leave()
                self._watch()
                return
            self._stirred.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(patience.left_s):
                    await self._stirred.wait()

    async def _ask(self, op: str, arguments: Mapping[str, object], patience: Patience) -> Fields:
        self._attach()
        self._settle(self._link.look())
        outgoing = self._link.conversation.ask(op, arguments)
        await self._send(outgoing, patience)
        return cast("Fields", await self._result(outgoing.id, patience))

    async def _send(self, outgoing: Outgoing, patience: Patience, *, copy: bool = True) -> None:
        loop = self._attach()
        while not self._link.try_send(outgoing, copy=copy):
            if not patience.left_s:
                raise self._link.refused(patience)
            await self._stir(self._link.wait_s(patience))
        self._waiting[outgoing.id] = loop.create_future()
        if self._link.line_descriptor is None:  # sending may have taken ZeroMQ's signal that something has come
            self._collect()
        if self._prober is None:
            self._prober = loop.call_later(PROBE_S, self._probe)

    async def _stir(self, timeout_s: float) -> None:
        """Wait until sending may succeed, or for `timeout_s`."""
        self._collect()
        if not self._link.stirring:
            self._stirred.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(timeout_s, self._link.again_in_s)):
                    await self._stirred.wait()

    async def _result(self, request_id: str, patience: Patience) -> Answer | Fields:
        outcome = await self._outcome(request_id, patience)
        if isinstance(outcome, ShishaError):
            raise outcome
        return outcome

    async def _outcome(self, request_id: str, patience: Patience) -> Outcome:
        future = self._waiting[request_id]
        expiry = future.get_loop().call_later(patience.left_s, self._expire, request_id, patience)
        try:
            return await future
        finally:
            expiry.cancel()
            self._abandon(request_id)  # sends nothing if the outcome is there

    def _expire(self, request_id: str, patience: Patience) -> None:
        self._collect()  # an answer that has come by now still counts
        future = self._waiting[request_id]
        if not future.done():
            future.set_result(self._link.silence(request_id, patience))

    def _probe(self) -> None:
        """Probe the daemon once a second while any request waits for its outcome."""
        self._prober = None
        if self._waiting and self._loop is not None:
            self._settle(self._link.probe())
            self._collect()
            self._prober = self._loop.call_later(PROBE_S, self._probe)

    def _attach(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.get_running_loop()
        if self._loop is None and not self._link.closed:
            self._loop = loop
            self._watch()
        elif self._loop not in (None, loop):
            raise error_for(Error.CLIENT_MISUSED, "the client belongs to another event loop")
        return loop

    def _watch(self) -> None:
        """Register the link's sockets with the event loop, and the new ones after each of the link's turns."""
        turn, fds = self._watched
        if self._loop is None or self._link.closed or turn == self._link.turns:
            return
        for fd in fds:
            self._loop.remove_reader(fd)
        fds, line = self._link.descriptors, self._link.line_descriptor
        for fd in fds:
            self._loop.add_reader(fd, self._collect)
        if line is not None:
            self._loop.add_reader(line, lambda: self._settle(self._link.drain_line()))
            fds.append(line)
        self._watched = self._link.turns, fds

    def _collect(self) -> None:
        self._settle(self._link.drain())

    def _settle(self, settled: Sequence[RequestOutcome]) -> None:
        for request_id, outcome in settled:
            future = self._waiting.get(request_id)
            if future is not None and not future.done():
                future.set_result(outcome)
        self._watch()
        self._stirred.set()  # a request may be sendable now

    def _abandon(self, request_id: str) -> None:
        self._waiting.pop(request_id, None)
        if self._link.abandon(request_id):
            self._collect()


_Entry: TypeAlias = tuple[str, Patience] | ShishaError | None
"""A frame in flight (its id), the error of one that could not be sent, or None at the end of the inputs."""


class AsyncStream(FrameStream[AsyncClient]):
    """An ordered series of frames of an `AsyncClient`. Leaving the context cancels what is still in flight."""

    def _begin(self) -> None:
        self._feeder: asyncio.Task[None] | None = None
        self._entries: asyncio.Queue[_Entry] = asyncio.Queue()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop reading inputs, cancel what is still in flight, and end a `run` that has not ended."""
        feeder, entries = self._feeder, self._entries
        if feeder is None:
            return
        feeder.cancel()
        try:
            await asyncio.wait({feeder})
        finally:  # also if the caller is cancelled while the inputs end
            if self._feeder is feeder:
                self._feeder = None
            while not entries.empty():
                entry = entries.get_nowait()
                if isinstance(entry, tuple):
                    self._client._abandon(entry[0])
            entries.put_nowait(None)

    @overload
    def run(
        self, inputs: Iterable[Inputs] | AsyncIterable[Inputs], *, errors: Literal["raise"] = "raise"
    ) -> AsyncGenerator[Answer, None]: ...
    @overload
    def run(
        self, inputs: Iterable[Inputs] | AsyncIterable[Inputs], *, errors: Literal["return"]
    ) -> AsyncGenerator[Answer | ShishaError, None]: ...
    async def run(
        self, inputs: Iterable[Inputs] | AsyncIterable[Inputs], *, errors: Literal["raise", "return"] = "raise"
    ) -> AsyncGenerator[Answer | ShishaError, None]:
        """Send each of `inputs` and yield its answer, in order.

        A frame's error is raised at its turn, which ends the stream; with `errors="return"` it is yielded instead.
        An array may be overwritten once the next one is taken from `inputs`, except one of `AsyncClient.empty`: that is
        lent, and read-only, until its answer has come.
        """
        if self._feeder is not None:
            raise error_for(Error.CLIENT_MISUSED, "the stream is running already; open another")
        room, entries = asyncio.Semaphore(self._in_flight), asyncio.Queue[_Entry]()
        feeder = self._feeder = asyncio.create_task(self._feed(inputs, room, entries))
        self._entries = entries
        try:
            while (entry := await entries.get()) is not None:
                outcome = entry if isinstance(entry, ShishaError) else await self._client._outcome(*entry)
                if isinstance(outcome, ShishaError) and errors == "raise":
                    raise outcome
                room.release()
                yield cast("Answer | ShishaError", outcome)
            await asyncio.wait({feeder})
            if not feeder.cancelled():  # by `close`
                feeder.result()  # raises what `inputs` raised
        finally:
            if self._feeder is feeder:
                await self.close()

    async def _feed(
        self,
        inputs: Iterable[Inputs] | AsyncIterable[Inputs],
        room: asyncio.Semaphore,
        entries: asyncio.Queue[_Entry],
    ) -> None:
        try:
            async with aclosing(_each(inputs)) as items:
                await room.acquire()
                async for item in items:
                    entries.put_nowait(await self._start(item))
                    await room.acquire()
        finally:
            entries.put_nowait(None)

    async def _start(self, inputs: Inputs) -> _Entry:
        client = self._client
        patience = client._patience(self._timeout_s)
        try:
            await client._introduce(patience)
            outgoing = client._link.conversation.infer(inputs, self._terms)
            await client._send(outgoing, patience)
        except ShishaError as error:
            return error
        return outgoing.id, patience


async def _each(inputs: Iterable[Inputs] | AsyncIterable[Inputs]) -> AsyncGenerator[Inputs, None]:
    if isinstance(inputs, AsyncIterable):
        async for item in inputs:
            yield item
    else:
        for item in inputs:
            yield item
