"""The two ends of the line between the daemon and one worker: a pair of connected datagram sockets.

SOCK_SEQPACKET keeps messages apart and in order and says when the other end is gone. The pair has no name: nothing
to bind, to guess or to sweep, and each incarnation has its own, so a message for a dead worker can never reach its
successor. (Through ZeroMQ, whose input and output threads then compete with the stages for the cores, the same
messages took about 150 us more of CPU a frame.)
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Final

_LARGEST_MESSAGE_BYTES: Final = 64 << 10


class Channel:
    """One end. `open` until the other end is seen to be gone."""

    def __init__(self, end: socket.socket, *, blocking: bool) -> None:
        self._end = end
        self._end.setblocking(blocking)
        self.open = True

    @classmethod
    def pair(cls) -> tuple[Channel, socket.socket]:
        """The daemon's end, which never blocks, and the one that a worker is to inherit."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(ours, blocking=False), theirs

    @classmethod
    def inherited(cls, fd: int) -> Channel:
        """A worker's end. It may wait for room: a daemon that does not read is one that has no time for more."""
        return cls(socket.socket(fileno=fd), blocking=True)

    def fileno(self) -> int:
        return self._end.fileno()

    def send(self, data: bytes) -> bool:
        """False if the other end is gone, or (never blocking) takes no more."""
        try:
            self._end.send(data)
        except (BlockingIOError, BrokenPipeError, ConnectionResetError):
            return False
        return True

    def receive(self) -> Iterator[bytes]:
        """The messages that have come."""
        while self.open:
            try:
                data = self._end.recv(_LARGEST_MESSAGE_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except ConnectionResetError:
                data = b""
            if not data:
                self.open = False
                return
            yield data

    def wait(self) -> bytes:
        """The next message, waited for. Raises EOFError if the other end is gone."""
        data = self._end.recv(_LARGEST_MESSAGE_BYTES)
        if not data:
            raise EOFError
        return data

    def close(self) -> None:
        self._end.close()
