"""Direct lines: requests of clients on this host, and their answers, without ZeroMQ.

ZeroMQ has threads of its own, which wake at both ends for each message. A client that knows the socket for shared
memory (see `sharing`) may have a line there. What it sends is taken as if it had come through the public socket, and
its answers go through the same outbox.
"""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Iterator
from typing import Final

from shisha_rt.daemon.front.gateway import Arrived, Gateway
from shisha_rt.daemon.front.public_socket import Message
from shisha_rt.daemon.loop.poller import SHARE_S, Poller
from shisha_rt.errors import Error
from shisha_rt.process.channel import LARGEST_BYTES, Channel, ChannelBroken
from shisha_rt.protocol.exceptions import error_for
from shisha_rt.protocol.limits import REFUSED_BYTES
from shisha_rt.protocol.line import unpack
from shisha_rt.protocol.multipart import are_descriptors_left

_AT_ONCE: Final = 64
"""Most readable lines that one poll reports."""
_SPARE_DESCRIPTORS: Final = 32
"""With fewer left, each message is peeked at first: a large one comes in a descriptor, and would be lost without."""
_MOST_UNREAD_BYTES: Final = 16 << 20
"""Most bytes of large answers in one line's socket; further answers wait in the outbox, under its limits."""


class Lines:
    """The direct lines, at most `most`. The loop polls all as one descriptor, so they share one turn's time."""

    def __init__(self, gateway: Gateway, poller: Poller, most: int) -> None:
        limits = gateway.limits
        self._gateway = gateway
        self._poller = poller
        self._largest_bytes = limits.max_message_bytes + limits.max_header_bytes + REFUSED_BYTES
        fits = max(self._largest_bytes, limits.max_answer_bytes + limits.max_header_bytes) <= LARGEST_BYTES
        # With keys there are no lines: the key that identifies a client belongs to its ZeroMQ connection.
        self._most = most if fits and gateway.security is None else 0
        self._lines: dict[int, tuple[Channel, int]] = {}
        self._ready: deque[int] = deque()  # descriptors of lines that have not been read since they were reported
        self._put_off: list[int] = []  # lines whose next message brings a descriptor, while this process has none free
        self._peeks = False
        self._epoll = select.epoll()
        poller.watch(self._epoll.fileno(), self.read)

    @property
    def pids(self) -> set[int]:
        return {process for _, process in self._lines.values()}

    @property
    def has_room(self) -> bool:
        return len(self._lines) < self._most

    def look(self) -> None:
        """Called periodically: note whether descriptors are short, and read again the lines that wait for one."""
        self._peeks = bool(self._lines) and not are_descriptors_left(_SPARE_DESCRIPTORS)
        for fd in self._put_off:
            self._epoll.register(fd, select.EPOLLIN)
        self._put_off.clear()

    def add(self, end: socket.socket, process: int) -> None:
        """Make a line of a connection from `process`, and own it."""
        fd = end.fileno()
        channel = Channel(end, largest_bytes=self._largest_bytes, most_unread_bytes=_MOST_UNREAD_BYTES)
        self._lines[fd] = channel, process
        self._epoll.register(fd, select.EPOLLIN)

    def read(self) -> Iterator[Arrived]:
        """Yield requests that have come, one of each line in turn, until the loop's share of time is used up."""
        ends_s = time.monotonic() + SHARE_S
        while True:
            if not self._ready:
                self._ready.extend([fd for fd, _ in self._epoll.poll(0, _AT_ONCE)])
                if not self._ready:
                    return
            arrived = self._read(self._ready.popleft())
            if arrived is not None:
                yield arrived
            if time.monotonic() >= ends_s:
                return

    def _read(self, fd: int) -> Arrived | None:
        line, _ = self._lines[fd]
        line.peeks = self._peeks
        try:
            data = line.take()
        except ChannelBroken:
            data = None
        if not line.open or line.beside:  # closed, or misused: no request brings a descriptor of its own
            self._end(fd)
            return None
        if data is None:
            if line.lacks_descriptor:  # the line stays readable, so the loop would try again without end
                self._epoll.unregister(fd)
                self._put_off.append(fd)
            return None
        if self._gateway.leaves_unread(line):
            return None
        try:
            message = Message(line, [], unpack(data))
        except ValueError as error:
            malformed = error_for(Error.MALFORMED_REQUEST, f"the message is not understood: {error}")
            self._gateway.refuse(Message(line, [], []), malformed)
            return None
        return self._gateway.take(message)

    def _end(self, fd: int) -> None:
        line, _ = self._lines.pop(fd)
        self._epoll.unregister(fd)
        line.close()
        self._gateway.unfollow(line)

    def close(self) -> None:
        self.look()  # registers lines that are put off, as `_end` expects
        for fd in list(self._lines):
            self._end(fd)
        self._poller.unwatch(self._epoll.fileno())
        self._epoll.close()
