"""Timing of an emulated machine's place, for the programs that emulate the machine.

A program computes for real, and then waits until the place would be done (see `plan --program`). Shell.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Final

_MAX_DEBT_S: Final = 0.25
_PR_SET_TIMERSLACK: Final = 29


class EmulatedTime:
    """One place's clock, made and used in the thread that computes for the place.

    `time_scale`: a factor for all times of the machine. `speed`: of the place, relative to this host; measured times
    are divided by it. `threads`: how many compute; for one, its CPU time is measured, for several the time by the
    clock. `overran`: how many runs took longer on this host than their predicted time, so times are not the machine's.
    """

    def __init__(self, time_scale: float = 1.0, speed: float = 1.0, threads: int = 1) -> None:
        self._scale = time_scale
        self._speed = speed
        self._clock = time.thread_time if threads == 1 else time.monotonic
        self._due_s = 0.0
        self.overran = 0
        # The kernel may else add 50 us to each wait.
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)

    def begin(self, since_s: float) -> None:
        """Note since when (`time.monotonic`) the input of the next run has been there; this may be noted late."""
        self._due_s = max(self._due_s, since_s)

    def run(self, compute: Callable[[], object], told_s: float | None = None) -> None:
        """Compute, and return when the run is due: `told_s` after the run before was due, or after its input came, if
        later.

        Without `told_s` the run takes its measured time, at the place's speed. Due times add up, not the ends of waits,
        so waits that overrun do not accumulate. Lateness is made up for, up to a quarter of a second.
        """
        begun_s, start_s = time.monotonic(), self._clock()
        compute()
        taken_s = (self._clock() - start_s) / self._speed if told_s is None else told_s
        now_s = time.monotonic()
        self.overran += told_s is not None and now_s - begun_s > self._scale * told_s
        self._due_s = max(self._due_s + self._scale * taken_s, now_s - _MAX_DEBT_S)
        if self._due_s > now_s:
            time.sleep(self._due_s - now_s)
