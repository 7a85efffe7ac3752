"""The one public address: forwards requests to the daemon of the model that they name, and answers to the client.

A client that can follow learns its model's endpoint and then talks to that daemon only. For any other client the front
opens one connection to each daemon that the client asks. To the daemon this connection is a client like any other, with
its own ids, streams and share of slots; messages pass through unchanged.

If another daemon takes over a model, a client's requests go to the new one as soon as the old one has answered all of
that client's requests: so its streams stay in order, and no request is refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
import zmq

from shisha_rt.daemon.front.outbox import LEAST_AGAIN_S
from shisha_rt.daemon.front.public_socket import Message, PublicSocket, queued_messages
from shisha_rt.daemon.front.security import Security
from shisha_rt.daemon.loop.poller import Poller
from shisha_rt.errors import Error
from shisha_rt.protocol.exceptions import ShishaError, error_for
from shisha_rt.protocol.header import decode_head, encode_answer, encode_error
from shisha_rt.protocol.limits import Limits
from shisha_rt.protocol.multipart import are_descriptors_left, receive_parts, send_parts
from shisha_rt.protocol.operations import Cancel
from shisha_rt.protocol.request import RequestRoute, read_operation, read_route

LIMITS: Final = Limits()
"""Limits of messages, whichever model they are for."""
_HELD_BYTES: Final = 96 << 20
"""The most bytes of a client's requests that are held for a daemon: while the daemon's socket accepts no more, or until
the daemon that it replaces has answered that client's requests.
"""
_ANSWERS_PER_TURN: Final = 32
_PUSH_S_PER_LINE: Final = 1e-4
"""Pause between attempts to send what is held, per line that holds something; an attempt takes a twentieth of it."""
_UNUSED_S: Final = 600.0
_LOOK_S: Final = 10.0
_MOST_LINES: Final = 768
"""These include lines of clients that have gone, which the front cannot see. A ZeroMQ context has 1,023 sockets."""
_SPARE_DESCRIPTORS: Final = 32


@dataclass(slots=True, eq=False)
class Line:
    """One client's connection to one daemon. `in_flight`: envelopes by request id; `held`: messages not sent yet.

    `after`: requests for the daemon that has taken over, until the old one has answered those in flight.
    """

    client: Hashable
    model: str
    endpoint: str
    socket: zmq.Socket[bytes]
    fd: int
    used_s: float
    in_flight: dict[str, list[bytes]] = field(default_factory=dict)
    held: deque[Sequence[memoryview]] = field(default_factory=deque)
    held_bytes: int = 0
    after: deque[tuple[Message, RequestRoute]] = field(default_factory=deque)


class Front(PublicSocket):
    """`endpoint_of`: returns the endpoint of a model's present daemon; raises `ShishaError` if there is none."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        endpoint: str,
        count: Callable[[str], None],
        security: Security | None,
        poller: Poller,
        endpoint_of: Callable[[str], str],
    ) -> None:
        self._context = context
        self._poller = poller
        self._endpoint_of = endpoint_of
        self._lines: dict[tuple[Hashable, str], Line] = {}
        self._holding: set[Line] = set()  # lines with something held
        self._look_s = self._push_s = 0.0
        super().__init__(context, endpoint, LIMITS, count, security)  # last: closes the front if it cannot be bound

    def receive(self) -> Iterator[tuple[Message, RequestRoute]]:
        """Yield the requests that have arrived; unreadable or forbidden ones are answered with an error here."""
        for message in self.messages():
            try:
                route = read_route(message.payload, self.limits)
                self.check(message, route.op, route.id)
            except ShishaError as error:
                self.refuse(message, error)
            else:
                yield message, route

    def answer_fields(self, message: Message, request_id: str, fields: Mapping[str, object]) -> None:
        self.answer(message.client, message.envelope, request_id, [encode_answer(request_id, fields)])

    def forward(self, message: Message, route: RequestRoute, model: str, now_s: float) -> None:
        """Send a request to the model's daemon; answer with an error if there is none or too many bytes are held."""
        try:
            self._forward(message, route, model, now_s)
        except ShishaError as error:
            error.request_id = route.id
            self.refuse(message, error)

    def _forward(self, message: Message, route: RequestRoute, model: str, now_s: float) -> None:
        endpoint, line = self._endpoint_of(model), self._lines.get((message.client, model))
        if line is not None and line.endpoint != endpoint:
            if line.in_flight:
                self._forward_later(line, message, route)
                return
            self._end(line)
            line = None
        if line is None:
            line = self._open(message.client, model, endpoint, now_s)
        if route.id in line.in_flight:
            reason = f"header at id: {route.id!r} is waiting already; expected an id that no waiting request has"
            raise error_for(Error.ID_IN_USE, reason)
        line.used_s = now_s
        self._send(line, route, message)

    def _forward_later(self, line: Line, message: Message, route: RequestRoute) -> None:
        """Hold a request until the replaced daemon of the line has answered. A cancel of a frame there is sent now."""
        if _is_for(line, message, route):
            self._send(line, route, message)
        else:
            self._hold(line, sum(map(len, message.payload)))
            line.after.append((message, route))

    def _send(self, line: Line, route: RequestRoute, message: Message) -> None:
        if line.held or not self._sent(line, message.payload):
            self._hold(line, sum(map(len, message.payload)))
            line.held.append(message.payload)
            self._holding.add(line)
        line.in_flight[route.id] = message.envelope

    def _hold(self, line: Line, size_bytes: int) -> None:
        if line.held_bytes + size_bytes > _HELD_BYTES:
            raise error_for(Error.TOO_MANY_BYTES, f"{line.held_bytes} bytes wait for {line.model!r} already")
        line.held_bytes += size_bytes

    def _open(self, client: Hashable, model: str, endpoint: str, now_s: float) -> Line:
        self._make_room()
        try:
            socket: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        except zmq.ZMQError as error:  # clients' own connections take descriptors, too
            reason = f"no connection to {model!r} can be made for one more client: {error.strerror}"
            raise error_for(Error.TOO_MANY_CALLERS, reason) from None
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.SNDHWM, queued_messages(self.limits.max_message_bytes))
        socket.setsockopt(zmq.RCVHWM, queued_messages(self.limits.max_message_bytes))
        socket.connect(endpoint)
        line = self._lines[client, model] = Line(client, model, endpoint, socket, int(socket.fileno()), now_s)
        self._poller.watch_socket(socket, lambda: self._pass_answers(line))
        return line

    def _make_room(self) -> None:
        """End the longest unused line if lines are many or descriptors short. Raises `ShishaError` if all are used."""
        if len(self._lines) < _MOST_LINES and are_descriptors_left(_SPARE_DESCRIPTORS):
            return
        unused = [line for line in self._lines.values() if not line.in_flight]
        if unused:
            self._end(min(unused, key=lambda line: line.used_s))
        elif len(self._lines) >= _MOST_LINES:
            reason = f"requests of {len(self._lines)} clients are forwarded: as many as can be"
            raise error_for(Error.TOO_MANY_CALLERS, reason)

    def _pass_answers(self, line: Line) -> Iterator[object]:
        """Pass a daemon's answers on to their client, then send what was held."""
        for _ in range(_ANSWERS_PER_TURN):
            try:
                frames = receive_parts(line.socket)
            except zmq.Again:
                break
            try:
                request_id = decode_head(frames[0].buffer).id or ""
            except (msgspec.MsgspecError, ValueError, RecursionError):  # nothing that a daemon of ours sends
                continue
            envelope = line.in_flight.pop(request_id, None)
            if envelope is not None:
                self.answer(line.client, envelope, request_id, [frame.bytes for frame in frames])
        self._push(line)
        if line.after and not line.in_flight:
            self._go_on(line)
        return iter(())

    def tend(self, now_s: float) -> float:
        """As `PublicSocket.tend`; also sends held messages that a daemon's socket accepts again."""
        if self._holding and now_s >= self._push_s:
            self._push_s = now_s + max(LEAST_AGAIN_S, _PUSH_S_PER_LINE * len(self._holding))
            for line in list(self._holding):
                self._push(line)
        return super().tend(now_s)

    def _sent(self, line: Line, payload: Sequence[memoryview]) -> bool:
        """Send a message to the daemon; False if its socket accepts none now."""
        self._poller.stir(line.fd)
        try:
            send_parts(line.socket, payload, copy=False)
        except zmq.Again:
            return False
        return True

    def _push(self, line: Line) -> None:
        while line.held and self._sent(line, line.held[0]):
            line.held_bytes -= sum(map(len, line.held.popleft()))
        if not line.held:
            self._holding.discard(line)

    def _go_on(self, line: Line) -> None:
        """Close a line whose daemon has answered everything, and forward to the new daemon what has waited for that."""
        self._end(line)
        for message, route in line.after:
            self.forward(message, route, line.model, line.used_s)

    def daemon_gone(self, endpoint: str, reason: str) -> None:
        """Answer with an error each request that a daemon had in flight when it ended, and close its lines."""
        for line in [line for line in self._lines.values() if line.endpoint == endpoint]:
            for request_id, envelope in line.in_flight.items():
                error = error_for(Error.MODEL_GONE, reason, request_id)
                self.outbox.send(line.client, [*envelope, encode_error(request_id, error)])
            line.in_flight.clear()
            self._go_on(line)

    def in_flight_at(self, endpoint: str) -> int:
        return sum(len(line.in_flight) + len(line.after) for line in self._lines.values() if line.endpoint == endpoint)

    @property
    def idle(self) -> bool:
        return not any(line.in_flight or line.after for line in self._lines.values())

    def look(self, now_s: float) -> None:
        """Called periodically, to close connections that have long been unused."""
        if now_s >= self._look_s:
            self._look_s = now_s + _LOOK_S
            for line in [line for line in self._lines.values() if now_s > line.used_s + _UNUSED_S]:
                if not line.in_flight:
                    self._end(line)

    def _end(self, line: Line) -> None:
        del self._lines[line.client, line.model]
        self._holding.discard(line)
        self._poller.unwatch(line.fd)
        line.socket.close()

    def awaiting(self) -> set[Hashable]:
        return {line.client for line in self._lines.values() if line.in_flight or line.after}

    def close(self) -> None:
        for line in list(self._lines.values()):
            self._end(line)
        super().close()


def _is_for(line: Line, message: Message, route: RequestRoute) -> bool:
    """Whether a request cancels one that is in flight on the line."""
    if route.op != "cancel":
        return False
    arguments = read_operation(message.payload).arguments
    return isinstance(arguments, Cancel) and arguments.target in line.in_flight
