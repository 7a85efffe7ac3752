"""When a watched plan has left its baseline: a stage takes longer, or less, than noise explains.

On a host whose speed changes by itself all plans become slower at times, and a search finds what served before. So a
search that ended in vain holds up the next one on a drift no larger: for four times as long as it took, and for twice
as long each time that it happens again. A larger drift is answered at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from shisha_rt.costs.profiles import DISTURBED
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan

LEAVING_FACTOR: Final = 1.0
LEAVING_FLOOR: Final = 0.1
WINDOWS_TO_LEAVE: Final = 3
"""A stage has left its band if it was outside it, by these limits, for so many windows in a row."""
SLOWER_BY_LOAD: Final = 1.5
"""At another load a plan may take up to so many times as long without being a drift: longer if frames come seldom (a
seventh longer was seen), less if copies do not compete for one memory then."""
_LEVELS: Final = 4  # of load
DISTURBANCE_S: Final = 60.0
"""While other processes use the cores, a stage outside its band counts as drift only after so long."""
FIRST_PAUSE: Final = 4.0
"""From a search in vain to the next one on a like drift, in times of what it took; doubles each time, up to a limit."""
MOST_PAUSE: Final = 64.0
LONGEST_PAUSE_S: Final = 3600.0
"""A search may have taken long for want of frames only."""


def leaving_stage(baseline: Measurement, measurement: Measurement) -> int | None:
    """The stage whose time, on one of its teams, is furthest outside its band: the noise of both measurements, at least
    10%. None: no stage is.

    Each band is for a difference of two measurements, so the root of the sum of their squares is 1.4 times what 95 in
    100 differences stay within. Demanding more would miss a busy process on a core, which makes a stage half as slow
    again, and noisier. A band is relative to the bottleneck, which is less than the time of each of several teams; so
    it is applied to the team's time if that is longer. A team has run only its share of the frames, and is only that
    share of the rate; so its limit is wider by the root of the number of teams.
    """
    excess = [
        max(_excess_s(baseline, measurement, pair, len(before_s)) for pair in zip(before_s, now_s, strict=True))
        for before_s, now_s in zip(_by_team(baseline), _by_team(measurement), strict=True)
    ]
    worst = max(range(len(excess)), key=excess.__getitem__)
    return worst if excess[worst] > 0 else None


def _by_team(measurement: Measurement) -> Sequence[Sequence[float]]:
    return measurement.team_s or [(seconds,) for seconds in measurement.service_s]


def _excess_s(baseline: Measurement, measurement: Measurement, pair: tuple[float, float], teams: int) -> float:
    before_s, now_s = pair
    if not math.isfinite(before_s) or not math.isfinite(now_s):
        return -math.inf  # a team that ran nothing says nothing
    noise_s = math.hypot(
        baseline.band * max(baseline.bottleneck_s, before_s), measurement.band * max(measurement.bottleneck_s, now_s)
    )
    return abs(now_s - before_s) - math.sqrt(teams) * max(LEAVING_FACTOR * noise_s, LEAVING_FLOOR * before_s)


@dataclass(slots=True)
class Baseline:
    """Known times of a watched plan. `outside`: for how many windows in a row a stage has been outside its band.

    `measured`: None until a first window. At another level of load the plan may take more or less time: there the first
    window is the baseline, unless it is far slower than `measured`.
    """

    measured: Measurement | None = None
    outside: int = 0
    _by_level: dict[int, Measurement] = field(default_factory=dict)

    def like(self, measurement: Measurement) -> Measurement | None:
        """The plan's known times at the level of load of this window."""
        known, level = self.measured, _level(measurement)
        if known is None or level == _level(known):
            return known
        is_slow = measurement.bottleneck_s > SLOWER_BY_LOAD * known.bottleneck_s
        return known if is_slow else self._by_level.setdefault(level, measurement)

    def left_by(self, measurement: Measurement) -> int | None:
        """Judge a window; return the stage (index) that has been outside its band for long enough, None if none has."""
        if self.measured is None or len(self.measured.service_s) != len(measurement.service_s):
            self.measured = measurement
            return None
        if not measurement.is_throttled_like(self.measured):  # what has changed is the quota, or who else uses it up
            return None
        known = self.like(measurement)
        stage = None if known is None else leaving_stage(known, measurement)
        self.outside = self.outside + 1 if stage is not None else 0
        return stage if self.outside >= WINDOWS_TO_LEAVE else None


def _level(measurement: Measurement) -> int:
    """Each level of load is half the one before; below the last level frames hardly become slower any more."""
    return min(_LEVELS - 1, math.floor(-math.log2(measurement.load))) if measurement.load > 0 else _LEVELS - 1


@dataclass(frozen=True, slots=True)
class Drift:
    """A stage (index) of the watched plan takes other than it did `before`: `ratio` times as long, as in `measurement`.

    `plan_now`: what the whole plan takes now, at the load of its baseline.
    """

    stage: int
    ratio: float
    before: Measurement
    measurement: Measurement
    plan_now: Measurement

    @property
    def size(self) -> float:
        """How far from 1 the ratio is, whether above or below."""
        return max(self.ratio, 1 / self.ratio) if self.ratio > 0 else math.inf


@dataclass(slots=True)
class _InVain:
    """Searches after drifts of a plan that found nothing better. `size`: of the largest of these drifts."""

    size: float = 1.0
    pause: float = FIRST_PAUSE
    until_s: float = -math.inf

    def again(self, size: float, took_s: float, now_s: float) -> None:
        self.size = max(self.size, size)
        self.until_s = now_s + min(self.pause * took_s, LONGEST_PAUSE_S)
        self.pause = min(2 * self.pause, MOST_PAUSE)


class DriftWatch:
    """Judges windows of the watched plan against its baseline. Allows for other processes on the cores, and for a host
    whose speed changes by itself.
    """

    def __init__(self) -> None:
        self.baseline = Baseline()
        self._disturbed_since_s = math.inf
        self._plan: Plan | None = None
        self._answering: tuple[Plan | None, float, float] | None = None  # the plan that drifted, how far, and when
        self._in_vain: dict[Plan | None, _InVain] = {}

    def begin(self, plan: Plan, baseline: Measurement | None, now_s: float) -> None:
        """Watch a plan, which took `baseline` when it was chosen; None: its first window is the baseline.

        Ends the search that the last drift has begun, if it is still under way.
        """
        self.baseline, self._plan = Baseline(baseline), plan
        answering, self._answering = self._answering, None
        if answering is None:
            return
        drifted, size, since_s = answering
        if plan == drifted:
            self._in_vain.setdefault(plan, _InVain()).again(size, now_s - since_s, now_s)
        else:
            self.forget()

    def forget(self) -> None:
        """Forget which searches were in vain, as the machine is another now."""
        self._in_vain.clear()

    def others_seen(self, others_ratio: float, now_s: float) -> None:
        """Note the share of the cores that other programs use."""
        self._disturbed_since_s = min(self._disturbed_since_s, now_s) if others_ratio > DISTURBED else math.inf

    @property
    def is_disturbed(self) -> bool:
        """Whether other processes have more of the cores than measurements bear."""
        return self._disturbed_since_s < math.inf

    def judge(self, measurement: Measurement, now_s: float) -> Drift | None:
        """Judge a window; return what has drifted, and is to be answered by a search, None while nothing has."""
        known = self.baseline.measured
        stage = self.baseline.left_by(measurement)
        passes = 0 <= now_s - self._disturbed_since_s < DISTURBANCE_S
        if stage is None or known is None or passes:
            return None
        before = self.baseline.like(measurement) or known
        ratio = measurement.service_s[stage] / before.service_s[stage] if before.service_s[stage] else 1.0
        drift = Drift(stage, ratio, before, measurement, measurement if before is known else known.scaled(ratio))
        vain = self._in_vain.get(self._plan)
        if vain is not None and now_s < vain.until_s and drift.size <= (1 + LEAVING_FLOOR) * vain.size:
            return None
        self._answering = self._plan, drift.size, now_s
        return drift
