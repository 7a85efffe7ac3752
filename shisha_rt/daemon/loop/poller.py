"""The poller of the daemon's loop: descriptors, each with a function that reads from it.

A ZeroMQ socket's descriptor is edge-triggered: it says that something changed, not that something can be read, and
whatever is done with the socket uses that up. So a socket is asked when its descriptor ends a wait, and before the next
wait if anything has been read from it or sent by it (`stir`). Asking takes two system calls.
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
"""Reads what has come, and returns it as events."""

SHARE_S: Final = 0.00025
"""Time in a turn of the loop for each socket, and for all other descriptors together: turns are short (R10)."""
_AT_ONCE: Final = 64
"""Most descriptors that one wait reports."""
_GONE: Final[tuple[None, Read]] = (None, tuple)
"""In place of a socket that is not watched any more, and of the function that reads from it."""


class Poller:
    """`watch` and `unwatch` may be called while events are handled, also for the descriptor that they came from."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._readers: dict[int, Read] = {}
        self._sockets: dict[int, tuple[zmq.Socket[bytes], Read]] = {}
        self._stirred: set[int] = set()  # sockets to be asked before the next wait
        self._ready: deque[int] = deque()  # descriptors that waits reported, and that have not been read yet

    def watch(self, fd: int, read: Read) -> None:
        self._epoll.register(fd, select.EPOLLIN)
        self._readers[fd] = read

    def unwatch(self, fd: int) -> None:
        """Stop watching a descriptor or socket, if it is watched. Must be called before that is closed."""
        if self._readers.pop(fd, None) is None and self._sockets.pop(fd, None) is None:
            return
        self._stirred.discard(fd)
        self._epoll.unregister(fd)
        if fd in self._ready:  # its number may soon be reused
            self._ready.remove(fd)

    def watch_socket(self, socket: zmq.Socket[bytes], read: Read) -> None:
        fd = int(socket.fileno())
        self._sockets[fd] = socket, read
        self._epoll.register(fd, select.EPOLLIN)
        self.stir(fd)

    def stir(self, fd: int) -> None:
        """To be called when a watched socket sends: its descriptor may not say any more that something has come."""
        self._stirred.add(fd)

    def poll(self, wait_s: float) -> Iterator[object]:
        """Yield the events of a turn, each to be handled before the next is asked for.

        Waits for at most `wait_s` if there is nothing to read. Each socket has a share of the turn, and all other
        descriptors have one together. All descriptors that a wait reported are read before the next wait, over several
        turns if need be: so none starves.
        """
        asked, many = False, True
        for fd in tuple(self._stirred):
            self._stirred.discard(fd)
            socket, read = self._sockets.get(fd, _GONE)
            if socket is not None and can_be_read(socket):
                asked, wait_s = True, 0.0
                self.stir(fd)
                yield from _share(read())
        share_ends_s = math.inf
        while True:
            if not self._ready:  # a wait that reported just one descriptor is not repeated: it would seldom report more
                if many:
                    self._ready.extend([fd for fd, _ in self._epoll.poll(wait_s, _AT_ONCE)])
                if not self._ready:
                    return
                many = len(self._ready) > 1
            share_ends_s = min(share_ends_s, time.monotonic() + SHARE_S)
            wait_s = 0.0
            fd = self._ready.popleft()
            read_next = self._readers.get(fd)
            if read_next is not None:
                yield from read_next()
            elif asked:  # a ZeroMQ socket, which is read in another turn
                self.stir(fd)
                if not self._ready:
                    return
            else:
                asked = True
                socket, read = self._sockets[fd]
                if can_be_read(socket):
                    self.stir(fd)
                    yield from _share(read())
            if time.monotonic() >= share_ends_s:
                return

    def close(self) -> None:
        self._epoll.close()


def _share(events: Iterable[object]) -> Iterator[object]:
    """Yield as many events as a turn has time for."""
    share_ends_s = time.monotonic() + SHARE_S
    for event in events:
        yield event
        if time.monotonic() >= share_ends_s:
            return
