"""When a frame that comes now will be answered, and whether that is within the target.

A frame takes at least its stages' times, and with `n` frames before it, `n + 1/2` times what the slowest pool takes for
one, as the first of them is half done on average: both as measured lately in the plan that serves. What that leaves out
(messages, turns of the loop, teams that are unlike, runs of several frames, cores that others use too) is learned: a
high quantile of measured over predicted times follows each answer by stochastic approximation (Robbins and Monro,
1951).

What it costs to refuse a frame depends on how long the queue is. Where it is long, workers have enough to do without
it, so of those that are accepted nearly all are to be in time. Where it is short, a worker would soon have nothing to
do: such a frame is worth the attempt if it is likely to be in time. One that need not wait at all is never refused,
unless no frame can make the target.
"""

from __future__ import annotations

import math
from typing import Final

from shisha_rt.core.lifecycle.records import Epoch

_SHORT, _LONG = 0, 1
_QUANTILES: Final = (0.8, 0.97)
_SHORT_QUEUE: Final = 2.0
"""A queue is short if the frame is expected to take at most so many times what its stages take: it waits for one."""
_NO_QUEUE: Final = 1.1
"""And there is none up to so many times: teams differ a little."""
_STEP: Final = 0.05
_LOOK_S: Final = 0.05
_LEAST, _MOST = 0.5, 20.0


class Forecast:
    """`target_s`: within which frames are to be answered; inf: no target."""

    def __init__(self, target_s: float = math.inf) -> None:
        self.target_s = target_s
        self._margins = [1.2, 1.2]
        self._frame_s = self._period_s = 0.0
        self._looked_s = -math.inf

    def predicted_s(self, ahead: int, epoch: Epoch | None, now_s: float) -> float:
        """Seconds until the answer of a frame with so many `ahead`, no margin added; 0 while nothing is known."""
        if epoch is not None and now_s - self._looked_s >= _LOOK_S:
            self._look(epoch, now_s)
        return max(self._frame_s, (ahead + 0.5) * self._period_s)

    def at_most_s(self, predicted_s: float) -> float:
        """Seconds that a frame with this prediction does not exceed, as likely as the length of its queue asks for."""
        return predicted_s * self._margins[_SHORT if predicted_s <= _SHORT_QUEUE * self._frame_s else _LONG]

    def is_late(self, predicted_s: float) -> bool:
        """Whether a frame with this prediction is to be refused."""
        if predicted_s <= _NO_QUEUE * self._frame_s and self._frame_s <= self.target_s:
            return False
        return self.at_most_s(predicted_s) > self.target_s

    def answered(self, predicted_s: float, took_s: float) -> None:
        """What became of a prediction."""
        for queue, quantile in enumerate(_QUANTILES):
            above = took_s > self._margins[queue] * predicted_s
            step = _STEP * (above - (1 - quantile))
            self._margins[queue] = min(_MOST, max(_LEAST, self._margins[queue] * math.exp(step)))

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
