"""A child process that never outlives whoever started it, however that ends."""

from __future__ import annotations

import ctypes
import os
import signal
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_libc: Final = ctypes.CDLL(None, use_errno=True)  # loaded here, as a process just forked had better load nothing


def die_with(parent_pid: int, number: int = signal.SIGKILL) -> None:
    """Have the kernel end this process, by signal `number`, with the *thread* that started it; end it now if that is
    gone already.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent_pid:  # it died before we could ask
        os._exit(1)
