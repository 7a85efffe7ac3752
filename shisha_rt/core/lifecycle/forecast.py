"""When a frame that arrives now will be answered, and whether that is within the target.

A frame takes at least the sum of its stages' times. With `n` frames ahead it takes at least `n + 1/2` times the slowest
pool's time for each frame, as the first of them is half done on average. Both use recent measurements of the live plan.
What this leaves out (messages, the daemon's loop, unlike teams, batches, cores that others use too) is learned as a
margin: after each answer, stochastic approximation (Robbins and Monro, 1951) updates a high quantile of the time that
frames took beyond their prediction. The standard deviation of a sum of `n` times grows with the root of `n`, and so
does the margin.

The cost of refusing a frame depends on the queue. If the queue is long, workers have enough to do without the frame, so
nearly all accepted frames should be in time. If the queue is short, a worker would soon be idle, so the frame is
accepted if it is likely to be in time. A frame that need not wait is refused only if no frame can meet the target.
"""

from __future__ import annotations

import math
from typing import Final

from shisha_rt.core.lifecycle.records import Epoch

_SHORT, _LONG = 0, 1
_QUANTILES: Final = (0.8, 0.97)
_SHORT_QUEUE: Final = 2.0
"""The queue is short if the prediction is at most this multiple of the frame's own time: about one frame is ahead."""
_NO_QUEUE: Final = 1.1
"""There is no queue up to this multiple of the frame's own time: above 1, as teams differ a little."""
_STEP: Final = 0.05
_LOOK_S: Final = 0.05
"""Measurements of the live plan are read again after this time."""
_LEAST, _MOST = -0.5, 20.0
"""Limits of the margins."""


class Forecast:
    """`target_s`: time within which frames are to be answered; inf: no target."""

    def __init__(self, target_s: float = math.inf) -> None:
        self.target_s = target_s
        self._margins = [0.2, 0.2]
        self._frame_s = self._period_s = 0.0
        self._looked_s = -math.inf

    def predicted_s(self, ahead: int, epoch: Epoch | None, now_s: float) -> float:
        """Seconds until a frame behind `ahead` others is answered, without margin; 0 while nothing is known."""
        if epoch is not None and now_s - self._looked_s >= _LOOK_S:
            self._look(epoch, now_s)
        return max(self._frame_s, (ahead + 0.5) * self._period_s)

    def at_most_s(self, predicted_s: float) -> float:
        """The prediction with its margin: the quantile, by the queue's length, of the seconds until the answer."""
        margin = self._margins[_SHORT if predicted_s <= _SHORT_QUEUE * self._frame_s else _LONG]
        return predicted_s + margin * math.sqrt(predicted_s * self._frame_s)

    def is_late(self, predicted_s: float) -> bool:
        if predicted_s <= _NO_QUEUE * self._frame_s and self._frame_s <= self.target_s:
            return False
        return self.at_most_s(predicted_s) > self.target_s

    def answered(self, predicted_s: float, took_s: float) -> None:
        """Learn from a frame for which `predicted_s` was predicted, and which took `took_s`."""
        if not predicted_s:
            return
        beyond = (took_s - predicted_s) / math.sqrt(predicted_s * self._frame_s)
        for queue, quantile in enumerate(_QUANTILES):
            step = _STEP * ((beyond > self._margins[queue]) - (1 - quantile))
            self._margins[queue] = min(_MOST, max(_LEAST, self._margins[queue] + step))

    def _look(self, epoch: Epoch, now_s: float) -> None:
        """Read the times of the live plan; while those of a new plan are not all known, keep those of the old one."""
        if not all(epoch.service_s):
            return
        self._looked_s = now_s
        self._frame_s = math.fsum(_alone_s(epoch, stage) for stage in range(len(epoch.service_s)))
        self._period_s = max(_period_s(epoch, pool.stages, pool.leads) for pool in epoch.pools)


def _alone_s(epoch: Epoch, stage: int) -> float:
    """Seconds that the fastest team takes for a frame in a run of its own."""
    return epoch.run_times[stage].alone_s() if epoch.run_times[stage] else min(epoch.service_s[stage].values())


def _period_s(epoch: Epoch, stages: tuple[int, ...], leads: tuple[str, ...]) -> float:
    """Seconds for each frame, with all teams of the pool at work."""
    frames_per_s = 0.0
    for lead in leads:
        known = [epoch.service_s[stage].get(lead) for stage in stages]
        team_s = math.fsum(time_s for time_s in known if time_s is not None)
        if None not in known and team_s > 0:
            frames_per_s += 1 / team_s
    if frames_per_s:
        return 1 / frames_per_s
    return math.fsum(min(epoch.service_s[stage].values()) for stage in stages) / len(leads)
