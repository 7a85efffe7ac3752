"""Which of two plans the load wants: the one that is quick with a frame by itself, or the one that passes the most.

What comes is weighed by what the plan for latency would take for it: its utilisation, which may be above 1. Two sums
are kept, each clamped at 0, as in E. S. Page, Continuous inspection schemes, Biometrika 41 (1954): what came beyond
70% of what that plan can do, and what came short of 20% less. A sum that has grown to its threshold is a change: soon
if the load is far beyond, late if it hardly is, and hardly ever by chance alone. Thresholds are seconds of work, at
least so many frames of it that chance evens out, and one look alone never reaches them: neither bursts nor lulls do.

Utilisation alone would mislead. A client that waits for each answer keeps any plan busy and no frame of it ever meets
another: frames count as far as they meet. And where the plan for latency is many times as quick with one frame, a few
that meet are done sooner one after the other: it is left only when frames take longer than by themselves on the other
plan. With frames that come by chance one after the other waits U / (2 (1 - U)) of what each takes at a utilisation U
(Pollaczek and Khinchine); where that does not make up for the other plan's slowness at 70%, it is left later.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from shisha_rt.core.tuning.events import FramesCounted
from shisha_rt.plan.rate import Objective

BUSY: Final = 0.7
CALMER: Final = 0.2
"""The plan for latency is left above this utilisation, or a higher one; it serves again so much below."""

_BUSY_S: Final = 0.1
_LULL_S: Final = 1.1
_FRAMES: Final = 16
"""Thresholds are seconds of work: so much, what falls short in such a lull, and at least what so many frames take."""
_ONE_LOOK: Final = 0.75
_WAITED: Final = 2.0
_SHOWN_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class PlanTimes:
    """What a plan takes, in seconds of the daemon's clock: `frame_s` for each frame at saturation, `alone_s` for one by
    itself.
    """

    frame_s: float
    alone_s: float


class Load:
    """`utilisation`: of the plan for latency, about the last second's mean, and `lately` that between the last two
    looks; nan before there is one. `came`: frames between the last two looks.
    """

    def __init__(self) -> None:
        self.utilisation = self.lately = math.nan
        self.came = 0
        self._before: tuple[FramesCounted, float] | None = None
        self._beyond_s = self._short_s = self._longer_s = 0.0

    def forget(self) -> None:
        """Another plan serves: what was found out so far led to it."""
        self._beyond_s = self._short_s = self._longer_s = 0.0

    def look(
        self, now: FramesCounted, now_s: float, serves: Objective, latency: PlanTimes, throughput: PlanTimes
    ) -> Objective:
        """Return the objective that is to serve, from the frames since the last look and the times of both plans."""
        before, self._before = self._before, (now, now_s)
        if before is None or now_s <= before[1]:
            return serves
        then, passed_s, frame_s = before[0], now_s - before[1], latency.frame_s
        self.came = now.arrived - then.arrived
        self.lately = self.came * frame_s / passed_s
        self._show(self.lately, passed_s)
        came_s = min(self.came, 2 * (now.met - then.met)) * frame_s
        took_s, answered = now.latency_s - then.latency_s, now.answered - then.answered
        busy = busy_from(latency, throughput)
        calm = busy - CALMER
        busy_s, calm_s = max(_BUSY_S, _FRAMES * frame_s), max(_LULL_S * calm, _FRAMES * frame_s)
        beyond_s, short_s = came_s - busy * passed_s, calm * passed_s - came_s
        # While frames wait it is no sign of calm that few come: clients may send by the batch, or wait themselves.
        if now.in_flight * frame_s > busy_s:
            beyond_s = max(beyond_s, 0.0)
        if now.in_flight > 1 and (not answered or took_s > _WAITED * answered * throughput.alone_s):
            short_s = min(short_s, 0.0)
        self._beyond_s = _grown(self._beyond_s, beyond_s, busy_s)
        self._short_s = _grown(self._short_s, short_s, calm_s)
        self._longer_s = _grown(self._longer_s, took_s - answered * throughput.alone_s, busy_s)
        if serves == "latency":
            return "throughput" if self._beyond_s >= busy_s and self._longer_s > 0 else "latency"
        return "latency" if self._short_s >= calm_s else "throughput"

    def _show(self, utilisation: float, passed_s: float) -> None:
        weight = 1.0 if math.isnan(self.utilisation) else -math.expm1(-passed_s / _SHOWN_S)
        shown = 0.0 if math.isnan(self.utilisation) else self.utilisation
        self.utilisation = shown + weight * (utilisation - shown)


def busy_from(latency: PlanTimes, throughput: PlanTimes) -> float:
    """The utilisation above which the plan for latency is to be left."""
    slower = max(0.0, (throughput.alone_s - latency.alone_s) / latency.frame_s)
    return max(BUSY, 2 * slower / (1 + 2 * slower))


def _grown(sum_s: float, step_s: float, enough_s: float) -> float:
    """Add a step to a sum, kept between 0 and `enough_s`; one step alone never reaches `enough_s`."""
    return min(max(0.0, sum_s + min(step_s, _ONE_LOOK * enough_s)), enough_s)
