"""When a frame that comes now will be answered, and whether that is within the target.

A frame takes at least its stages' times, and with `n` frames before it and itself, `n + 1` times what the slowest pool
takes for one: both as measured lately in the plan that serves. What that leaves out (messages, turns of the loop, teams
that are unlike, runs of several frames) is learned: the 99th percentile of measured over predicted times follows each
answer by stochastic approximation (Robbins and Monro, 1951).
"""

from __future__ import annotations

import math
from typing import Final

from shisha_rt.core.lifecycle.records import Epoch

QUANTILE: Final = 0.99
_STEP: Final = 0.1
_LOOK_S: Final = 0.05
_LEAST, _MOST = 0.5, 20.0


class Forecast:
    """`target_s`: within which frames are to be answered; inf: no target. `margin`: the percentile, as a factor."""

    def __init__(self, target_s: float = math.inf) -> None:
        self.target_s = target_s
        self.margin = 1.2
        self._frame_s = self._period_s = 0.0
        self._looked_s = -math.inf

    def predicted_s(self, ahead: int, epoch: Epoch | None, now_s: float) -> float:
        """Seconds until the answer of a frame with so many `ahead`, the margin left out; 0 while nothing is known."""
        if epoch is not None and now_s - self._looked_s >= _LOOK_S:
            self._look(epoch, now_s)
        return max(self._frame_s, (ahead + 1) * self._period_s)

    def is_late(self, predicted_s: float) -> bool:
        """Whether less than the quantile of such frames would be answered within the target."""
        return self.margin * predicted_s > self.target_s

    def answered(self, predicted_s: float, took_s: float) -> None:
        """What became of a prediction."""
        above = took_s > self.margin * predicted_s
        step = _STEP * (above - (1 - QUANTILE))
        self.margin = min(_MOST, max(_LEAST, self.margin * math.exp(step)))

    def _look(self, epoch: Epoch, now_s: float) -> None:
        """Times of a plan that has just gone live are not all known: those of the plan before stand in for them."""
        if not all(epoch.service_s):
            return
        self._looked_s = now_s
        self._frame_s = math.fsum(min(times.values()) for times in epoch.service_s)
        self._period_s = max(_period_s(epoch, pool.stages, pool.leads) for pool in epoch.pools)


def _period_s(epoch: Epoch, stages: tuple[int, ...], leads: tuple[str, ...]) -> float:
    """Seconds in which the pool's teams, all together, are done with one frame."""
    frames_per_s = 0.0
    for lead in leads:
        known = [epoch.service_s[stage].get(lead) for stage in stages]
        team_s = math.fsum(time_s for time_s in known if time_s is not None)
        if None not in known and team_s > 0:
            frames_per_s += 1 / team_s
    if frames_per_s:
        return 1 / frames_per_s
    return math.fsum(min(epoch.service_s[stage].values()) for stage in stages) / len(leads)
