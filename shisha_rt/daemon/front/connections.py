"""The connections behind the public socket, watched for a message that goes on beyond its size.

libzmq holds the parts of a message until the last one has come, however many come (its limits are on one part, and on
how many whole messages wait). Nothing of it is to be seen at the socket, so what the kernel has received of each
connection is compared with when a message was last read from it: a client that has sent more since than it may have
waiting is cut off. What it has sent by then is at most that much and what comes between two looks.

Of many connections a look is at some, and all have their turn: else a thousand take more of the loop than all frames.

Only TCP counts what was received. On an ipc endpoint, which only this user's own programs reach, nothing is watched.
Nor is it where the kernel does not tell what it counts (old ones, sandboxes, emulators): then only the size of each
part of a message is limited, not their number, which is said once.

Where there are keys, a message is also traced to its connection for certain, by the number that the connection was
given at its handshake; a descriptor may by then be the next one's.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
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

from shisha_rt.protocol.multipart import can_be_read

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 0.02
IDLE_LOOK_EVERY_S: Final = 0.1
LOOKED_AT: Final = 128
"""Connections in one look."""
_HEARTBEATS_BYTES_PER_S: Final = 1024
"""Of ZeroMQ's own, which are received and are no messages."""
_LAST_ANSWERS_S: Final = 0.2
"""For so long what has been sent to whoever is sent away may be on its way to the kernel."""
_TO_LEAVE_S: Final = 2.0
KEY_CHARACTERS: Final = 40
_SRCFD: Final = int(zmq.SRCFD)
_ESTABLISHED: Final = 1
_AT_ONCE: Final = struct.pack("ii", 1, 0)
_RECEIVED: Final = struct.Struct("=Q")
_RECEIVED_AT: Final = 128  # tcpi_bytes_received in the kernel's struct tcp_info
_MONITOR_EVENT: Final = struct.Struct("=Hi")
"""As zmq_socket_monitor(3) has it: the event, and its value. pyzmq's own reader of it brings asyncio along."""
_BROKEN_OFF: Final = frozenset({zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL})


@dataclass(slots=True, eq=False)
class Connection:
    """`end` is a descriptor of our own: libzmq's may be another connection's by the time that it is looked at.

    `received_bytes` at `since_s`, when a message had last been read from it; `heard`: one has been since the last look.
    With keys: `user_id` is that of its handshake, known from its first message on: a `key` and a number above `above`.
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
    """Those of a socket about to be bound. `allowed_bytes`: what one may have sent and nobody has read as messages.

    `broken_off` is called for each handshake that ended before anybody was asked who it is.
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
        self._to_look_at: list[int] = []  # those whose turn is still to come, the next one last
        self._leaving: dict[Connection, float] = {}  # since when they have had nothing to wait for
        self._number = 0
        self._said = False
        self._look_s = 0.0
        self._bound = bound
        events = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED
        if broken_off is not None:
            events |= zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
        # pyzmq's own name is made of a descriptor, which may be in use again before the name is free.
        self._monitor: zmq.Socket[bytes] = bound.get_monitor_socket(events, f"inproc://watch-{uuid.uuid4().hex}")
        self._monitor.linger = 0

    def heard(self, frame: zmq.Frame) -> bool:
        """A message has been read; this is one of its parts. False: libzmq does not say which connection it came by, as
        with peers that speak a ZMTP older than 3.0.
        """
        try:
            fd = frame.get(_SRCFD)
        except zmq.ZMQError:
            return False
        connection = self._by_fd.get(fd)
        if connection is not None:
            connection.heard = True
        return True

    def new_user_id(self, key: str) -> str:
        """Return an id for a connection whose handshake is under way, and so has been accepted.

        Its key and a new number.
        """
        self._take_events(time.monotonic())
        self._number += 1
        return f"{key}{self._number}"

    def sender(self, frame: zmq.Frame) -> Connection | None:
        """The connection that a message came by, of which this is a part; None: it has gone."""
        connection = self._by_fd.get(frame.get(_SRCFD))
        user_id = str(frame.get("User-Id"))
        if connection is None or (connection.user_id != user_id and not _is_first(connection, user_id)):
            return None
        connection.user_id, connection.heard = user_id, True
        return connection

    def is_open(self, connection: Connection) -> bool:
        """Certain at this moment: libzmq tells of an end before it forgets the connection's routing id."""
        if connection.open and can_be_read(self._monitor):
            self._take_events(time.monotonic())
        return connection.open

    def send_away(self, is_known: Callable[[str], object]) -> None:
        """Whose key is not known any more is to go, once there is nothing that it waits for."""
        for connection in self._by_fd.values():
            if connection.user_id and not is_known(connection.key):
                self._leaving.setdefault(connection, math.inf)

    def see_off(self, now_s: float, waiting: Callable[[], Collection[object]]) -> None:
        """End the connections of those sent away, but for those that still have something coming."""
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
                with contextlib.suppress(OSError):  # it hears of the end behind all that was sent to it
                    connection.end.shutdown(socket.SHUT_WR)

    def fileno(self) -> int:
        """Descriptor that becomes readable when a connection has come or gone; `stirred` is to be called then."""
        return int(self._monitor.fileno())

    def stirred(self) -> Iterable[object]:
        self._look_s = 0.0
        return ()

    def rest(self, now_s: float) -> bool:
        """Whether no look is due, and nobody is on the way out."""
        return now_s < self._look_s and not self._leaving

    def wake_s(self) -> float:
        """When the next look is due."""
        return self._look_s if self._by_fd or not self._look_s else math.inf

    def look(self, now_s: float) -> None:
        """Every so often: cut off whoever has sent too much for a message."""
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
            if state != _ESTABLISHED and connection not in self._leaving:  # nothing comes any more, and libzmq knows
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
        with contextlib.suppress(OSError):  # it has just gone by itself
            connection.end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)  # reset, and not drained
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
        """A connection is over only when our descriptor of it is closed, too."""
        connection = self._by_fd.pop(fd, None)
        if connection is not None:
            connection.open = False
            connection.end.close()

    def close(self) -> None:
        """Before the socket is closed."""
        for fd in list(self._by_fd):
            self._forget(fd)
        self._bound.disable_monitor()
        self._monitor.close()


def _is_first(connection: Connection, user_id: str) -> bool:
    """Whether it may be the connection's own: its number is not given before it has been accepted."""
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
    """The connection's state, and how many bytes it has received so far; None where the kernel does not say."""
    try:
        return parse_tcp_info(end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RECEIVED_AT + _RECEIVED.size))
    except OSError:
        return _ESTABLISHED, None


def parse_tcp_info(info: bytes) -> tuple[int, int | None]:
    """State and received bytes of the kernel's struct tcp_info, which is as long as the kernel is new.

    A connection of which not even the state is told counts as established: libzmq will tell of its end.
    """
    state = info[0] if info else _ESTABLISHED
    if len(info) < _RECEIVED_AT + _RECEIVED.size:
        return state, None
    return state, int(_RECEIVED.unpack_from(info, _RECEIVED_AT)[0])


def _in_kernel_bytes(end: socket.socket) -> float:
    """Received, and not read by libzmq, which reads no more while as many messages wait as may.

    Infinite where the kernel does not say: then nobody is cut off for it.
    """
    unread = array.array("i", [0])
    try:
        fcntl.ioctl(end, termios.FIONREAD, unread)
    except OSError:
        return math.inf
    return unread[0]
