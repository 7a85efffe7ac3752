"""Answers on their way to clients that may be slow, or gone.

The socket never blocks. What a client's queue does not take waits here; beyond a client's room, and for one that has
left, answers are counted as undeliverable and dropped. Room is shared out as in `lifecycle.streams`: a client may keep
as much as nobody keeps, so one alone has half of all. Its first answer waits however large it is.

ZeroMQ does not say of which client's queue there is room again, only (by the socket's descriptor, which ends the
loop's wait) that something has changed. So after a change all are tried again, but not more often than every
`AGAIN_S`; a change may go unnoticed among others, hence the longer interval without one.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import zmq

from shisha_rt.wire.multipart import send_parts

AGAIN_S: Final = 0.02
UNASKED_S: Final = 0.1
_ENTRY_BYTES: Final = 512  # of memory for an answer that waits, however short it is


class Outbox:
    """Sends multipart messages, each starting with the client's identity, over a ROUTER socket.

    `limit_bytes`: what waits for one client alone; for all together, twice as much.
    """

    def __init__(self, socket: zmq.Socket[bytes], limit_bytes: int, undeliverable: Callable[[], None]) -> None:
        self._socket = socket
        self._limit_bytes = limit_bytes
        self._undeliverable = undeliverable
        self._waiting: dict[bytes, deque[Sequence[bytes]]] = {}
        self._bytes: dict[bytes, int] = {}
        self._all_bytes = 0
        self._tried_s = -math.inf
        self._stirred = False

    @property
    def empty(self) -> bool:
        return not self._waiting

    def is_full(self, client: bytes) -> bool:
        """Whether the client has left so much unread that not even a short answer could wait for it."""
        return client in self._bytes and not self._has_room(client, _ENTRY_BYTES)

    def send(self, parts: Sequence[bytes]) -> None:
        """Send now if the client takes it, else keep it; order is kept for each client."""
        client = parts[0]
        if client not in self._waiting and self._try(parts):
            return
        size = _size_bytes(parts)
        is_first = client not in self._waiting and self._all_bytes < 2 * self._limit_bytes  # it waits however large
        if not (is_first or self._has_room(client, size)):
            self._undeliverable()
            return
        self._waiting.setdefault(client, deque()).append(parts)
        self._bytes[client] = self._bytes.get(client, 0) + size
        self._all_bytes += size

    def _has_room(self, client: bytes, size: int) -> bool:
        return self._bytes.get(client, 0) + size <= 2 * self._limit_bytes - self._all_bytes - size

    def wake_s(self) -> float:
        """When `flush` has something to do, if nothing else happens."""
        if self.empty:
            return math.inf
        return self._tried_s + (AGAIN_S if self._stirred else UNASKED_S)

    def flush(self, now_s: float) -> None:
        """Something may have changed: try again what waits, unless that was a moment ago."""
        if self.empty:
            return
        if now_s < self._tried_s + AGAIN_S:
            self._stirred = True
            return
        self._tried_s, self._stirred = now_s, False
        for client, queue in list(self._waiting.items()):
            while queue and self._try(queue[0]):
                size = _size_bytes(queue.popleft())
                self._bytes[client] -= size
                self._all_bytes -= size
            if not queue:
                del self._waiting[client], self._bytes[client]

    def _try(self, parts: Sequence[bytes]) -> bool:
        """False if the client's queue is full. A client that is gone takes everything, and gets nothing."""
        try:
            send_parts(self._socket, parts, copy=False)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            self._undeliverable()
        return True


def _size_bytes(parts: Sequence[bytes]) -> int:
    return _ENTRY_BYTES + sum(map(len, parts))
