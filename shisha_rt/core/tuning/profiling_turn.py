"""When layers are measured: not while plans are compared, as a team would wait for the core that is measured."""

from __future__ import annotations

import math
from typing import Final

PROFILER_WAITS_S: Final = 2.0
"""If no comparison goes on for so long, layers are measured even if one is due: its load may not come for long."""
WINNER_S: Final = 10.0
"""For which layers wait for the winner of a comparison to be measured, which takes frames."""


class ProfilingTurn:
    """`goes_on`: layers are being measured."""

    def __init__(self) -> None:
        self.goes_on = False
        self._is_awaited = False
        self._compared_s = self._cores_taken_s = -math.inf

    def wait(self, now_s: float) -> None:
        """The profiler has compared engines, and waits until it may measure layers."""
        self._is_awaited, self._cores_taken_s = True, now_s

    def ended(self) -> None:
        """The profiler has measured all layers, or has failed."""
        self._is_awaited = self.goes_on = False

    def comparing(self, now_s: float) -> None:
        self._compared_s = self._cores_taken_s = now_s

    def since_compared_s(self, now_s: float) -> float:
        """Seconds since the last comparison ended; inf if there was none."""
        return now_s - self._compared_s

    def measuring_winner(self, now_s: float) -> None:
        """The winner of the last comparison is being measured, or is about to be."""
        if self.since_compared_s(now_s) < WINNER_S:
            self._cores_taken_s = now_s

    def begins(self, now_s: float, wait_s: float) -> bool:
        """Whether layers may be measured from now on. `wait_s`: the least time since plans needed the cores."""
        begins = self._is_awaited and now_s - self._cores_taken_s >= wait_s
        if begins:
            self._is_awaited, self.goes_on = False, True
        return begins
