"""A child process that never outlives its daemon, however that ends."""

from __future__ import annotations

import ctypes
import os
import signal
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def die_with(parent_pid: int) -> None:
    """Have the kernel kill this process with the thread that started it, and end it now if that is gone already."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # it died before we could ask
        os._exit(1)
