"""Answers on their way to clients that may be slow, or gone.

With keys a client is one connection, and its answers must not reach anybody else. But its routing id may have become
another user's: an id is free as soon as its connection has gone, and clients may choose theirs. libzmq fixes where a
message goes when its first part is sent. So the connection is checked after the first part: if it has gone, the message
ends with an error that reveals nothing.

The socket never blocks. An answer that a client's queue does not take waits here. Answers beyond a client's share of
memory, and answers to clients that have left, are counted as undeliverable and dropped. Memory is shared out as
`core.fair_share` says; a client's first answer waits however large it is, unless other answers use all memory.

ZeroMQ does not report which client's queue has space again, only (by the socket's descriptor, which ends the loop's
wait) that something has changed. So after a change all waiting answers are tried again, soon enough for clients that
read large answers as they come, and as often as a small part of the loop's time allows. A change may go unnoticed:
without one, answers are tried again at intervals, which grow as long as no client takes anything.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Final

import zmq

from shisha_rt.core.fair_share import is_granted
from shisha_rt.daemon.front.connections import Connection
from shisha_rt.errors import Error
from shisha_rt.process.channel import Channel, ChannelBroken
from shisha_rt.protocol.exceptions import error_for
from shisha_rt.protocol.header import encode_error
from shisha_rt.protocol.line import pack
from shisha_rt.protocol.multipart import send_parts

LEAST_AGAIN_S: Final = 0.0005
UNASKED_S: Final = 0.1
"""Longest interval between tries without a change."""
_PART_OF_LOOP: Final = 0.05
"""Largest part of the loop's time that trying again may take."""
_ENTRY_BYTES: Final = 512  # memory overhead of each waiting answer
_FIRST: Final = int(zmq.DONTWAIT | zmq.SNDMORE)
_NOT_FOR_YOU: Final = encode_error(None, error_for(Error.RECEIVER_GONE, "whom this was for has gone"))


class Outbox:
    """Sends multipart messages, each starting with the client's routing id, over a ROUTER socket. A client with a
    direct line is a `Channel`, and is sent its messages over that.

    `limit_bytes`: how much may wait for a client if nothing waits for others; for all together, twice as much.
    `is_open`: whether a client that is a `Connection` is still there. `waiting`: answers by client, none of them empty.
    `stir`: called when the socket is used, as by `Poller.stir`.
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
        self.waiting: dict[Hashable, deque[Sequence[bytes]]] = {}
        self._bytes: dict[Hashable, int] = {}
        self._all_bytes = 0
        self._tried_s = self._again_s = -math.inf  # the last try, and the earliest time for the next
        self._unasked_s = LEAST_AGAIN_S  # interval between tries without a change
        self._changed = False  # since the last try
        self.stir: Callable[[], None] = lambda: None

    def is_full(self, client: Hashable) -> bool:
        """Whether the client has left so much unread that not even a short answer could wait for it."""
        return client in self._bytes and not self._has_room(client, _ENTRY_BYTES)

    def send(self, client: Hashable, parts: Sequence[bytes]) -> bool:
        """Send now if the client takes it, else keep it; order is kept for each client. False: there is no room."""
        if client not in self.waiting and self._try(client, parts):
            return True
        size = _size_bytes(parts)
        is_first = client not in self.waiting and self._all_bytes < 2 * self._limit_bytes  # waits however large
        if not (is_first or self._has_room(client, size)):
            self._undeliverable()
            return False
        self.waiting.setdefault(client, deque()).append(parts)
        self._bytes[client] = self._bytes.get(client, 0) + size
        self._all_bytes += size
        return True

    def _has_room(self, client: Hashable, size: int) -> bool:
        held = self._bytes.get(client, 0)
        return is_granted(size, held=held, held_by_all=self._all_bytes, room=2 * self._limit_bytes)

    def wake_s(self) -> float:
        """When `flush` is due next, if nothing else happens."""
        if not self.waiting:
            return math.inf
        return self._again_s if self._changed else max(self._again_s, self._tried_s + self._unasked_s)

    def flush(self, now_s: float) -> None:
        """Try waiting answers again, as something may have changed, unless they were tried a moment ago."""
        if not self.waiting:
            return
        if now_s < self._again_s:
            self._changed = True
            return
        began_s, before_bytes = time.monotonic(), self._all_bytes
        self._try_all()
        took_s = time.monotonic() - began_s
        self._tried_s, self._again_s, self._changed = now_s, now_s + max(LEAST_AGAIN_S, took_s / _PART_OF_LOOP), False
        self._unasked_s = LEAST_AGAIN_S if self._all_bytes < before_bytes else min(UNASKED_S, 2 * self._unasked_s)

    def _try_all(self) -> None:
        for client, queue in list(self.waiting.items()):
            while queue and self._try(client, queue[0]):
                size = _size_bytes(queue.popleft())
                self._bytes[client] -= size
                self._all_bytes -= size
            if not queue:
                del self.waiting[client], self._bytes[client]

    def _try(self, client: Hashable, parts: Sequence[bytes]) -> bool:
        """Send an answer, or drop it if the client is gone; False if the client's queue is full."""
        try:
            if isinstance(client, Channel):
                return client.try_send(pack(parts))
            self.stir()
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
        except ChannelBroken:
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
