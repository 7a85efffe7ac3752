"""Which of two plans fits the load: the one with the least unloaded latency, or the one with the highest throughput.

The load is measured as utilisation of the plan for latency: the time that this plan would take for the frames that
came, over the time in which they came; it may exceed 1. Change is detected with two cumulative sums, each clamped at 0,
as in E. S. Page, Continuous inspection schemes, Biometrika 41 (1954): the work beyond a utilisation of 70%, and the
work short of 50%. A sum that reaches its threshold is a change: detected soon if the load is far beyond the limit, late
if it hardly is, and hardly ever by chance. Thresholds are seconds of work, at least that of enough frames for chance to
even out. One look alone never reaches them, so neither a burst nor a lull does.

Utilisation alone would mislead. A client that waits for each answer keeps any plan busy, but none of its frames ever
meets another: so only frames that meet count. And if the plan for latency is many times as fast with one frame, it
finishes a few frames one after the other sooner than the other plan does: it is left only if frames take longer on
average than the unloaded latency of the other plan. With random arrivals the mean wait at utilisation U is
U / (2 (1 - U)) service times (Pollaczek and Khinchine); if at 70% that is less than the other plan's longer latency,
the limit is higher (`busy_from`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from shisha_rt.core.tuning.events import FramesCounted
from shisha_rt.plan.rate import Objective

BUSY: Final = 0.7
CALMER: Final = 0.2
"""The plan for latency is left above this utilisation (or `busy_from`, if higher), and serves again `CALMER` below."""

_BUSY_S: Final = 0.1
_LULL_S: Final = 1.1
_FRAMES: Final = 16
"""Thresholds in seconds of work: `_BUSY_S` to leave the plan for latency, and what a lull of `_LULL_S` falls short of
the lower limit to return to it; each is at least the work of `_FRAMES` frames.
"""
_ONE_LOOK: Final = 0.75
_WAITED: Final = 2.0
_SHOWN_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class PlanTimes:
    """Times of a plan, by the daemon's clock. `frame_s`: for each frame at saturation. `alone_s`: unloaded latency."""

    frame_s: float
    alone_s: float


class Load:
    """`utilisation`: of the plan for latency, averaged over about the last second; `lately`: between the last two
    looks; nan before there were two. `came`: frames between the last two looks.
    """

    def __init__(self) -> None:
        self.utilisation = self.lately = math.nan
        self.came = 0
        self._before: tuple[FramesCounted, float] | None = None
        self._beyond_s = self._short_s = self._longer_s = 0.0

    def forget(self) -> None:
        """Reset the sums, as another plan serves."""
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
        # While frames wait, few arrivals are no sign of calm: clients may send in bursts, or wait for their answers.
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
    """The utilisation above which the plan for latency is left."""
    slower = max(0.0, (throughput.alone_s - latency.alone_s) / latency.frame_s)
    return max(BUSY, 2 * slower / (1 + 2 * slower))


def _grown(sum_s: float, step_s: float, enough_s: float) -> float:
    """Add a step to a sum, kept between 0 and `enough_s`; one step alone never reaches `enough_s`."""
    return min(max(0.0, sum_s + min(step_s, _ONE_LOOK * enough_s)), enough_s)
