"""A process in which the daemon has something thought out, and the line to it.

A process that dies is started again: at once if it had lived for a while, else after a delay that doubles. What is
sent meanwhile is lost, as it is with the process; whoever is told of the death begins anew.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

import msgspec

from shisha_rt.daemon.loop.poller import Poller
from shisha_rt.fabric.channel import Channel, ChannelBroken

log = logging.getLogger(__name__)

ToT = TypeVar("ToT")
FromT = TypeVar("FromT")

_LIVED_S: Final = 10.0
_FIRST_DELAY_S: Final = 0.1
_MAX_DELAY_S: Final = 10.0


class ChildLink(Generic[ToT, FromT]):
    """Keeps `python -m MODULE CHANNEL PARENT` running; `greeting` is the first that each such process hears.

    `said` is told each message, `died` how it ended, when another has been started. `decode` raises
    `msgspec.MsgspecError` for what it does not understand.
    """

    def __init__(
        self,
        module: str,
        poller: Poller,
        encode: Callable[[ToT], bytes],
        decode: Callable[[bytes], FromT],
        greeting: Sequence[ToT] = (),
    ) -> None:
        self.said: Callable[[FromT], None] = lambda message: None
        self.died: Callable[[str], None] = lambda reason: None
        self._module = module
        self._poller = poller
        self._encode = encode
        self._decode = decode
        self._greeting = greeting
        self._delay_s = 0.0
        self._status: int | None = None
        self._again_at_s = 0.0
        self._start()

    def _start(self) -> None:
        self._started_s = time.monotonic()
        self._status = None
        self._channel, theirs = Channel.pair()
        fd = theirs.fileno()
        command = [sys.executable, "-m", self._module, str(fd), str(os.getpid())]
        self._popen = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[fd])
        theirs.close()
        self._pidfd = os.pidfd_open(self._popen.pid)
        self._poller.watch(self._channel.fileno(), self._hear)
        self._poller.watch(self._pidfd, self._ended)
        for message in self._greeting:
            self.send(message)

    def send(self, message: ToT) -> None:
        """Sent in order; what the channel has no room for yet goes out with a later message or look."""
        if self._status is None:
            try:
                self._channel.send(self._encode(message))
            except ChannelBroken as broken:
                self._break(broken)

    def _break(self, broken: ChannelBroken) -> None:
        """It is told no more, so it has to begin anew."""
        log.warning("the line to %s is broken: %s", self._module, broken)
        self._popen.kill()

    def _hear(self) -> None:
        try:
            for data in self._channel.receive():
                try:
                    self.said(self._decode(data))
                except msgspec.MsgspecError as error:
                    log.warning("a message of %s was not understood: %s", self._module, error)
        except ChannelBroken as broken:
            self._break(broken)
        if not self._channel.open:
            self._poller.unwatch(self._channel.fileno())

    def _ended(self) -> None:
        self.close()
        now_s = time.monotonic()
        lived = now_s - self._started_s > _LIVED_S
        self._delay_s = 0.0 if lived else min(max(2 * self._delay_s, _FIRST_DELAY_S), _MAX_DELAY_S)
        self._again_at_s = now_s + self._delay_s
        self.look()

    def _flush(self) -> None:
        try:
            self._channel.flush()
        except ChannelBroken as broken:
            self._break(broken)

    def look(self) -> None:
        """Every so often: send what is still unsent; start the process that has died, when it is time to."""
        if self._status is None:
            if self._channel.open:
                self._flush()
        elif time.monotonic() >= self._again_at_s:
            status = self._status
            self._start()
            self.died(f"exit status {status}" if status >= 0 else f"killed by signal {-status}")

    def close(self) -> None:
        """End the process, if it has not ended itself."""
        if self._status is not None:
            return
        self._popen.kill()
        self._status = self._popen.wait()
        for fd in (self._pidfd, self._channel.fileno()):
            if self._poller.watches(fd):
                self._poller.unwatch(fd)
        os.close(self._pidfd)
        self._channel.close()
