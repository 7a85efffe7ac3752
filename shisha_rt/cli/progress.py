"""What a command that takes long is doing, on standard error."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time
from queue import Empty, SimpleQueue
from typing import Final

_AGAIN_S: Final = 10.0


def tell_terminal(message: str) -> None:
    """Print what a waiting user may want to know, at a terminal only: elsewhere `progress` tells of long steps."""
    if sys.stderr.isatty():
        print(message, file=sys.stderr)


def progress(message: str) -> None:
    """Tell of a step: a terminal at once, and every `_AGAIN_S` that it still lasts; others every `_AGAIN_S` alone, with
    the seconds since the first step. Until the next step, or `end_progress`.
    """
    tell_terminal(message)
    _steps().put(message)


def end_progress() -> None:
    """Tell of no step any more, as the command has ended."""
    if _steps.cache_info().currsize:
        _steps().put(None)


@functools.cache
def _steps() -> SimpleQueue[str | None]:
    """Steps for the thread that tells of them; None: the command has ended."""
    steps: SimpleQueue[str | None] = SimpleQueue()

    def tell() -> None:
        step: str | None = None
        began_s = due_s = 0.0
        while True:
            try:
                before, step = step, steps.get(timeout=None if step is None else max(0.0, due_s - time.monotonic()))
                if before is None:
                    began_s = time.monotonic()
                if before is None or sys.stderr.isatty():  # which has seen the step
                    due_s = time.monotonic() + _AGAIN_S
            except Empty:
                now_s = time.monotonic()
                due_s = now_s + _AGAIN_S
                words = f"still {step}" if sys.stderr.isatty() else f"for {now_s - began_s:.0f} s: {step}"
                with contextlib.suppress(OSError):  # nobody reads it
                    print(words, file=sys.stderr, flush=True)

    threading.Thread(target=tell, daemon=True).start()
    return steps
