"""The socket at a public address, its clients' messages and the answers: shared by daemon and host process.

A client is a connection. Without keys, when everyone who can connect is trusted, its routing id identifies it; with
keys, an id that it cannot choose (see `security`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

import zmq

from shisha_rt.daemon.front.connections import Connection, Connections
from shisha_rt.daemon.front.ipc_socket import BACKLOG, IpcSocket
from shisha_rt.daemon.front.outbox import Outbox
from shisha_rt.daemon.front.security import Security
from shisha_rt.daemon.loop.poller import Poller, Read
from shisha_rt.errors import BadInput, Error
from shisha_rt.protocol.access import AccessList
from shisha_rt.protocol.exceptions import ShishaError, error_for
from shisha_rt.protocol.header import encode_error
from shisha_rt.protocol.limits import REFUSED_BYTES, Limits
from shisha_rt.protocol.multipart import can_be_read, receive_parts
from shisha_rt.protocol.request import split_envelope

_MESSAGES_PER_TURN: Final = 32
_QUEUED_MESSAGES: Final = 64
_QUEUED_BYTES: Final = 2 << 20
"""For each client in each of ZeroMQ's two queues; at least two messages fit, however large."""
_UNREAD_BYTES: Final = 32 << 20
_UNREAD_ANSWERS: Final = 4
"""So many answers are kept for a client, even if each is as large as allowed."""


class Message(NamedTuple):
    """What a client has sent. `envelope`: the parts that the answer starts with; `payload`: header and raw tensors."""

    client: Hashable
    envelope: list[bytes]
    payload: Sequence[memoryview]


class PublicSocket:
    """Binds the public endpoint. Raises BadInput if it cannot be bound.

    `count` is called with the name of an error counter to increase. `security`: who may come; None: everybody who can
    connect, and may do everything.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        endpoint: str,
        limits: Limits,
        count: Callable[[str], None],
        security: Security | None = None,
    ) -> None:
        self.limits = limits
        self.security = security
        self._ipc = IpcSocket(endpoint) if endpoint.startswith("ipc://") else None
        queued = queued_messages(limits.max_message_bytes)
        self.socket = _router(context, limits, queued)
        self.socket.setsockopt(zmq.IPV6, "[" in endpoint)
        # Queued messages, and one being received, even one to be refused; framing is small beside the header's bytes.
        allowed_bytes = (queued + 1) * (limits.max_message_bytes + limits.max_header_bytes) + REFUSED_BYTES
        cut_off = partial(count, "shisha_connections_cut")
        broken_off = None if security is None else security.broken_off
        self.connections = Connections(self.socket, allowed_bytes, cut_off, broken_off)
        self._handshakes = None if security is None else security.guard(context, self.socket)
        if self._ipc is not None:
            self.socket.setsockopt(zmq.USE_FD, self._ipc.hand_over())
        try:
            _bind(self.socket, endpoint)
        except BadInput:
            self.close()
            raise
        self.endpoint = str(self.socket.getsockopt_string(zmq.LAST_ENDPOINT))
        self._undeliverable = partial(count, "shisha_answers_undeliverable")
        unread_bytes = max(_UNREAD_BYTES, _UNREAD_ANSWERS * limits.max_answer_bytes)
        self.outbox = Outbox(self.socket, unread_bytes, self._undeliverable, self.connections.is_open)

    def listen(self, poller: Poller, read: Read) -> None:
        """Have `poller` call `read` for messages, and watch connections that open and close, and handshakes.

        Handshakes of clients that present a key come in on a socket of their own.
        """
        poller.watch_socket(self.socket, read)
        self.outbox.stir = partial(poller.stir, int(self.socket.fileno()))
        if self.security is not None and self._handshakes is not None:
            poller.watch_socket(self._handshakes, partial(self.security.receive, self.connections.new_user_id))
        poller.watch(self.connections.fileno(), self.connections.stirred)

    def messages(self) -> Iterator[Message]:
        """Yield messages, at most `_MESSAGES_PER_TURN`; those from old ZMTP connections are refused here."""
        for number in range(_MESSAGES_PER_TURN):
            if number and not can_be_read(self.socket):
                return
            try:
                frames = receive_parts(self.socket)
            except zmq.Again:
                return
            client, known = self._sender(frames)
            if self.leaves_unread(client):
                continue
            routing_id = frames[0].bytes
            delimited, payload = split_envelope([frame.buffer for frame in frames[1:]])
            message = Message(client, [routing_id, b""] if delimited else [routing_id], payload)
            if known:
                yield message
            else:  # its bytes cannot be counted, so it would be cut off in mid-message
                what = "the connection speaks an old ZMTP; expected 3.0 or later (libzmq 4)"
                self.refuse(message, error_for(Error.OLD_ZMTP, what))

    def leaves_unread(self, client: Hashable | None) -> bool:
        """Whether a client has left, or does not read its answers: then it gets no work, and that is counted."""
        leaves_unread = client is None or self.outbox.is_full(client)
        if leaves_unread:
            self._undeliverable()
        return leaves_unread

    def check(self, message: Message, op: str, request_id: str) -> None:
        """Raises `ShishaError` for a request that its sender may not make now."""
        if self.security is not None:
            assert isinstance(message.client, Connection)
            self.security.check(message.client, message.envelope[0], op, request_id)

    def answer(
        self, client: Hashable, envelope: Sequence[bytes], request_id: str | None, parts: Sequence[bytes]
    ) -> None:
        """Send an answer, or, if the client's unread answers leave no room for it, an error in its place."""
        if not self.outbox.send(client, [*envelope, *parts]):
            dropped = "answers that this client has not read take all of their room; this one is dropped"
            error = error_for(Error.TOO_MANY_BYTES, dropped, request_id)
            self.outbox.send(client, [*envelope, encode_error(request_id, error)])

    def refuse(self, message: Message, error: ShishaError) -> None:
        self.outbox.send(message.client, [*message.envelope, encode_error(error.request_id, error)])

    def change_access(self, users: AccessList) -> None:
        """Replace the allow-list. Who is not on it any more gets answers to accepted requests, and is cut off then."""
        if self.security is not None:
            self.security.users = users
            self.connections.send_away(self.security.user_of)

    def tend(self, now_s: float) -> float:
        """Call after each turn of the loop: send waiting answers and check connections, if that is due.

        Returns the time at which to call again if nothing comes before.
        """
        if not self.outbox.waiting and self.connections.rest(now_s):
            return self.connections.wake_s()
        self.outbox.flush(now_s)
        self.connections.look(now_s)
        self.connections.see_off(now_s, lambda: {*self.awaiting(), *self.outbox.waiting})
        return min(self.outbox.wake_s(), self.connections.wake_s())

    def awaiting(self) -> Collection[Hashable]:
        """The clients that are owed an answer; subclasses know."""
        return ()

    def _sender(self, frames: Sequence[zmq.Frame]) -> tuple[Hashable | None, bool]:
        """The client (None: it has gone), and whether its connection is known and so what it sends is counted."""
        if self.security is None:
            return frames[0].bytes, self.connections.heard(frames[-1])
        return self.connections.sender(frames[-1]), True

    def close(self) -> None:
        self.connections.close()
        self.socket.close()
        if self.security is not None:
            self.security.close()
        if self._ipc is not None:
            self._ipc.close()


@contextlib.contextmanager
def held_endpoint(endpoint: str) -> Iterator[None]:
    """Context in which `endpoint` is bound, for nobody. Raises BadInput if it cannot be."""
    if endpoint.startswith("ipc://"):
        with contextlib.closing(IpcSocket(endpoint)):
            yield
        return
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.setsockopt(zmq.IPV6, "[" in endpoint)
        _bind(socket, endpoint)
        yield


def _bind(socket: zmq.Socket[bytes], endpoint: str) -> None:
    """Raises BadInput if that fails."""
    try:
        socket.bind(_any_port(endpoint))
    except zmq.ZMQError as error:
        is_taken = error.errno == zmq.EADDRINUSE
        other = ": --endpoint URL, or all models at one: shisha-rt serve A B" if is_taken else ""
        raise BadInput(
            f"endpoint {endpoint}: {error.strerror}; expected a free address of this machine{other}",
            Error.ADDRESS_TAKEN,
        ) from None


def _any_port(endpoint: str) -> str:
    """Convert an endpoint to ZeroMQ's form: `*` for port 0 (any free port), an address for localhost."""
    endpoint = endpoint.replace("tcp://localhost:", "tcp://127.0.0.1:")
    return endpoint[:-1] + "*" if endpoint.startswith("tcp://") and endpoint.endswith(":0") else endpoint


def queued_messages(message_bytes: int) -> int:
    """How many messages of that size ZeroMQ may hold for one peer: few, if they are large."""
    return max(2, min(_QUEUED_MESSAGES, _QUEUED_BYTES // max(1, message_bytes)))


def _router(context: zmq.Context[zmq.Socket[bytes]], limits: Limits, queued: int) -> zmq.Socket[bytes]:
    """A socket that reads up to `queued` messages ahead.

    No heartbeats of our own: on this machine the kernel says who has gone, and libzmq (4.3.5) aborts the process when
    one is due on a connection that was lost while its queue was full.
    """
    socket = context.socket(zmq.ROUTER)
    for option, value in (
        (zmq.LINGER, 0),
        (zmq.BACKLOG, BACKLOG),
        (zmq.ROUTER_MANDATORY, 1),
        (zmq.MAXMSGSIZE, limits.max_message_bytes + REFUSED_BYTES),
        (zmq.RCVHWM, queued),
        (zmq.SNDHWM, queued_messages(limits.max_answer_bytes)),
    ):
        socket.setsockopt(option, value)
    return socket
