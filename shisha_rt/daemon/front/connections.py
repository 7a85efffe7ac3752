"""The connections behind the public socket, watched for a message that goes on beyond its size.

libzmq holds the parts of a message until the last one has come, however many come (its limits are on one part, and on
how many whole messages wait). Nothing of it is to be seen at the socket, so what the kernel has received of each
connection is compared with when a message was last read from it: a client that has sent more since than it may have
waiting is cut off. What it has sent by then is at most that much and what comes between two looks.

Only TCP counts what was received. On an ipc endpoint, which only this user's own programs reach, nothing is watched.
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
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import zmq
from zmq.utils.monitor import parse_monitor_message

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 0.02
IDLE_LOOK_EVERY_S: Final = 0.1
_HEARTBEATS_BYTES_PER_S: Final = 1024
"""Of ZeroMQ's own, which are received and are no messages."""
_ESTABLISHED: Final = 1
_AT_ONCE: Final = struct.pack("ii", 1, 0)
_RECEIVED: Final = struct.Struct("=Q")
_RECEIVED_AT: Final = 128  # tcpi_bytes_received in the kernel's struct tcp_info


@dataclass(slots=True)
class _Connection:
    """`end` is a descriptor of our own: libzmq's may be another connection's by the time that it is looked at.

    `received_bytes` at `since_s`, when a message had last been read from it; `heard`: one has been since the last look.
    """

    end: socket.socket
    since_s: float
    received_bytes: int = 0
    heard: bool = False


class Connections:
    """Those of a socket about to be bound. `allowed_bytes`: what one may have sent and nobody has read as messages."""

    def __init__(self, bound: zmq.Socket[bytes], allowed_bytes: int, cut_off: Callable[[], None]) -> None:
        self._allowed_bytes = allowed_bytes
        self._cut_off = cut_off
        self._by_fd: dict[int, _Connection] = {}
        self._look_s = 0.0
        self._bound = bound
        events = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED
        # pyzmq's own name is made of a descriptor, which may be in use again before the name is free.
        self._monitor: zmq.Socket[bytes] = bound.get_monitor_socket(events, f"inproc://watch-{uuid.uuid4().hex}")
        self._monitor.linger = 0

    def heard(self, frame: zmq.Frame) -> bool:
        """A message has been read; this is one of its parts. False: libzmq does not say which connection it came by, as
        with peers that speak a ZMTP older than 3.0.
        """
        try:
            fd = int(frame.get(zmq.SRCFD))
        except zmq.ZMQError:
            return False
        connection = self._by_fd.get(fd)
        if connection is not None:
            connection.heard = True
        return True

    def fileno(self) -> int:
        """Of what tells that one has come or gone: `stirred` is to be called then."""
        return int(self._monitor.fileno())

    def stirred(self) -> Iterable[object]:
        self._look_s = 0.0
        return ()

    def wake_s(self) -> float:
        """When the next look is due."""
        return self._look_s if self._by_fd or not self._look_s else math.inf

    def look(self, now_s: float) -> None:
        """Every so often: cut off whoever has sent too much for a message."""
        if now_s < self._look_s:
            return
        self._take_events(now_s)
        busy = False
        for fd, connection in list(self._by_fd.items()):
            state, received_bytes = _tcp_info(connection.end)
            if state != _ESTABLISHED:  # nothing comes any more, and libzmq knows
                self._forget(fd)
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

    def _cut(self, fd: int, connection: _Connection, unread_bytes: int) -> None:
        log.warning("a client is cut off: it has sent %d bytes of a message that does not end", unread_bytes)
        with contextlib.suppress(OSError):  # it has just gone by itself
            connection.end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)  # reset, and not drained
            connection.end.shutdown(socket.SHUT_RDWR)
        self._forget(fd)
        self._cut_off()

    def _take_events(self, now_s: float) -> None:
        while True:
            try:
                event = parse_monitor_message(self._monitor.recv_multipart(zmq.DONTWAIT))
            except zmq.Again:
                return
            fd = int(event["value"])
            self._forget(fd)
            if event["event"] == zmq.EVENT_ACCEPTED:
                end = _duplicate(fd)
                if end is not None:
                    self._by_fd[fd] = _Connection(end, now_s)

    def _forget(self, fd: int) -> None:
        """A connection is over only when our descriptor of it is closed, too."""
        connection = self._by_fd.pop(fd, None)
        if connection is not None:
            connection.end.close()

    def close(self) -> None:
        """Before the socket is closed."""
        for fd in list(self._by_fd):
            self._forget(fd)
        self._bound.disable_monitor()
        self._monitor.close()


def _duplicate(fd: int) -> socket.socket | None:
    """None for what is no connection of TCP, or not any more, or if there is no descriptor to be had."""
    try:
        end = socket.socket(fileno=os.dup(fd))
    except OSError:
        return None
    if end.type == socket.SOCK_STREAM and end.family in (socket.AF_INET, socket.AF_INET6):
        return end
    end.close()
    return None


def _tcp_info(end: socket.socket) -> tuple[int, int]:
    """The connection's state, and how many bytes it has received so far."""
    info = end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _RECEIVED_AT + _RECEIVED.size)
    return info[0], int(_RECEIVED.unpack_from(info, _RECEIVED_AT)[0])


def _in_kernel_bytes(end: socket.socket) -> int:
    """Received, and not read by libzmq, which reads no more while as many messages wait as may."""
    unread = array.array("i", [0])
    fcntl.ioctl(end, termios.FIONREAD, unread)
    return unread[0]
