"""What the daemon's loop waits for: descriptors, each with what is to be read there when it can be.

A ZeroMQ socket's descriptor is edge-triggered: it says that something changed, not that something is there. So those
are asked directly before each wait, and their descriptors only end it.
"""

from __future__ import annotations

import math
import select
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

import zmq

Read: TypeAlias = Callable[[], Iterable[object]]
"""Reads what has come, and makes events of it."""

_SHARE_S: Final = 0.00025
"""After this long no more requests are read in a turn of the loop, nor other descriptors: turns are short (R10)."""


class Poller:
    """`watch` and `unwatch` may be called while events are handled, also for the descriptor that they came from."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._readers: dict[int, Read] = {}
        self._sockets: list[tuple[zmq.Socket[bytes], Read]] = []

    def watch(self, fd: int, read: Read) -> None:
        self._epoll.register(fd, select.EPOLLIN)
        self._readers[fd] = read

    def unwatch(self, fd: int) -> None:
        """Must be called before the descriptor is closed. One that is not watched is left alone."""
        if self._readers.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def watch_socket(self, socket: zmq.Socket[bytes], read: Read) -> None:
        self._sockets.append((socket, read))
        self._epoll.register(socket.fileno(), select.EPOLLIN)

    def poll(self, wait_s: float) -> Iterator[object]:
        """The events of what can be read, each to be handled before the next, for as long as a turn may last.

        Waits for at most `wait_s` if there is nothing. Sockets and all else have a share of the turn each, and of the
        rest descriptors come one by one: the kernel has them take turns.
        """
        for socket, read in self._sockets:
            if int(socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
                share_ends_s = time.monotonic() + _SHARE_S
                for event in read():
                    yield event
                    if time.monotonic() >= share_ends_s:
                        break
                wait_s = 0.0
        share_ends_s = math.inf
        while found := self._epoll.poll(wait_s, 1):
            read_next = self._readers.get(found[0][0])
            if read_next is None:  # a socket: it is asked at the next turn
                return
            share_ends_s = min(share_ends_s, time.monotonic() + _SHARE_S)
            yield from read_next()
            if time.monotonic() >= share_ends_s:
                return
            wait_s = 0.0

    def close(self) -> None:
        self._epoll.close()
