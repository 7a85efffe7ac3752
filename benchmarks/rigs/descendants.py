"""A process that keeps all that it starts, and all that those start, some of which leave their parent or session.

It is the reaper of them all (`PR_SET_CHILD_SUBREAPER`), so that they stay its descendants whoever dies.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from typing import Final

import psutil

_PR_SET_CHILD_SUBREAPER: Final = 36
_LOOK_EVERY_S: Final = 0.1
_LOOK_AGAIN_S: Final = 0.002


def keep_descendants() -> None:
    """From now on none of them becomes another's."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def signal_all(number: signal.Signals) -> None:
    for one in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            one.send_signal(number)


def end_all(patience_s: float) -> None:
    """First those that this process has started, which end their own; what is left then is killed, and awaited."""
    signal_all(signal.SIGCONT)
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            child.terminate()
    until_s = time.monotonic() + patience_s
    while _living() and time.monotonic() < until_s:
        time.sleep(_LOOK_EVERY_S)
    kill_all()


def kill_all() -> None:
    """As a host that dies: all at once, with no time to say anything. They are gone on return."""
    signal_all(signal.SIGSTOP)  # none starts another, or says that it has seen one die
    while left := _living():
        for one in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        time.sleep(_LOOK_AGAIN_S)


def _living() -> list[psutil.Process]:
    """Those that have not ended; those that have are reaped."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return psutil.Process().children(recursive=True)
