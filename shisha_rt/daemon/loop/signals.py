"""Signals as something to read: a handler may run in the middle of any line, a loop decides when it looks."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def signal_bytes() -> Iterator[int]:
    """SIGTERM and SIGINT become bytes on the yielded descriptor; the old handlers come back afterwards."""
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    old_fd = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    old = {number: signal.signal(number, _only_wake) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield reading
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(old_fd)
        os.close(reading)
        os.close(writing)


def _only_wake(_number: int, _frame: FrameType | None) -> None:
    """The wakeup descriptor says the rest, in the loop and not in the middle of a line."""
