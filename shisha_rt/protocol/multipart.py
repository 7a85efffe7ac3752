"""Send and receive ZeroMQ's multipart messages without blocking, two to three times as fast as pyzmq's functions.

Those query the socket after each part, combine flags each time, and, if one part is large, track the small ones, too.
Shell.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import select
from collections.abc import Sequence
from typing import Any, Final

import zmq
from zmq.utils.garbage import gc as tracking

_NOW: Final = int(zmq.DONTWAIT)  # combining enum members takes microseconds
_MORE: Final = int(zmq.DONTWAIT | zmq.SNDMORE)
_POLLIN: Final = int(zmq.POLLIN)
_send: Final[Any] = zmq.backend.Socket.send
_get: Final[Any] = zmq.backend.Socket.get
"""The functions under `zmq.Socket.send` and `get`, without their checks for socket options that are not used here."""
_SHARE_FROM_BYTES: Final = 64 << 10  # below this, copying is cheaper than having the buffer tracked
CONTEXT_DESCRIPTORS: Final = 16
"""More than a new ZeroMQ context and its first two sockets take; with fewer, libzmq may abort the process."""
_LEAST_OF_A_DAEMON: Final = 40


def can_be_read(socket: zmq.Socket[bytes]) -> bool:
    """Whether a message has come. Asking takes a quarter of the time of reading's exception if none has."""
    return bool(_get(socket, zmq.EVENTS) & _POLLIN)


def receive_parts(socket: zmq.Socket[bytes]) -> list[zmq.Frame]:
    """Read the next message. Raises `zmq.Again` if none has come."""
    frame = socket.recv(_NOW, False)
    frames = [frame]
    while frame.more:
        frame = socket.recv(_NOW, False)
        frames.append(frame)
    return frames


def send_parts(socket: zmq.Socket[bytes], parts: Sequence[bytes | bytearray | memoryview], *, copy: bool) -> None:
    """Send a message. Raises `zmq.ZMQError` (`zmq.Again` if the queue is full) at the first part, so nothing is sent.

    With `copy`, parts may change once this has returned; otherwise large parts are sent without a copy.
    """
    whole = parts if copy else [part if len(part) < _SHARE_FROM_BYTES else _shared(part) for part in parts]
    *first, last = whole
    for part in first:
        _send(socket, part, _MORE, not isinstance(part, zmq.Frame))
    _send(socket, last, _NOW, not isinstance(last, zmq.Frame))


def _shared(part: bytes | bytearray | memoryview) -> zmq.Frame | bytes | bytearray | memoryview:
    """A frame that refers to `part`; `part`, to be copied, where pyzmq lacks descriptors to begin to track it."""
    if not tracking.is_alive() and not are_descriptors_left(CONTEXT_DESCRIPTORS):
        return part
    try:
        return zmq.Frame(part)
    except (OSError, zmq.ZMQError):
        return part


def expect_descriptors() -> None:
    """Raises OSError if this process may not open as many files as any daemon needs; else libzmq may abort it."""
    if not are_descriptors_left(_LEAST_OF_A_DAEMON):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def are_descriptors_left(count: int) -> bool:
    """Whether this process may open `count` more files.

    Nearly always its last `count` numbers are free, which one call of the kernel tells; one file is then opened, as the
    host may have no more for anybody.
    """
    try:
        with contextlib.ExitStack() as closing:
            for _ in range(1 if _are_free_at_the_end(count) else count):
                closing.callback(os.close, os.eventfd(0))
    except OSError:
        return False
    return True


def _are_free_at_the_end(count: int) -> bool:
    """Whether the last `count` of the numbers that this process's descriptors may have are all free."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit < count:
        return False
    last = select.poll()
    for number in range(limit - count, limit):
        last.register(number)
    return sum(event == select.POLLNVAL for _, event in last.poll(0)) == count
