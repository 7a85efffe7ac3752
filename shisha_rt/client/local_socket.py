"""Questions at the socket where a daemon on this host lends memory and gives direct lines. Shell."""

from __future__ import annotations

import math
import select
import socket
import time
from typing import Final

import msgspec

from shisha_rt.process.channel import Channel

PATIENCE_S: Final = 1.0
"""How long a daemon may take to answer."""
AGAIN_S: Final = 30.0
"""Pause before a daemon that lent nothing is asked again: it, or this process, may have lacked descriptors."""
LONGEST_ANSWER_BYTES: Final = 4096


class Question:
    """One message to the daemon, and the connection `end` at which its answer comes."""

    def __init__(self, path: str, message: bytes) -> None:
        """Raises OSError or ValueError if nobody hears it: another host's path, another user's folder, no path."""
        self._until_s = time.monotonic() + PATIENCE_S
        self.end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.end.setblocking(False)
        try:
            self.end.connect(path)
            self.end.send(message)
        except (OSError, ValueError):
            self.end.close()
            raise

    def has_answer(self, wait_s: float) -> bool:
        """Wait up to `wait_s` for the answer. Raises TimeoutError if it has not come in `PATIENCE_S`."""
        left_s = max(0.0, self._until_s - time.monotonic())
        poll = select.poll()
        poll.register(self.end, select.POLLIN)
        if poll.poll(math.ceil(min(wait_s, left_s) * 1e3)):
            return True
        if not left_s:
            raise TimeoutError
        return False


class _LineAnswer(msgspec.Struct, frozen=True):
    instance: str | None = None


def take_line(end: socket.socket, instance: str | None) -> Channel:
    """The direct line to the daemon `instance`. Raises OSError, ValueError or MsgspecError if its answer gives none."""
    answer = msgspec.json.decode(end.recv(LONGEST_ANSWER_BYTES), type=_LineAnswer)
    if answer.instance is None or answer.instance != instance:
        raise ValueError("none, or another daemon's")
    return Channel(end)
