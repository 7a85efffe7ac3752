"""What the daemon's loop waits for: descriptors, each with what is to be read there when it can be.

A ZeroMQ socket's descriptor is edge-triggered: it says that something changed, not that something is there. So those
are asked directly before each wait, and when their descriptors end it.
"""

from __future__ import annotations

import math
import select
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

import zmq

from shisha_rt.protocol.multipart import can_be_read

Read: TypeAlias = Callable[[], Iterable[object]]
"""Reads what has come, and makes events of it."""

_SHARE_S: Final = 0.00025
"""After this long no more requests are read in a turn of the loop, nor other descriptors: turns are short (R10)."""
_AT_ONCE: Final = 64
"""Descriptors that one wait tells of at most."""


class Poller:
    """`watch` and `unwatch` may be called while events are handled, also for the descriptor that they came from."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._readers: dict[int, Read] = {}
        self._sockets: dict[int, tuple[zmq.Socket[bytes], Read]] = {}
        self._ready: deque[int] = deque()  # what the last wait told of, and nobody has read yet

    def watch(self, fd: int, read: Read) -> None:
        self._epoll.register(fd, select.EPOLLIN)
        self._readers[fd] = read

    def unwatch(self, fd: int) -> None:
        """Must be called before the descriptor is closed. One that is not watched is left alone."""
        if self._readers.pop(fd, None) is not None:
            self._epoll.unregister(fd)
            if fd in self._ready:  # its number may soon be another's
                self._ready.remove(fd)

    def watch_socket(self, socket: zmq.Socket[bytes], read: Read) -> None:
        fd = int(socket.fileno())
        self._sockets[fd] = socket, read
        self._epoll.register(fd, select.EPOLLIN)

    def unwatch_socket(self, socket: zmq.Socket[bytes]) -> None:
        """Must be called before the socket is closed."""
        fd = int(socket.fileno())
        if self._sockets.pop(fd, None) is not None:
            self._epoll.unregister(fd)
            if fd in self._ready:
                self._ready.remove(fd)

    def poll(self, wait_s: float) -> Iterator[object]:
        """The events of what can be read, each to be handled before the next, for as long as a turn may last.

        Waits for at most `wait_s` if there is nothing. Sockets and all else have a share of the turn each. All that one
        wait has told of is read before the next, if in several turns: so nobody is left out.
        """
        asked, many = False, True
        for fd, watched in tuple(self._sockets.items()):
            if self._sockets.get(fd) is not watched:  # no more; its number may be another's by now
                continue
            socket, read = watched
            if can_be_read(socket):
                asked, wait_s = True, 0.0
                yield from _share(read())
        share_ends_s = math.inf
        while True:
            if not self._ready:  # a wait that told of one alone is seldom followed by another's at once
                if not (many and self._wait(wait_s)):
                    return
                many = len(self._ready) > 1
            share_ends_s = min(share_ends_s, time.monotonic() + _SHARE_S)
            wait_s = 0.0
            fd = self._ready.popleft()
            read_next = self._readers.get(fd)
            if read_next is not None:
                yield from read_next()
            elif not asked:  # a socket: once a turn
                asked = True
                socket, read = self._sockets[fd]
                if can_be_read(socket):
                    yield from _share(read())
            elif len(self._ready) == 0:
                return
            if time.monotonic() >= share_ends_s:
                return

    def _wait(self, wait_s: float) -> bool:
        """Whether there is anything to be read then."""
        self._ready.extend([fd for fd, _ in self._epoll.poll(wait_s, _AT_ONCE)])
        return bool(self._ready)

    def close(self) -> None:
        self._epoll.close()


def _share(events: Iterable[object]) -> Iterator[object]:
    """Yield as many events as a turn has time for."""
    share_ends_s = time.monotonic() + _SHARE_S
    for event in events:
        yield event
        if time.monotonic() >= share_ends_s:
            return
