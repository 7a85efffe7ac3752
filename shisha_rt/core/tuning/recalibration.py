"""When results that were measured while other processes used the cores are measured again.

Costs wait for a calm host without frames; comparisons of live plans wait for a calm host only. Pure: observations and
times are passed in.
"""

from __future__ import annotations

import math
from typing import Final

from shisha_rt.costs.profiles import DISTURBED

CALM_S: Final = 10.0
"""How long other processes must have left the cores alone, without a frame in flight, before a new measurement."""
FIRST_PAUSE_S: Final = 60.0
LONGEST_PAUSE_S: Final = 3600.0
"""Pauses between attempts double up to the longest: a host may never be as calm as it seemed."""


class OthersShare:
    """Share of the cores that others use. `last`: at the last look; `mean`: since `restart`, and one look before."""

    def __init__(self) -> None:
        self.last = self._sum = 0.0
        self._looks = 0

    def seen(self, others_ratio: float) -> None:
        self.last = others_ratio
        self._sum += others_ratio
        self._looks += 1

    def restart(self) -> None:
        self._sum, self._looks = self.last, min(self._looks, 1)

    @property
    def mean(self) -> float:
        return self._sum / self._looks if self._looks else 0.0


class Recalibration:
    """`others_ratio`: the share of the cores that others used while the results in use were measured."""

    def __init__(self, others_ratio: float = 0.0) -> None:
        self._disturbed = others_ratio > DISTURBED
        self._calm_since_s = math.inf
        self._next_s = -math.inf
        self._pause_s = FIRST_PAUSE_S

    def measured(self, others_ratio: float, left_out: int = 0) -> None:
        """Note new results. `others_ratio`: other programs' share of the cores. `left_out`: teams not measured."""
        self._disturbed = others_ratio > DISTURBED or left_out > 0

    def look(self, now_s: float, others_ratio: float, in_flight: int = 0) -> bool:
        """Called periodically: whether to measure again now. After True there is a pause before it can be True again.

        `others_ratio`: the share of the cores that others use now. `in_flight`: frames, which also forbid it.
        """
        if not self._disturbed:
            return False
        if others_ratio > DISTURBED or in_flight:
            self._calm_since_s = math.inf
            return False
        self._calm_since_s = min(self._calm_since_s, now_s)
        if now_s < max(self._calm_since_s + CALM_S, self._next_s):
            return False
        self._next_s, self._pause_s = now_s + self._pause_s, min(2 * self._pause_s, LONGEST_PAUSE_S)
        self._calm_since_s = math.inf
        return True
