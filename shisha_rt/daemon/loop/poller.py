"""What the daemon's loop waits for: descriptors, each with what is to be read there when it can be.

A ZeroMQ socket's descriptor is edge-triggered: it says that something changed, not that something is there. So those
are asked directly before each wait, and their descriptors only end it.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

import zmq

Read: TypeAlias = Callable[[], Iterable[object]]
"""Reads what has come, and makes events of it."""

_READ_PER_TURN: Final = 4
"""Descriptors: a turn of the loop is to be short (R10), however many can be read. The kernel takes them in turns."""


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
        self.watch(socket.fileno(), _nothing)

    def poll(self, wait_s: float) -> Iterator[object]:
        """The events of some of what can be read, each to be handled before the next.

        Waits for at most `wait_s` if there is nothing.
        """
        for socket, read in self._sockets:
            if int(socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
                yield from read()
                wait_s = 0.0
        found = [(fd, self._readers.get(fd)) for fd, _ in self._epoll.poll(wait_s, _READ_PER_TURN)]
        for fd, reader in found:
            # An earlier event of this turn may have ended it, and its number may be another's by now.
            if reader is not None and self._readers.get(fd) is reader:
                yield from reader()

    def close(self) -> None:
        self._epoll.close()


def _nothing() -> Iterable[object]:
    """The socket is asked at the next turn."""
    return ()
