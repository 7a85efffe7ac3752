"""The client's socket: one DEALER, a watch on its connection, and the `Conversation` over both. It never waits.

Both faces of the client use this one class and differ only in how they wait for its file descriptors, so what is
delicate about ZeroMQ stands here once:
- IMMEDIATE: a request is only taken while a daemon is connected, and what was queued for a connection that broke is
  dropped with it. So nothing reaches a restarted daemon behind the caller's back.
- The sockets' descriptors signal changes, not states: after each signal and each send, read until nothing is left.
- Messages are read before the watch, so that answers which came before the connection broke still count.
Shell.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from typing import Any, Final, TypeAlias

import zmq
from zmq.utils.monitor import parse_monitor_message

from shisha_rt.wire.conversation import Conversation, Outgoing, Settled
from shisha_rt.wire.exceptions import FailedPrecondition, InvalidArgument, ShishaError, Timeout, Unavailable

Context: TypeAlias = zmq.Context[Any]
"""A pyzmq context of either kind, blocking or asyncio."""

ENDPOINT: Final = "tcp://127.0.0.1:5555"
TIMEOUT_S: Final = 30.0
PROBE_S: Final = 1.0
"""After so long a silence a waiting client asks whether the daemon is still the same."""
_HEARTBEAT_MS: Final = 1000
_HEARTBEAT_TIMEOUT_MS: Final = 3000
_RECONNECT_MS: Final = 100
_WATCHED: Final = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED


class Patience:
    """How long a call may take, all that it has to do included."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._end = time.monotonic() + timeout_s

    @property
    def left_s(self) -> float:
        return max(0.0, self._end - time.monotonic())


class Link:
    """`socket` and `watch` are for waiting on; only this class reads and writes them."""

    def __init__(self, endpoint: str, context: Context | None) -> None:
        self.endpoint = endpoint
        self.conversation = Conversation()
        self.connected = False
        blocking = zmq.Context.instance() if context is None else zmq.Context(shadow=context)
        self.socket: zmq.Socket[bytes] = blocking.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.set(zmq.IMMEDIATE, 1)
        self.socket.set(zmq.HEARTBEAT_IVL, _HEARTBEAT_MS)
        self.socket.set(zmq.HEARTBEAT_TIMEOUT, _HEARTBEAT_TIMEOUT_MS)
        self.socket.set(zmq.RECONNECT_IVL, _RECONNECT_MS)
        # pyzmq's own name for the watch is made of a descriptor, which may be in use again before the name is free.
        self.watch: zmq.Socket[bytes] = self.socket.get_monitor_socket(_WATCHED, f"inproc://watch-{uuid.uuid4().hex}")
        self.watch.linger = 0
        try:
            self.socket.connect(endpoint)
        except zmq.ZMQError as error:
            self.close()
            raise InvalidArgument(f"endpoint {endpoint!r}: {error.strerror}; expected tcp://HOST:PORT") from None

    @property
    def closed(self) -> bool:
        return self.socket.closed

    def close(self) -> None:
        if not self.closed:
            self.socket.disable_monitor()
            self.watch.close()
            self.socket.close()

    def try_send(self, outgoing: Outgoing, *, copy: bool = True) -> bool:
        """Put a request in flight, unless no daemon takes it now. Without `copy` its arrays must stay as they are."""
        if self.closed:
            raise FailedPrecondition("the client is closed")
        try:
            self.socket.send_multipart(outgoing.parts, zmq.DONTWAIT, copy=copy)
        except zmq.Again:
            return False
        self.conversation.sent(outgoing)
        return True

    def probe(self) -> None:
        outgoing = self.conversation.probe()
        if outgoing is not None:
            self.try_send(outgoing)

    def abandon(self, request_id: str) -> None:
        """Stop waiting for a request, and tell the daemon if that can be done at once."""
        cancel = self.conversation.abandon(request_id)
        if cancel is not None and not self.closed:
            with contextlib.suppress(zmq.Again):
                self.socket.send_multipart(cancel.parts, zmq.DONTWAIT)

    def drain(self) -> list[Settled]:
        """Read all that has come, and say what it settled."""
        settled: list[Settled] = []
        if self.closed:
            return self.conversation.lose("the client was closed")
        while True:
            try:
                frames = self.socket.recv_multipart(zmq.DONTWAIT, copy=False)
            except zmq.Again:
                break
            settled += self.conversation.receive([frame.buffer for frame in frames])
        while True:
            try:
                event = parse_monitor_message(self.watch.recv_multipart(zmq.DONTWAIT))["event"]
            except zmq.Again:
                return settled
            self.connected = event == zmq.EVENT_HANDSHAKE_SUCCEEDED
            if not self.connected:
                settled += self.conversation.lose(
                    f"the connection to {self.endpoint} was lost with the request under way; it may have been run"
                )

    @property
    def stirring(self) -> bool:
        """Whether `try_send` or `drain` has something to do. If not, the next change shows on a descriptor."""
        return not self.closed and bool(self.socket.get(zmq.EVENTS))

    def refused(self, patience: Patience) -> ShishaError:
        """Why a request could not be sent."""
        within = f"within {patience.timeout_s:g} s"
        if self.connected:
            return Timeout(f"the daemon at {self.endpoint} took no request {within}")
        return Unavailable(f"no daemon at {self.endpoint} {within}; start one there with: shisha-rt serve MODEL.onnx")

    def silence(self, request_id: str, patience: Patience) -> Timeout:
        """Why the caller stops waiting."""
        return Timeout(f"no answer from the daemon at {self.endpoint} within {patience.timeout_s:g} s", request_id)
