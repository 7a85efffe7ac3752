"""A process that keeps all its descendants, even those that leave their parent or session.

It is their subreaper (`PR_SET_CHILD_SUBREAPER`), so they stay its descendants whichever process dies.
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
    """Make this process the subreaper of its descendants; SIGTERM raises KeyboardInterrupt, so that it can end them."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # from the terminal: the benchmark ends this process itself
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def signal_all(number: signal.Signals) -> None:
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def end_all(patience_s: float) -> None:
    """Ask the children of this process to end, which end their own; kill and await those that are left."""
    signal_all(signal.SIGCONT)
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            child.terminate()
    until_s = time.monotonic() + patience_s
    while _living() and time.monotonic() < until_s:
        time.sleep(_LOOK_EVERY_S)
    kill_all()


def kill_all() -> None:
    """Kill all descendants at once, as if a host died; they are gone on return."""
    signal_all(signal.SIGSTOP)  # so that none starts another process, or reports one that died
    while left := _living():
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(_LOOK_AGAIN_S)


def _living() -> list[psutil.Process]:
    """The descendants that have not ended; those that have are reaped."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return psutil.Process().children(recursive=True)
