"""The client's socket: one DEALER, a watch on its connection, and the `Conversation` over both. It never waits.

Both faces of the client use this one class and differ only in how they wait for its file descriptors, so what is
delicate about ZeroMQ stands here once:
- A connection is a socket, and libzmq makes no second one by itself: a request is only sent while a daemon is
  connected, and what was queued for a connection that broke is dropped with its socket. So nothing reaches a restarted
  daemon behind the caller's back. (ZMQ_IMMEDIATE does as much, but also drops answers that nobody has read yet.)
- The sockets' descriptors signal changes, not states: after each signal and each send, read until nothing is left.
- Descriptors are polled, or EVENTS asked for, before reading: that nothing is there costs an exception otherwise, which
  takes longer than all the rest.
- Messages are read before the watch, so that answers which came before the connection broke still count.
- No heartbeats of ZeroMQ's, but the kernel's: theirs wait behind requests that a busy daemon has not read, so that it
  counts as lost; and when their sender is lost then, libzmq (4.3.5) aborts the daemon's process as it answers them.
- Where several models are served the public address leads to the own daemon of each (`follow`), and whoever has lost
  that, or is sent away by it, asks the public address again: both by new sockets.
- A handshake that is refused is tried again with each call that comes later.
Shell.
"""

from __future__ import annotations

import logging
import math
import socket
import time
import uuid
from typing import Any, Final, TypeAlias, cast

import zmq
from numpy.typing import DTypeLike
from zmq.utils.monitor import parse_monitor_message

from shisha_rt.client.lent_memory import LentMemory
from shisha_rt.endpoint import default_endpoint
from shisha_rt.errors import BadInput, Error
from shisha_rt.protocol.conversation import Conversation, Outgoing, RequestOutcome
from shisha_rt.protocol.exceptions import (
    ShishaError,
    Timeout,
    error_for,
)
from shisha_rt.protocol.frame_tensors import Array, Shape, is_large
from shisha_rt.protocol.keys import ClientKeys, SecretKey, ServerKey, client_keys
from shisha_rt.protocol.multipart import can_be_read, receive_parts, send_parts

Context: TypeAlias = zmq.Context[Any]
"""A pyzmq context of either kind, blocking or asyncio."""

TIMEOUT_S: Final = 30.0
PROBE_S: Final = 1.0
"""After so long a silence a waiting client asks whether the daemon is still the same."""
_KEEPALIVE: Final = {
    zmq.TCP_KEEPALIVE: 1,
    zmq.TCP_KEEPALIVE_IDLE: 1,
    zmq.TCP_KEEPALIVE_INTVL: 1,
    zmq.TCP_KEEPALIVE_CNT: 3,
}
_RECONNECT_S: Final = 0.1
_NEVER_MS: Final = 24 * 3600 * 1000
_LOOKED_S: Final = 1e-3
"""For so long nobody looks again whether the connection is still the same."""
# As plain numbers: combining members of an enumeration takes longer than the call.
_EVENTS: Final = int(zmq.EVENTS)
_POLLIN: Final = int(zmq.POLLIN)
_POLLOUT: Final = int(zmq.POLLOUT)
_WATCHED: Final = (
    zmq.EVENT_CONNECTED
    | zmq.EVENT_HANDSHAKE_SUCCEEDED
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CONNECT_RETRIED
)
_NOT_THERE: Final = frozenset({zmq.EVENT_DISCONNECTED, zmq.EVENT_CONNECT_RETRIED})
_BROKEN_OFF: Final = 3
"""So many handshakes in a row that end without a word are no accident, such as a daemon that has just been killed."""


_SILENT_S: Final = 5.0
"""So long a client waits for a daemon without a word: as long as commands wait for one at all."""

log = logging.getLogger(__name__)


class Patience:
    """How long a call may take, all that it has to do included."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._end = time.monotonic() + timeout_s

    @property
    def waited_s(self) -> float:
        return self.timeout_s - self._end + time.monotonic()

    @property
    def left_s(self) -> float:
        return max(0.0, self._end - time.monotonic())


class Link:
    """`socket` and `watch` are for waiting on; only this class reads and writes them. `memory` None: none is shared.

    `endpoint` is the address that the client was given, `at` the one it is connected to: where several models are
    served that is the own daemon of `model`, if it can be reached. `turns` counts connections to other addresses, each
    with sockets of its own.
    """

    def __init__(
        self,
        endpoint: str | None,
        context: Context | None,
        *,
        share: bool,
        model: str | None = None,
        secret_key: SecretKey | None = None,
        server_key: ServerKey | None = None,
    ) -> None:
        endpoint = endpoint or default_endpoint()
        try:
            self._keys = client_keys(secret_key, server_key)
        except BadInput as error:
            raise error_for(Error.KEYS_UNUSABLE, str(error)) from None
        self.endpoint = endpoint
        self.memory = LentMemory() if share else None
        self.conversation = Conversation(self.memory, model)
        self.turns = 0
        self._context = zmq.Context.instance() if context is None else zmq.Context(shadow=context)
        self._looked_s = 0.0
        self._has_said = False
        self._barred = _Barred(endpoint, self._keys)
        self._connect(endpoint)

    def _connect(self, endpoint: str) -> None:
        """Make sockets, and connect them; raises InvalidArgument for what is no address."""
        self.at = endpoint
        self.connected = self._is_accepted = False
        self._again_s = math.inf  # when there is to be another socket, as this one has nobody there
        self.socket: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.set(zmq.IPV6, int("[" in endpoint))
        for option, value in _KEEPALIVE.items():
            self.socket.set(option, value)
        self.socket.set(zmq.RECONNECT_IVL, _NEVER_MS)
        if self._keys is not None:
            self.socket.set(zmq.CURVE_PUBLICKEY, self._keys.own.public.encode())
            self.socket.set(zmq.CURVE_SECRETKEY, self._keys.own.secret.encode())
            self.socket.set(zmq.CURVE_SERVERKEY, self._keys.server.encode())
        # pyzmq's own name for the watch is made of a descriptor, which may be in use again before the name is free.
        self.watch: zmq.Socket[bytes] = self.socket.get_monitor_socket(_WATCHED, f"inproc://watch-{uuid.uuid4().hex}")
        self.watch.linger = 0
        self._readable = [(self.socket, _POLLIN), (self.watch, _POLLIN)]
        self._writable = [(self.socket, _POLLIN | _POLLOUT), (self.watch, _POLLIN)]
        try:
            self.socket.connect(endpoint)
        except zmq.ZMQError as error:
            self.close()
            raise error_for(
                Error.BAD_ENDPOINT, f"endpoint {endpoint!r}: {error.strerror}; expected tcp://HOST:PORT"
            ) from None

    def follow(self) -> bool:
        """Turn to the model's own daemon, if the address leads there and it can be reached from here."""
        if self.at is not self.endpoint or not self.conversation.leads or self.conversation.in_flight:
            return False
        lead = self.conversation.leads_to
        if lead is None or not _is_near(lead):
            self.conversation.leads = False
            return False
        self._turn_to(lead)
        return True

    @property
    def is_to_leave(self) -> bool:
        """Whether another daemon takes over from the one that this was led to."""
        return self.conversation.moved and self.at is not self.endpoint

    def leave(self) -> None:
        """Ask the public address again. Nothing may be in flight."""
        self._turn_to(self.endpoint)

    def _turn_to(self, endpoint: str) -> None:
        self.conversation.lose("the client turned to another connection")
        self._close_sockets()
        if endpoint != self.at:
            self._barred = _Barred(endpoint, self._keys)
        self._connect(endpoint)
        self.turns += 1

    @property
    def closed(self) -> bool:
        return self.socket.closed

    def close(self) -> None:
        if not self.closed:
            self._close_sockets()
            if self.memory is not None:
                self.memory.forget()

    def _close_sockets(self) -> None:
        self.socket.disable_monitor()
        self.watch.close()
        self.socket.close()

    @property
    def sharing(self) -> bool:
        return self.memory is not None and self.memory.shared

    def might_lend(self, shape: Shape, dtype: DTypeLike) -> bool:
        """Whether there is a point in asking for such an array in shared memory."""
        return self.memory is not None and not self.closed and is_large(shape, dtype)

    def empty(self, shape: Shape, dtype: DTypeLike) -> Array | None:
        """Return an array in shared memory; None where there is no room, unless `memory` gets more."""
        return None if self.memory is None else self.memory.empty(shape, dtype)

    def try_send(self, outgoing: Outgoing, *, copy: bool = True) -> bool:
        """Put a request in flight, unless no daemon takes it now. Without `copy` its arrays must stay as they are.

        Raises `Unavailable` for one that was made for a daemon that has been lost since, if that has been lent memory;
        and `PermissionDenied` or `Unavailable` while the daemon there refuses us.
        """
        if self.closed:
            raise error_for(Error.CLIENT_MISUSED, "the client is closed")
        if self._barred.why is not None:
            self._try_again()
        self.conversation.check(outgoing)
        if not self.connected:
            return False
        try:
            send_parts(self.socket, outgoing.parts, copy=copy)
        except zmq.Again:
            return False
        self.conversation.sent(outgoing)
        return True

    def probe(self) -> None:
        outgoing = self.conversation.probe()
        if outgoing is not None:
            self.try_send(outgoing)

    def abandon(self, request_id: str) -> bool:
        """Stop waiting for a request, and tell the daemon if that can be done at once; whether it was told."""
        cancel = self.conversation.abandon(request_id)
        if cancel is None or self.closed or not self.connected:
            return False
        try:
            send_parts(self.socket, cancel.parts, copy=True)
        except zmq.Again:
            return False
        return True

    def wait(self, timeout_s: float, *, to_send: bool = False) -> list[RequestOutcome] | None:
        """Wait for something to come, or with `to_send` until a request may be taken; None if it has not come to that.

        Of what has come one message is read: there is no cheaper way to know of the next one than to wait for it.
        """
        if self.closed:
            return self.drain()
        watched = self._writable if to_send and self.connected else self._readable
        events = zmq.zmq_poll(watched, math.ceil(min(timeout_s, self.again_in_s) * 1e3))
        self._looked_s = time.monotonic()
        if not events:
            return None if self._looked_s < self._again_s else self.drain()
        if any(socket is self.watch for socket, _ in events):
            return self.drain()
        return self._read() if events[0][1] & _POLLIN else []

    def look(self) -> list[RequestOutcome]:
        """What has come, and above all whether the connection is the same; unless that has just been looked at."""
        return [] if time.monotonic() < self._looked_s + _LOOKED_S else self.drain()

    def drain(self) -> list[RequestOutcome]:
        """Read all that has come, and say what it settled."""
        if self.closed:
            return self.conversation.lose("the client was closed")
        settled = self._read_all()
        self._looked_s = time.monotonic()
        while can_be_read(self.watch):
            monitor_message = parse_monitor_message(self.watch.recv_multipart(zmq.DONTWAIT))
            event, was_connected = monitor_message["event"], self.connected
            self._is_accepted = event not in _NOT_THERE
            self.connected = event == zmq.EVENT_HANDSHAKE_SUCCEEDED
            self._barred.hear(event, int(monitor_message["value"]))
            if event == zmq.EVENT_DISCONNECTED:
                settled += self._read_all()  # what came between the first look and the end
                settled += self.conversation.lose(
                    f"the connection to {self.at} was lost with the request under way; it may have been run"
                )
            if event in _NOT_THERE and not self._barred.is_over:
                is_first = was_connected or self.at is not self.endpoint
                self._again_s = min(self._again_s, self._looked_s + (0.0 if is_first else _RECONNECT_S))
        if self._looked_s >= self._again_s:
            self._turn_to(self.endpoint)
        return settled

    def _read_all(self) -> list[RequestOutcome]:
        settled: list[RequestOutcome] = []
        while can_be_read(self.socket):
            settled += self._read()
        return settled

    @property
    def again_in_s(self) -> float:
        """How long until `drain` tries once more to reach a daemon; inf while one is connected, or might be."""
        return max(0.0, self._again_s - time.monotonic())

    def _try_again(self) -> None:
        """Raises why we are barred, unless that was some time ago: then it may be otherwise now."""
        barred = self._barred
        assert barred.why is not None
        if time.monotonic() < barred.until_s:
            raise barred.why
        self._barred = _Barred(self.at, self._keys)
        if barred.is_over:
            self._turn_to(self.at)

    def _read(self) -> list[RequestOutcome]:
        """The message that is there."""
        settled = self.conversation.receive([frame.buffer for frame in receive_parts(self.socket)])
        if self.conversation.in_doubt:
            self.probe()
        return settled

    def wait_s(self, patience: Patience) -> float:
        """How long to wait until a request may be taken, at most; says once that no daemon is there yet."""
        if self.connected or self._has_said:
            return patience.left_s
        if patience.waited_s < _SILENT_S:
            return min(patience.left_s, _SILENT_S - patience.waited_s)
        self._has_said = True
        how = "start one there with: shisha-rt serve MODEL.onnx"
        log.warning("no daemon at %s yet, waiting for up to %g s; %s", self.endpoint, patience.timeout_s, how)
        return patience.left_s

    @property
    def stirring(self) -> bool:
        """Whether `try_send` or `drain` has something to do. If not, the next change shows on a descriptor."""
        if self.closed:
            return False
        awaited = _POLLIN | _POLLOUT if self.connected else _POLLIN
        return bool(cast("int", self.socket.get(_EVENTS)) & awaited)

    def refused(self, patience: Patience) -> ShishaError:
        """Why a request could not be sent."""
        within = f"within {patience.timeout_s:g} s"
        if self.connected:
            return Timeout(f"the daemon at {self.endpoint} took no request {within}", kind=Error.NO_ANSWER)
        if self._is_accepted:
            silent = f"who listens at {self.endpoint} said nothing {within}: it may be stopped, or busy"
            return Timeout(silent, kind=Error.NO_ANSWER)
        return error_for(
            Error.NO_DAEMON, f"no daemon at {self.endpoint} {within}; start one there with: shisha-rt serve MODEL.onnx"
        )

    def silence(self, request_id: str, patience: Patience) -> Timeout:
        """Why the caller stops waiting."""
        return Timeout(
            f"no answer from the daemon at {self.endpoint} within {patience.timeout_s:g} s", request_id, Error.NO_ANSWER
        )


_WITH_KEYS: Final = "expected secret_key (--key) and server_key (--server-key)"
_OTHER_KEY: Final = "expected one whose public key is server_key (--server-key)"


class _Barred:
    """Whether the daemon refuses us, and `why`; `is_over`: for certain, and it is tried again by later calls alone."""

    def __init__(self, endpoint: str, keys: ClientKeys | None) -> None:
        self._endpoint = endpoint
        self._keys = keys
        self._broken_off = 0
        self.why: ShishaError | None = None
        self.until_s = 0.0
        self.is_over = False

    def hear(self, event: int, value: int) -> None:
        """What the watch tells."""
        where, keys = f"the daemon at {self._endpoint}", self._keys
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self.why, self._broken_off = None, 0
        elif event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            key = "" if keys is None else f" {keys.own.public}"
            self._because(
                error_for(Error.UNKNOWN_KEY, f"{where} does not know this key{key}; expected one of its allow-list's")
            )
            self.is_over = True
        elif event == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
            is_other = value == zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH
            if is_other and keys is None:
                self._because(error_for(Error.KEYS_MISSING, f"{where} asks for keys; {_WITH_KEYS}"))
            elif is_other:
                self._because(
                    error_for(Error.KEYS_UNWANTED, f"{where} asks for no keys; expected none (secret_key, server_key)")
                )
            else:
                self._because(
                    error_for(Error.NOT_A_DAEMON, f"{where} does not speak as a daemon does; expected one of shisha-rt")
                )
            self.is_over = True
        elif event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
            self._broken_off += 1
            if self._broken_off >= _BROKEN_OFF:
                no_key = f"it may ask for keys: {_WITH_KEYS}; or it is no endpoint, but HTTP"
                reason = no_key if keys is None else _OTHER_KEY
                self._because(error_for(Error.HANDSHAKE_BROKEN, f"{where} breaks off each handshake; {reason}"))

    def _because(self, why: ShishaError) -> None:
        self.why, self.until_s = why, time.monotonic() + _RECONNECT_S


def _is_near(endpoint: str) -> bool:
    """Whether a daemon listens there that this process may connect to."""
    with socket.socket(socket.AF_UNIX) as asking:
        return endpoint.startswith("ipc://") and asking.connect_ex(endpoint.removeprefix("ipc://")) == 0
