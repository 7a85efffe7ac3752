"""What the daemon's loop waits for: descriptors, each with what to do when it can be read.

A ZeroMQ socket's descriptor is edge-triggered: it says that something changed, not that something is there. So those
are asked directly before each wait, and their descriptors only end it.
"""

from __future__ import annotations

import select
from collections.abc import Callable

import zmq


class Poller:
    """`watch` and `unwatch` may be called from a handler, also for the descriptor that it handles."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[], None]] = {}
        self._sockets: list[tuple[zmq.Socket[bytes], Callable[[], None]]] = []

    def watch(self, fd: int, handler: Callable[[], None]) -> None:
        self._handlers[fd] = handler
        self._epoll.register(fd, select.EPOLLIN)

    def unwatch(self, fd: int) -> None:
        """Must be called before the descriptor is closed."""
        del self._handlers[fd]
        self._epoll.unregister(fd)

    def watches(self, fd: int) -> bool:
        return fd in self._handlers

    def watch_socket(self, socket: zmq.Socket[bytes], handler: Callable[[], None]) -> None:
        self._sockets.append((socket, handler))
        self.watch(socket.fileno(), _nothing)

    def poll(self, wait_s: float) -> None:
        """Run the handlers of what can be read; if nothing can, wait for at most `wait_s`."""
        for socket, handler in self._sockets:
            if int(socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
                handler()
                wait_s = 0.0
        for fd, _ in self._epoll.poll(wait_s):
            handler_of_fd = self._handlers.get(fd)  # gone, if an earlier handler of this turn has ended it
            if handler_of_fd is not None:
                handler_of_fd()

    def close(self) -> None:
        self._epoll.close()


def _nothing() -> None:
    """The socket is asked at the next turn."""
