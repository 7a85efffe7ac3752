"""Signals as events of the loop: a signal handler may run in the middle of any line, the loop decides when to look."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass

from shisha_rt.daemon.loop.poller import Poller


@dataclass(frozen=True, slots=True)
class Signalled:
    """The daemon is to end or, if `read_again`, to read files again."""

    read_again: bool = False


@contextlib.contextmanager
def signals(poller: Poller, *, read_again: bool = False) -> Iterator[None]:
    """Make SIGTERM, SIGINT and SIGHUP events of the poller; the old handlers are restored afterwards.

    SIGHUP means that files are to be read again, if there are any (`read_again`). Else it comes from a terminal that is
    closed, and ends the daemon like SIGTERM, unless it is ignored (`nohup`).
    """
    hears = read_again or signal.getsignal(signal.SIGHUP) != signal.SIG_IGN
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    old_fd = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    old = {
        number: signal.signal(number, lambda *_: None)  # its number goes to the wakeup descriptor
        for number in (signal.SIGTERM, signal.SIGINT, *[signal.SIGHUP] * hears)
    }
    poller.watch(
        reading, lambda: [Signalled(read_again and number == signal.SIGHUP) for number in os.read(reading, 64)]
    )
    try:
        yield
    finally:
        poller.unwatch(reading)
        for number, handler in old.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(old_fd)
        os.close(reading)
        os.close(writing)
