"""The tuner's process and the line to it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable

import msgspec

from shisha_rt.daemon import tuner_messages as tm
from shisha_rt.daemon.poller import Poller
from shisha_rt.fabric.channel import Channel

log = logging.getLogger(__name__)


class TunerLink:
    """Keeps the process running. `said` is told each message, `died` how it ended, when another has been started."""

    def __init__(self, poller: Poller) -> None:
        self.said: Callable[[tm.FromTuner], None] = lambda message: None
        self.died: Callable[[str], None] = lambda reason: None
        self._poller = poller
        self._start()

    def _start(self) -> None:
        self._channel, theirs = Channel.pair()
        fd = theirs.fileno()
        command = [sys.executable, "-m", "shisha_rt.daemon.tuner_process", str(fd), str(os.getpid())]
        self._popen = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[fd])
        theirs.close()
        self._pidfd = os.pidfd_open(self._popen.pid)
        self._poller.watch(self._channel.fileno(), self._hear)
        self._poller.watch(self._pidfd, self._restart)

    def send(self, message: tm.ToTuner) -> None:
        self._channel.send(tm.encode(message))

    def _hear(self) -> None:
        for data in self._channel.receive():
            try:
                self.said(tm.decode_from_tuner(data))
            except msgspec.MsgspecError as error:
                log.warning("a message of the tuner was not understood: %s", error)
        if not self._channel.open:
            self._poller.unwatch(self._channel.fileno())

    def _restart(self) -> None:
        status = self.close()
        self._start()
        self.died(f"exit status {status}" if status >= 0 else f"killed by signal {-status}")

    def close(self) -> int:
        """End the process, if it has not ended itself; returns its status."""
        self._popen.kill()
        status = self._popen.wait()
        for fd in (self._pidfd, self._channel.fileno()):
            if self._poller.watches(fd):
                self._poller.unwatch(fd)
        os.close(self._pidfd)
        self._channel.close()
        return status
