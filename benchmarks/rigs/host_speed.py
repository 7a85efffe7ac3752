"""How fast this host is now, by a fixed piece of plain Python in the calling thread's CPU time."""

from __future__ import annotations

import statistics
import time
from typing import Final

_PIECE: Final = range(20_000)
USUAL_PIECE_S: Final = 0.7e-3
"""Seconds of a piece on a core at about 4 GHz with CPython 3.11, by which figures of unequal hosts are compared."""


def piece_s() -> float:
    begun_s, total = time.thread_time(), 0
    for number in _PIECE:
        total += number
    return time.thread_time() - begun_s


def host_slowness() -> float:
    """Time of a piece over the usual time: the median of several."""
    return statistics.median(piece_s() for _ in range(21)) / USUAL_PIECE_S
