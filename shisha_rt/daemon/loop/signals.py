"""Signals as events of the loop: a signal handler may run in the middle of any line, the loop decides when to look."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from shisha_rt.daemon.loop.poller import Poller


@dataclass(frozen=True, slots=True)
class Signalled:
    """The daemon is to end or, if `read_again`, to read files again."""

    read_again: bool = False


class Signals:
    """SIGTERM, SIGINT and SIGHUP, which wait to be heard from the start on; `close` restores the old handlers.

    What is made meanwhile has an owner, as nothing is interrupted.
    """

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._old_fd = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        self._old: dict[int, Any] = {}
        hears = signal.getsignal(signal.SIGHUP) != signal.SIG_IGN
        self._take(signal.SIGTERM, signal.SIGINT, *[signal.SIGHUP] * hears)

    def _take(self, *numbers: int) -> None:
        self._old |= {number: signal.signal(number, lambda *_: None) for number in numbers}

    @contextlib.contextmanager
    def heard(self, poller: Poller, *, read_again: bool = False) -> Iterator[None]:
        """Make the signals events of the poller.

        SIGHUP means that files are to be read again, if there are any (`read_again`). Else it comes from a terminal
        that is closed, and ends the daemon like SIGTERM, unless it is ignored (`nohup`).
        """
        if read_again and signal.SIGHUP not in self._old:
            self._take(signal.SIGHUP)
        poller.watch(
            self._reading,
            lambda: [Signalled(read_again and number == signal.SIGHUP) for number in os.read(self._reading, 64)],
        )
        try:
            yield
        finally:
            poller.unwatch(self._reading)

    def close(self) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._old_fd)
        os.close(self._reading)
        os.close(self._writing)
