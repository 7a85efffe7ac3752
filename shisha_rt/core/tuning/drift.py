"""When the live plan no longer takes what it was measured to take: the machine has changed, or what else runs on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from shisha_rt.plan.measurement import Measurement

LEAVING_FACTOR: Final = 1.0
LEAVING_FLOOR: Final = 0.05
WINDOWS_TO_LEAVE: Final = 3
"""A stage has left its band when it was outside it, by these measures, for this many windows on end."""


def leaving_stage(baseline: Measurement, measurement: Measurement) -> int | None:
    """The stage whose time, on one of its teams, is furthest outside its band: beyond the noise of both, and 5%.

    Each band is for a difference of two, so their root sum of squares is 1.4 times what 95 in 100 stay within.
    Demanding more would miss a busy process on a core: it makes a stage half as slow again, and its noise, too.
    A band is relative to the bottleneck, which of several teams is less than what each takes; and each has run only its
    share of the frames.
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
    noise_s = math.sqrt(teams) * math.hypot(
        baseline.band * max(baseline.bottleneck_s, before_s), measurement.band * max(measurement.bottleneck_s, now_s)
    )
    return abs(now_s - before_s) - max(LEAVING_FACTOR * noise_s, LEAVING_FLOOR * before_s)


@dataclass(slots=True)
class Baseline:
    """What a watched plan is known to take, and for how many windows in a row a stage has been outside its band.

    `measured` is None until a first window says what the plan takes.
    """

    measured: Measurement | None = None
    outside: int = 0

    def left_by(self, measurement: Measurement) -> int | None:
        """The stage (index) that has left its band for good, by a window of the plan; None: none has."""
        if self.measured is None or len(self.measured.service_s) != len(measurement.service_s):
            self.measured = measurement
            return None
        if not measurement.is_throttled_like(self.measured):  # what has changed is the quota, or who else uses it up
            return None
        stage = leaving_stage(self.measured, measurement)
        self.outside = self.outside + 1 if stage is not None else 0
        return stage if self.outside >= WINDOWS_TO_LEAVE else None
