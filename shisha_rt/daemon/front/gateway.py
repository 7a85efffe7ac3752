"""The ZeroMQ face of the daemon: messages to requests, answers to messages. One reply for every request.

A bad message costs its sender an error answer and nobody else anything. A client is a connection: without keys, when
all who can connect are trusted, known by its routing id; with keys by what cannot be chosen (see `security`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import zmq
from msgspec import Raw, Struct

from shisha_rt.daemon.front.connections import Connection, Connections
from shisha_rt.daemon.front.endpoint import any_port
from shisha_rt.daemon.front.ipc_socket import IpcSocket
from shisha_rt.daemon.front.outbox import Outbox
from shisha_rt.daemon.front.regions import Regions
from shisha_rt.daemon.front.requests import Output, Ticket
from shisha_rt.daemon.front.security import Security
from shisha_rt.daemon.loop.poller import Poller
from shisha_rt.errors import BadInput, Error
from shisha_rt.protocol.access import AccessList
from shisha_rt.protocol.exceptions import ShishaError, error_for
from shisha_rt.protocol.header import (
    TensorData,
    TensorHeader,
    encode_answer,
    encode_error,
    encode_infer_answer,
    encode_outputs,
)
from shisha_rt.protocol.limits import REFUSED_BYTES, Limits
from shisha_rt.protocol.multipart import receive_parts
from shisha_rt.protocol.request import InferRequest, OpRequest, Signature, parse, split_envelope

_MESSAGES_PER_TURN: Final = 32
_QUEUED_MESSAGES: Final = 64
_QUEUED_BYTES: Final = 2 << 20
"""Of one client, in ZeroMQ's queue for either direction, if that is a message or two."""
_UNREAD_BYTES: Final = 32 << 20
_UNREAD_ANSWERS: Final = 4
"""Kept for a client in any case, however large they are."""
_MOST_WRITTEN: Final = 64
"""Choices of outputs, whose headers are kept in JSON."""


class Reply:
    """Where one answer goes: a client, its envelope, and the request's id. `of_frame`: the frame's number, of one."""

    __slots__ = ("_client", "_envelope", "_gateway", "of_frame", "request_id")

    def __init__(self, gateway: Gateway, client: Hashable, envelope: Sequence[bytes], request_id: str | None) -> None:
        self._gateway = gateway
        self._client = client
        self._envelope = envelope
        self.request_id = request_id
        self.of_frame: int | None = None

    def frame_of(self, request_id: str) -> int | None:
        """The number of the frame that this client waits for under that id; None if there is none."""
        other = self._gateway.waiting.get((self._client, request_id))
        return None if other is None else other.of_frame

    def fields(self, fields: Mapping[str, object]) -> None:
        assert self.request_id is not None
        self._send(encode_answer(self.request_id, fields))

    def error(self, error: ShishaError) -> None:
        self._send(encode_error(self.request_id, error))

    def frame(self, answer: Ticket) -> None:
        if answer.error is not None:
            self.error(error_for(answer.error, answer.message))
            return
        header = encode_infer_answer(
            answer.request.id,
            self._gateway.signature.model_name,
            self._gateway.written_outputs(answer),
            epoch=answer.epoch,
            frame=answer.frame,
            queue_ms=_in_ms(answer.queue_s),
            compute_ms=_in_ms(answer.compute_s),
            sequence=answer.request.sequence,
        )
        self._send(header, *[output.data for output in answer.outputs if output.lent is None])

    def _send(self, *parts: bytes) -> None:
        self._gateway.waiting.pop((self._client, self.request_id), None)
        self._gateway.outbox.send(self._client, [*self._envelope, *parts])


class Arrived(Struct, frozen=True):
    """A request that has been checked, and where its one reply goes."""

    client: Hashable
    request: InferRequest | OpRequest
    reply: Reply


class Gateway:
    """Binds the public endpoint. `waiting`: the replies still to be given, by client and id. `regions`: what they lend.

    `count` is called with the name of the counter of what has gone wrong. `security`: who may come; None: everybody
    who can connect, and may do everything.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        endpoint: str,
        signature: Signature,
        limits: Limits,
        regions: Regions,
        count: Callable[[str], None],
        security: Security | None = None,
    ) -> None:
        self.signature = signature
        self._security = security
        self._regions = regions
        self.limits = limits
        self._ipc = IpcSocket(endpoint) if endpoint.startswith("ipc://") else None
        self.socket = context.socket(zmq.ROUTER)
        queued = _queued(limits.max_message_bytes)
        # No heartbeats of our own: on this machine the kernel says who has gone, and libzmq (4.3.5) aborts the process
        # when one is due on a connection that was lost while its queue was full.
        for option, value in (
            (zmq.LINGER, 0),
            (zmq.ROUTER_MANDATORY, 1),
            (zmq.MAXMSGSIZE, limits.max_message_bytes + REFUSED_BYTES),
            (zmq.RCVHWM, queued),
            (zmq.SNDHWM, _queued(limits.max_answer_bytes)),
            (zmq.IPV6, "[" in endpoint),
        ):
            self.socket.setsockopt(option, value)
        # Those that wait, and one that is coming, if only to be refused; framing is small beside the header's bytes.
        allowed_bytes = (queued + 1) * (limits.max_message_bytes + limits.max_header_bytes) + REFUSED_BYTES
        cut_off = partial(count, "shisha_connections_cut")
        broken_off = None if security is None else security.broken_off
        self.connections = Connections(self.socket, allowed_bytes, cut_off, broken_off)
        self.handshakes = None if security is None else security.guard(context, self.socket)
        if self._ipc is not None:
            self.socket.setsockopt(zmq.USE_FD, self._ipc.hand_over())
        try:
            self.socket.bind(any_port(endpoint))
        except zmq.ZMQError as error:
            self.close()
            raise BadInput(f"endpoint {endpoint}: {error.strerror}; expected a free address of this machine") from None
        self.endpoint = str(self.socket.getsockopt_string(zmq.LAST_ENDPOINT))
        self._undeliverable = partial(count, "shisha_answers_undeliverable")
        unread_bytes = max(_UNREAD_BYTES, _UNREAD_ANSWERS * limits.max_answer_bytes)
        self.outbox = Outbox(self.socket, unread_bytes, self._undeliverable, self.connections.is_open)
        self.waiting: dict[tuple[Hashable, str | None], Reply] = {}
        self._written: dict[tuple[int, tuple[str, ...]], Raw] = {}  # by layout and names

    def written_outputs(self, answer: Ticket) -> Raw:
        """The outputs of an answer as its header has them; written once where they are the same for every frame."""
        key = answer.request.layout, answer.request.outputs
        written = None if answer.request.lent_out else self._written.get(key)
        if written is None:
            written = encode_outputs([_header(output) for output in answer.outputs])
            vary = any(output.lent is not None or output.tensor.open_axes for output in answer.outputs)
            if not vary and len(self._written) < _MOST_WRITTEN:
                self._written[key] = written
        return written

    def watch(self, poller: Poller) -> None:
        """Have `poller` tell of requests, handshakes, and connections that come and go."""
        poller.watch_socket(self.socket, self.receive)
        if self.handshakes is not None:
            poller.watch_socket(self.handshakes, self.answer_handshakes)
        poller.watch(self.connections.fileno(), self.connections.stirred)

    def receive(self) -> Iterator[Arrived]:
        """The requests that have come, up to a turn's worth; bad ones are answered here."""
        for _ in range(_MESSAGES_PER_TURN):
            try:
                frames = receive_parts(self.socket)
            except zmq.Again:
                return
            client, known = self._sender(frames)
            if client is None or self.outbox.is_full(client):  # nothing is computed for who has gone, or does not read
                self._undeliverable()
                continue
            arrived = self._take(client, frames, known)
            if arrived is not None:
                yield arrived

    def answer_handshakes(self) -> Iterator[object]:
        """Answer the handshakes of clients that present a key; `handshakes` receives them apart from requests."""
        return iter(()) if self._security is None else self._security.receive(self.connections.new_user_id)

    def change_access(self, users: AccessList) -> None:
        """From now on others may come: who may not any more has the answers to what was accepted, and must go then."""
        if self._security is not None:
            self._security.access.users = users
            self.connections.send_away(self._security.access.of_key)

    def tend(self, now_s: float) -> float:
        """After each turn of the loop: answers that wait are sent, and connections looked at, if it is time.

        Returns when there is something to do next, if nothing comes.
        """
        if self.outbox.empty and self.connections.rest(now_s):
            return self.connections.wake_s()
        self.outbox.flush(now_s)
        self.connections.look(now_s)
        self.connections.see_off(now_s, self._awaiting)
        return min(self.outbox.wake_s(), self.connections.wake_s())

    def _sender(self, frames: Sequence[zmq.Frame]) -> tuple[Hashable | None, bool]:
        """The client (None: it has gone), and whether its connection is known and so what it sends is counted."""
        if self._security is None:
            return frames[0].bytes, self.connections.heard(frames[-1])
        return self.connections.sender(frames[-1]), True

    def _take(self, client: Hashable, frames: Sequence[zmq.Frame], known: bool) -> Arrived | None:
        routing_id = frames[0].bytes
        delimited, payload = split_envelope([frame.buffer for frame in frames[1:]])
        envelope = [routing_id, b""] if delimited else [routing_id]
        if not known:  # as what comes by it could not be counted, it would be cut off in the midst
            message = "the connection speaks an old ZMTP; expected 3.0 or later (libzmq 4)"
            self._refuse(client, envelope, error_for(Error.OLD_ZMTP, message))
            return None
        try:
            request = parse(payload, self.signature, self.limits)
            if self._security is not None:
                assert isinstance(client, Connection)
                self._security.check(client, routing_id, request)
            if isinstance(request, InferRequest) and (request.lent_in or request.lent_out):
                self._regions.check(client, request)
            if (client, request.id) in self.waiting:
                message = f"header at id: {request.id!r} is waiting already; expected an id that no waiting request has"
                raise error_for(Error.ID_IN_USE, message, request.id)
        except ShishaError as error:
            self._refuse(client, envelope, error)
            return None
        reply = self.waiting[client, request.id] = Reply(self, client, envelope, request.id)
        return Arrived(client, request, reply)

    def _refuse(self, client: Hashable, envelope: Sequence[bytes], error: ShishaError) -> None:
        """Not by a `Reply`: the id may be that of a request that goes on waiting."""
        self.outbox.send(client, [*envelope, encode_error(error.request_id, error)])

    def _awaiting(self) -> set[Hashable]:
        """The clients that still have something coming."""
        return {client for client, _ in self.waiting}.union(self.outbox.clients)

    def close(self) -> None:
        self.connections.close()
        self.socket.close()
        if self._security is not None:
            self._security.close()
        if self._ipc is not None:
            self._ipc.close()


def _in_ms(seconds: float) -> float:
    """Milliseconds, to the microsecond."""
    return int(seconds * 1e6 + 0.5) / 1e3


def _header(output: Output) -> TensorHeader:
    lent = output.lent
    data = TensorData(len(output.data)) if lent is None else TensorData(None, *lent)
    return TensorHeader(output.tensor.name, output.shape, output.tensor.datatype, data)


def _queued(message_bytes: int) -> int:
    """How many messages of that size ZeroMQ may hold for one client: few, if they are large."""
    return max(2, min(_QUEUED_MESSAGES, _QUEUED_BYTES // max(1, message_bytes)))
