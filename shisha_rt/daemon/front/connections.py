"""The connections behind the public socket, watched for messages that grow beyond their limit.

libzmq buffers the parts of a message until the last one has come, however many there are: it limits the size of a part,
and the number of whole messages that wait. The socket shows nothing of this. So the bytes that the kernel has received
on each connection are compared with their number when a message was last read from it: a client that has sent more
since than may be waiting is cut off. By then it has sent at most that much, and what arrives between two looks.

With many connections each look covers some of them, in turn: otherwise a thousand would take more of the loop's time
than all frames.

Only TCP counts received bytes. Connections to an ipc endpoint, which only this user's own programs reach, are not
watched. Nor are any if the kernel does not report the count (old kernels, sandboxes, emulators): then only the size of
each part of a message is limited, not the number of parts, and a warning is logged once.

With keys, the connection of a message is also known for certain, by the number that the connection was given at its
handshake: a descriptor may have been reused.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import socket
import struct
import termios
import time
import uuid
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final

import zmq

from shisha_rt.process.readable import queued_bytes
from shisha_rt.protocol.multipart import can_be_read

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 0.02
IDLE_LOOK_EVERY_S: Final = 0.1
LOOKED_AT: Final = 128
"""Most connections that one look covers."""
_HEARTBEATS_BYTES_PER_S: Final = 1024
"""ZeroMQ's own traffic, which counts as received but not as messages."""
_LAST_ANSWERS_S: Final = 0.2
"""Time for the last answers to a client that is sent away to get from libzmq to the kernel."""
_TO_LEAVE_S: Final = 2.0
KEY_CHARACTERS: Final = 40
_SRCFD: Final = int(zmq.SRCFD)
_ESTABLISHED: Final = 1
_AT_ONCE: Final = struct.pack("ii", 1, 0)
_RECEIVED: Final = struct.Struct("=Q")
_RECEIVED_AT: Final = 128  # tcpi_bytes_received in the kernel's struct tcp_info
_MONITOR_EVENT: Final = struct.Struct("=Hi")
"""The event and its value, as in zmq_socket_monitor(3). pyzmq's own parser of them would import asyncio."""
_BROKEN_OFF: Final = frozenset({zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL})


@dataclass(slots=True, eq=False)
class Connection:
    """`end`: our own descriptor of the connection, as libzmq's may have been reused by the time of a look.

    `received_bytes`: received until `since_s`, the first look after a message was last read. `heard`: a message has
    been read since the last look. With keys, `user_id`: the id given at its handshake, known from its first message on:
    the `key`, and a number above `above`.
    """

    end: socket.socket
    since_s: float
    above: int
    received_bytes: int = 0
    heard: bool = False
    open: bool = True
    user_id: str = ""

    @property
    def key(self) -> str:
        return self.user_id[:KEY_CHARACTERS]


class Connections:
    """The connections of a socket about to be bound.

    `allowed_bytes`: how much a connection may have sent beyond the messages that were read. `cut_off`: called for each
    client that is cut off. `broken_off`: called for each handshake that failed before the client's key was checked.
    """

    def __init__(
        self,
        bound: zmq.Socket[bytes],
        allowed_bytes: int,
        cut_off: Callable[[], None],
        broken_off: Callable[[], None] | None = None,
    ) -> None:
        self._allowed_bytes = allowed_bytes
        self._cut_off = cut_off
        self._broken_off = broken_off
        self._by_fd: dict[int, Connection] = {}
        self._to_look_at: list[int] = []  # descriptors whose turn is still to come, the next one last
        self._leaving: dict[Connection, float] = {}  # since when no answer waits for it; inf: one does
        self._number = 0
        self._said = False
        self._look_s = 0.0
        self._bound = bound
        events = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED
        if broken_off is not None:
            events |= zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
        # pyzmq's default name has a descriptor's number, which may be reused before the name is free.
        self._monitor: zmq.Socket[bytes] = bound.get_monitor_socket(events, f"inproc://watch-{uuid.uuid4().hex}")
        self._monitor.linger = 0

    def heard(self, frame: zmq.Frame) -> bool:
        """Note a message that was read; False if libzmq does not tell its connection (peers older than ZMTP 3.0)."""
        try:
            fd = frame.get(_SRCFD)
        except zmq.ZMQError:
            return False
        connection = self._by_fd.get(fd)
        if connection is not None:
            connection.heard = True
        return True

    def new_user_id(self, key: str) -> str:
        """Return an id for a connection in its handshake: its key and a new number.

        Pending events are taken first, so that the connection is already known, with an `above` below that number.
        """
        self._take_events(time.monotonic())
        self._number += 1
        return f"{key}{self._number}"

    def sender(self, frame: zmq.Frame) -> Connection | None:
        """The connection that a message came by, of which `frame` is a part; None: the connection has gone."""
        connection = self._by_fd.get(frame.get(_SRCFD))
        user_id = str(frame.get("User-Id"))
        if connection is None or (connection.user_id != user_id and not _is_first(connection, user_id)):
            return None
        connection.user_id, connection.heard = user_id, True
        return connection

    def is_open(self, connection: Connection) -> bool:
        """Whether the connection is open, for certain: libzmq reports an end before it frees the routing id."""
        if connection.open and can_be_read(self._monitor):
            self._take_events(time.monotonic())
        return connection.open

    def send_away(self, is_known: Callable[[str], object]) -> None:
        """Mark the connections whose key is not known any more: each is ended once no answer waits for it."""
        for connection in self._by_fd.values():
            if connection.user_id and not is_known(connection.key):
                self._leaving.setdefault(connection, math.inf)

    def see_off(self, now_s: float, waiting: Callable[[], Collection[object]]) -> None:
        """End the connections that were sent away, except those in `waiting`, for which answers are still to come."""
        if not self._leaving:
            return
        busy = waiting()
        for connection, idle_s in list(self._leaving.items()):
            if not connection.open:
                del self._leaving[connection]
            elif connection in busy:
                self._leaving[connection] = math.inf
            elif idle_s == math.inf:
                self._leaving[connection] = now_s
            elif now_s >= idle_s + _TO_LEAVE_S:
                self._end(connection)
            elif now_s >= idle_s + _LAST_ANSWERS_S:
                with contextlib.suppress(OSError):  # the client sees the end after all that was sent to it
                    connection.end.shutdown(socket.SHUT_WR)

    def fileno(self) -> int:
        """Descriptor that becomes readable when a connection has come or gone; `stirred` is to be called then."""
        return int(self._monitor.fileno())

    def stirred(self) -> Iterable[object]:
        self._look_s = 0.0
        return ()

    def rest(self, now_s: float) -> bool:
        """Whether no look is due, and no connection is being sent away."""
        return now_s < self._look_s and not self._leaving

    def wake_s(self) -> float:
        return self._look_s if self._by_fd or not self._look_s else math.inf

    def look(self, now_s: float) -> None:
        """Called periodically: cut off clients that have sent more than a message may have."""
        if now_s < self._look_s:
            return
        self._take_events(now_s)
        self._to_look_at = self._to_look_at or list(self._by_fd)
        now, self._to_look_at = self._to_look_at[-LOOKED_AT:], self._to_look_at[:-LOOKED_AT]
        busy = bool(self._to_look_at)
        for fd in now:
            connection = self._by_fd.get(fd)
            if connection is None:
                continue
            state, received_bytes = _tcp_info(connection.end)
            if state != _ESTABLISHED and connection not in self._leaving:  # the client sends no more, and libzmq knows
                self._forget(fd)
                continue
            if received_bytes is None:
                self._say_that_nothing_is_counted()
                continue
            unread_bytes = received_bytes - connection.received_bytes
            busy |= unread_bytes > 0
            if connection.heard:
                connection.heard, connection.since_s, connection.received_bytes = False, now_s, received_bytes
                continue
            allowed_bytes = self._allowed_bytes + _HEARTBEATS_BYTES_PER_S * (now_s - connection.since_s)
            if unread_bytes > allowed_bytes and unread_bytes - _in_kernel_bytes(connection.end) > allowed_bytes:
                self._cut(fd, connection, unread_bytes)
        self._look_s = now_s + (LOOK_EVERY_S if busy else IDLE_LOOK_EVERY_S)

    def _say_that_nothing_is_counted(self) -> None:
        if not self._said:
            self._said = True
            log.warning("the kernel does not count what clients send: one whose message does not end is not cut off")

    def _cut(self, fd: int, connection: Connection, unread_bytes: int) -> None:
        log.warning("a client is cut off: it has sent %d bytes of a message that does not end", unread_bytes)
        self._end(connection)
        self._forget(fd)
        self._cut_off()

    def _end(self, connection: Connection) -> None:
        with contextlib.suppress(OSError):  # the client has just closed it
            connection.end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)  # reset it, do not drain it
            connection.end.shutdown(socket.SHUT_RDWR)

    def _take_events(self, now_s: float) -> None:
        while can_be_read(self._monitor):
            message, _endpoint = self._monitor.recv_multipart(zmq.DONTWAIT)
            event, fd = _MONITOR_EVENT.unpack(message)
            if event in _BROKEN_OFF:
                if self._broken_off is not None:
                    self._broken_off()
                continue
            self._forget(fd)
            if event == zmq.EVENT_ACCEPTED:
                end = _duplicate(fd)
                if end is not None:
                    self._by_fd[fd] = Connection(end, now_s, self._number)

    def _forget(self, fd: int) -> None:
        """Drop a connection, and close our descriptor of it, without which it would not end."""
        connection = self._by_fd.pop(fd, None)
        if connection is not None:
            connection.open = False
            connection.end.close()

    def close(self) -> None:
        """To be called before the socket is closed."""
        for fd in list(self._by_fd):
            self._forget(fd)
        self._bound.disable_monitor()
        self._monitor.close()


def _is_first(connection: Connection, user_id: str) -> bool:
    """Whether `user_id` may be the connection's: it has none yet, and the number was given after its acceptance."""
    return not connection.user_id and int(user_id[KEY_CHARACTERS:]) > connection.above


def _duplicate(fd: int) -> socket.socket | None:
    """Duplicate a TCP connection; None if `fd` is not (or no longer) one, or if no descriptor can be had."""
    try:
        copy = os.dup(fd)
    except OSError:
        return None
    try:
        end = socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        return None
    if end.type == socket.SOCK_STREAM and end.family in (socket.AF_INET, socket.AF_INET6):
        return end
    end.close()
    return None


def _tcp_info(end: socket.socket) -> tuple[int, int | None]:
    """The connection's state, and the bytes received so far; None if the kernel does not report these."""
    try:
        return parse_tcp_info(end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RECEIVED_AT + _RECEIVED.size))
    except OSError:
        return _ESTABLISHED, None


def parse_tcp_info(info: bytes) -> tuple[int, int | None]:
    """State and received bytes of the kernel's struct tcp_info, which is longer in newer kernels.

    Without even a state a connection counts as established: libzmq reports its end.
    """
    state = info[0] if info else _ESTABLISHED
    if len(info) < _RECEIVED_AT + _RECEIVED.size:
        return state, None
    return state, int(_RECEIVED.unpack_from(info, _RECEIVED_AT)[0])


def _in_kernel_bytes(end: socket.socket) -> float:
    """Bytes received and not read by libzmq yet, which stops reading while its queue of messages is full.

    Infinite if the kernel does not report them: then the client is not cut off.
    """
    try:
        return queued_bytes(end.fileno(), termios.FIONREAD)
    except OSError:
        return math.inf
