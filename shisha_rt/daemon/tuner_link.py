"""The tuner's process and the socket to it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import zmq

from shisha_rt.daemon import tuner_messages as tm

log = logging.getLogger(__name__)


class TunerLink:
    """Starts the process and talks to it; `pidfd` is readable when it has died."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], folder: Path) -> None:
        self._endpoint = f"ipc://{folder}/tuner"
        self.socket = context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.bind(self._endpoint)
        self._start()

    def _start(self) -> None:
        command = [sys.executable, "-m", "shisha_rt.daemon.tuner_process", self._endpoint, str(os.getpid())]
        self._popen = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self.pidfd = os.pidfd_open(self._popen.pid)

    def restart(self) -> str:
        """After its death: reap it and start another. Returns how it ended."""
        status = self._popen.wait()
        os.close(self.pidfd)
        self._start()
        return f"exit status {status}" if status >= 0 else f"killed by signal {-status}"

    def send(self, message: tm.ToTuner) -> None:
        self.socket.send(tm.encode(message), zmq.DONTWAIT)

    def receive(self) -> tm.FromTuner | None:
        """The next message, or None if there is none now."""
        try:
            return tm.decode_from_tuner(self.socket.recv(zmq.DONTWAIT))
        except zmq.Again:
            return None
        except msgspec.MsgspecError as error:
            log.warning("a message of the tuner was not understood: %s", error)
            return None

    def close(self) -> None:
        self._popen.kill()
        self._popen.wait()
        os.close(self.pidfd)
        self.socket.close()
