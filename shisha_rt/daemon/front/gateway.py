"""The ZeroMQ face of the daemon: messages to requests, answers to messages. One reply for every request.

A bad message costs its sender an error answer and nobody else anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import zmq
from msgspec import Struct

from shisha_rt.daemon.front.connections import Connections
from shisha_rt.daemon.front.endpoint import any_port
from shisha_rt.daemon.front.ipc_socket import IpcSocket
from shisha_rt.daemon.front.outbox import Outbox
from shisha_rt.daemon.front.regions import Regions
from shisha_rt.daemon.front.requests import FrameAnswer, Output
from shisha_rt.errors import BadInput
from shisha_rt.wire.codes import Code, WireError
from shisha_rt.wire.header import TensorData, TensorHeader, encode_answer, encode_error, encode_infer_answer
from shisha_rt.wire.limits import Limits
from shisha_rt.wire.multipart import receive_parts
from shisha_rt.wire.request import InferRequest, OpRequest, Signature, parse, split_envelope

_MESSAGES_PER_TURN: Final = 32
_QUEUED_MESSAGES: Final = 64
_QUEUED_BYTES: Final = 2 << 20
"""Of one client, in ZeroMQ's queue for either direction, if that is a message or two."""
_UNREAD_BYTES: Final = 32 << 20
_UNREAD_ANSWERS: Final = 4
"""Kept for a client in any case, however large they are."""


class Reply:
    """Where one answer goes: a client, its envelope, and the request's id."""

    __slots__ = ("_envelope", "_gateway", "request_id")

    def __init__(self, gateway: Gateway, envelope: Sequence[bytes], request_id: str | None) -> None:
        self._gateway = gateway
        self._envelope = envelope
        self.request_id = request_id

    def fields(self, fields: Mapping[str, object]) -> None:
        assert self.request_id is not None
        self._send(encode_answer(self.request_id, fields))

    def error(self, code: Code, message: str) -> None:
        self._send(encode_error(self.request_id, code, message))

    def frame(self, answer: FrameAnswer) -> None:
        if answer.code is not None:
            self.error(answer.code, answer.message)
            return
        header = encode_infer_answer(
            answer.request.id,
            self._gateway.signature.model_name,
            [_header(output) for output in answer.outputs],
            epoch=answer.epoch,
            frame=answer.frame,
            queue_ms=round(answer.queue_s * 1e3, 3),
            compute_ms=round(answer.compute_s * 1e3, 3),
            sequence=answer.request.sequence,
        )
        self._send(header, *[output.data for output in answer.outputs if output.lent is None])

    def _send(self, *parts: bytes) -> None:
        self._gateway.waiting.discard((self._envelope[0], self.request_id))
        self._gateway.outbox.send([*self._envelope, *parts])


class Arrived(Struct, frozen=True):
    """A request that has been checked, and where its one reply goes."""

    client: bytes
    request: InferRequest | OpRequest
    reply: Reply


class Gateway:
    """Binds the public endpoint. `waiting`: the clients' ids that are still to be answered. `regions`: what they lend.

    `count` is called with the name of the counter of what has gone wrong.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        endpoint: str,
        signature: Signature,
        limits: Limits,
        regions: Regions,
        count: Callable[[str], None],
    ) -> None:
        self.signature = signature
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
            (zmq.MAXMSGSIZE, limits.max_message_bytes),
            (zmq.RCVHWM, queued),
            (zmq.SNDHWM, _queued(limits.max_answer_bytes)),
            (zmq.IPV6, "[" in endpoint),
        ):
            self.socket.setsockopt(option, value)
        # Those that wait, and one that is coming; their framing is small beside the header's bytes.
        allowed_bytes = (queued + 1) * (limits.max_message_bytes + limits.max_header_bytes)
        self.connections = Connections(self.socket, allowed_bytes, partial(count, "shisha_connections_cut"))
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
        self.outbox = Outbox(self.socket, unread_bytes, self._undeliverable)
        self.waiting: set[tuple[bytes, str | None]] = set()

    def receive(self) -> Iterator[Arrived]:
        """The requests that have come, up to a turn's worth; bad ones are answered here."""
        for _ in range(_MESSAGES_PER_TURN):
            try:
                frames = receive_parts(self.socket)
            except zmq.Again:
                return
            known = self.connections.heard(frames[-1])
            client = frames[0].bytes
            if self.outbox.is_full(client):  # it reads no answers, so nothing is computed for it
                self._undeliverable()
                continue
            arrived = self._take(client, [frame.buffer for frame in frames[1:]], known)
            if arrived is not None:
                yield arrived

    def tend(self, now_s: float) -> float:
        """After each turn of the loop: answers that wait are sent, and connections looked at, if it is time.

        Returns when there is something to do next, if nothing comes.
        """
        self.outbox.flush(now_s)
        self.connections.look(now_s)
        return min(self.outbox.wake_s(), self.connections.wake_s())

    def _take(self, client: bytes, parts: Sequence[memoryview], known: bool) -> Arrived | None:
        """`known`: its connection is, and so that what it sends is read."""
        delimited, payload = split_envelope(parts)
        envelope = [client, b""] if delimited else [client]
        if not known:  # as what comes by it could not be counted, it would be cut off in the midst
            self._refuse(envelope, None, "the connection speaks an old ZMTP; expected 3.0 or later (libzmq 4)")
            return None
        try:
            request = parse(payload, self.signature, self.limits)
            if isinstance(request, InferRequest) and (request.lent_in or request.lent_out):
                self._regions.check(client, request)
        except WireError as error:
            self._refuse(envelope, error.request_id, error.message, error.code)
            return None
        if (client, request.id) in self.waiting:
            message = f"header at id: {request.id!r} is waiting already; expected an id that no waiting request has"
            self._refuse(envelope, request.id, message)
            return None
        self.waiting.add((client, request.id))
        return Arrived(client, request, Reply(self, envelope, request.id))

    def _refuse(
        self, envelope: Sequence[bytes], request_id: str | None, message: str, code: Code = Code.INVALID_ARGUMENT
    ) -> None:
        """Not by a `Reply`: the id may be that of a request that goes on waiting."""
        self.outbox.send([*envelope, encode_error(request_id, code, message)])

    def close(self) -> None:
        self.connections.close()
        self.socket.close()
        if self._ipc is not None:
            self._ipc.close()


def _header(output: Output) -> TensorHeader:
    lent = output.lent
    data = TensorData(len(output.data)) if lent is None else TensorData(None, *lent)
    return TensorHeader(output.tensor.name, output.shape, output.tensor.datatype, data)


def _queued(message_bytes: int) -> int:
    """How many messages of that size ZeroMQ may hold for one client: few, if they are large."""
    return max(2, min(_QUEUED_MESSAGES, _QUEUED_BYTES // max(1, message_bytes)))
