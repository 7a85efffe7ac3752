"""A direct line to a daemon on this host, asked for at the socket where it lends memory. Shell."""

from __future__ import annotations

import math
import select
import socket
import time
from typing import Final

import msgspec

from shisha_rt.process.channel import Channel

_PATIENCE_S: Final = 1.0
"""How long a daemon may take to answer; one that takes longer is sent requests at its endpoint."""
_MESSAGE_BYTES: Final = 4096


class _LineAnswer(msgspec.Struct, frozen=True):
    instance: str | None = None


class AskedLine:
    """`is_over`: the daemon has answered, or will not; then `line` is called once."""

    def __init__(self, path: str) -> None:
        self.is_over = False
        self._instance: str | None = None
        self._asked_s = time.monotonic()
        self._end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._end.setblocking(False)
        try:
            self._end.connect(path)
            self._end.send(b'{"op":"line"}')
        except (OSError, ValueError):  # another host's path, another user's folder, no path at all
            self.is_over = True

    def advance(self, wait_s: float = 0.0) -> None:
        """Wait up to `wait_s` for the answer."""
        if self.is_over:
            return
        left_s = max(0.0, self._asked_s + _PATIENCE_S - time.monotonic())
        poll = select.poll()
        poll.register(self._end, select.POLLIN)
        if poll.poll(math.ceil(min(wait_s, left_s) * 1e3)):
            self.is_over = True
            try:
                self._instance = msgspec.json.decode(self._end.recv(_MESSAGE_BYTES), type=_LineAnswer).instance
            except (OSError, ValueError, msgspec.MsgspecError):
                return
        elif not left_s:
            self.is_over = True

    def line(self, instance: str | None) -> Channel | None:
        """The line, if it is to the daemon `instance`; None if there is none."""
        if instance is None or self._instance != instance:
            self.close()
            return None
        return Channel(self._end)

    def close(self) -> None:
        self._end.close()
