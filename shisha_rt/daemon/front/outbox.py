"""Answers on their way to clients that may be slow, or gone.

The socket never blocks. What a client's queue does not take waits here, up to a byte limit for each client; beyond
it, and for a client that has left, answers are counted as undeliverable and dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import zmq

_SHARE_FROM_BYTES = 64 << 10  # below this, copying is cheaper than having the buffer tracked


class Outbox:
    """Sends multipart messages, each starting with the client's identity, over a ROUTER socket."""

    def __init__(self, socket: zmq.Socket[bytes], limit_bytes: int, undeliverable: Callable[[], None]) -> None:
        self._socket = socket
        self._limit_bytes = limit_bytes
        self._undeliverable = undeliverable
        self._waiting: dict[bytes, deque[Sequence[bytes]]] = {}
        self._bytes: dict[bytes, int] = {}

    @property
    def empty(self) -> bool:
        return not self._waiting

    def send(self, parts: Sequence[bytes]) -> None:
        """Send now if the client takes it, else keep it; order is kept for each client."""
        client = parts[0]
        if client not in self._waiting and self._try(parts):
            return
        size = sum(map(len, parts))
        if self._bytes.get(client, 0) + size > self._limit_bytes:
            self._undeliverable()
            return
        self._waiting.setdefault(client, deque()).append(parts)
        self._bytes[client] = self._bytes.get(client, 0) + size

    def flush(self) -> None:
        """Try again what waits."""
        for client, queue in list(self._waiting.items()):
            while queue and self._try(queue[0]):
                self._bytes[client] -= sum(map(len, queue.popleft()))
            if not queue:
                del self._waiting[client], self._bytes[client]

    def _try(self, parts: Sequence[bytes]) -> bool:
        """False if the client's queue is full. A client that is gone takes everything, and gets nothing."""
        large = sum(map(len, parts)) >= _SHARE_FROM_BYTES
        try:
            self._socket.send_multipart(parts, zmq.DONTWAIT, copy=not large)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            self._undeliverable()
        return True
