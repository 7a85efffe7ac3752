"""Answers on their way to clients that may be slow, or gone.

Where there are keys a client is one connection, and an answer is for nobody else. A routing id may have become another
user's: it is free as soon as its connection has gone, and clients may choose theirs. So only when libzmq has settled by
the first part where a message goes (and it settles it then, once and for all) is it looked at whether the connection is
still there; if not, the message ends with an error that says nothing.

The socket never blocks. What a client's queue does not take waits here; beyond a client's room, and for one that has
left, answers are counted as undeliverable and dropped. Room is shared out as `core.fair_share`
says; a client's first answer waits however large it is.

ZeroMQ does not say of which client's queue there is room again, only (by the socket's descriptor, which ends the
loop's wait) that something has changed. So after a change all are tried again, as often as that takes a small part of
the loop's time: whoever reads large answers as they come is not to wait for them. A change may go unnoticed among
others: without one all are tried at intervals that grow as long as nobody takes anything.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final

import zmq

from shisha_rt.core.fair_share import is_granted
from shisha_rt.daemon.front.connections import Connection
from shisha_rt.errors import Error
from shisha_rt.protocol.exceptions import error_for
from shisha_rt.protocol.header import encode_error
from shisha_rt.protocol.multipart import send_parts

LEAST_AGAIN_S: Final = 0.0005
UNASKED_S: Final = 0.1
"""The longest interval without a change."""
_PART_OF_LOOP: Final = 0.05
"""Of the loop's time, at most, is taken by trying again."""
_ENTRY_BYTES: Final = 512  # of memory for an answer that waits, however short it is
_FIRST: Final = int(zmq.DONTWAIT | zmq.SNDMORE)
_NOT_FOR_YOU: Final = encode_error(None, error_for(Error.RECEIVER_GONE, "whom this was for has gone"))


class Outbox:
    """Sends multipart messages, each starting with the client's routing id, over a ROUTER socket.

    `limit_bytes`: what waits for one client alone; for all together, twice as much. `is_open` says of a client that is
    a connection whether it is still there.
    """

    def __init__(
        self,
        socket: zmq.Socket[bytes],
        limit_bytes: int,
        undeliverable: Callable[[], None],
        is_open: Callable[[Connection], bool] = lambda _: True,
    ) -> None:
        self._socket = socket
        self._limit_bytes = limit_bytes
        self._undeliverable = undeliverable
        self._is_open = is_open
        self._waiting: dict[Hashable, deque[Sequence[bytes]]] = {}
        self._bytes: dict[Hashable, int] = {}
        self._all_bytes = 0
        self._tried_s = self._again_s = -math.inf
        self._unasked_s = LEAST_AGAIN_S
        self._stirred = False

    @property
    def empty(self) -> bool:
        return not self._waiting

    @property
    def clients(self) -> Iterable[Hashable]:
        """Clients for whom something waits."""
        return self._waiting.keys()

    def is_full(self, client: Hashable) -> bool:
        """Whether the client has left so much unread that not even a short answer could wait for it."""
        return client in self._bytes and not self._has_room(client, _ENTRY_BYTES)

    def send(self, client: Hashable, parts: Sequence[bytes]) -> None:
        """Send now if the client takes it, else keep it; order is kept for each client."""
        if client not in self._waiting and self._try(client, parts):
            return
        size = _size_bytes(parts)
        is_first = client not in self._waiting and self._all_bytes < 2 * self._limit_bytes  # it waits however large
        if not (is_first or self._has_room(client, size)):
            self._undeliverable()
            return
        self._waiting.setdefault(client, deque()).append(parts)
        self._bytes[client] = self._bytes.get(client, 0) + size
        self._all_bytes += size

    def _has_room(self, client: Hashable, size: int) -> bool:
        held = self._bytes.get(client, 0)
        return is_granted(size, held=held, held_by_all=self._all_bytes, room=2 * self._limit_bytes)

    def wake_s(self) -> float:
        """When `flush` has something to do, if nothing else happens."""
        if self.empty:
            return math.inf
        return self._again_s if self._stirred else max(self._again_s, self._tried_s + self._unasked_s)

    def flush(self, now_s: float) -> None:
        """Something may have changed: try again what waits, unless that was a moment ago."""
        if self.empty:
            return
        if now_s < self._again_s:
            self._stirred = True
            return
        began_s, before_bytes = time.monotonic(), self._all_bytes
        self._try_all()
        took_s = time.monotonic() - began_s
        self._tried_s, self._again_s, self._stirred = now_s, now_s + max(LEAST_AGAIN_S, took_s / _PART_OF_LOOP), False
        self._unasked_s = LEAST_AGAIN_S if self._all_bytes < before_bytes else min(UNASKED_S, 2 * self._unasked_s)

    def _try_all(self) -> None:
        for client, queue in list(self._waiting.items()):
            while queue and self._try(client, queue[0]):
                size = _size_bytes(queue.popleft())
                self._bytes[client] -= size
                self._all_bytes -= size
            if not queue:
                del self._waiting[client], self._bytes[client]

    def _try(self, client: Hashable, parts: Sequence[bytes]) -> bool:
        """False if the client's queue is full. A client that is gone takes everything, and gets nothing."""
        try:
            if isinstance(client, Connection):
                self._send_to(client, parts)
            else:
                send_parts(self._socket, parts, copy=False)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            self._undeliverable()
        return True

    def _send_to(self, connection: Connection, parts: Sequence[bytes]) -> None:
        if connection.open:
            self._socket.send(parts[0], _FIRST)
            if self._is_open(connection):
                send_parts(self._socket, parts[1:], copy=False)
                return
            self._socket.send(_NOT_FOR_YOU)
        self._undeliverable()


def _size_bytes(parts: Sequence[bytes]) -> int:
    return _ENTRY_BYTES + sum(map(len, parts))
