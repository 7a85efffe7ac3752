"""The frames of one epoch from which a plan's measurement is made. Pure: times are passed in.

The first frames are left out: they fault in the pages of tensors that cross new cuts, once for each slot, and find
cold caches. Then frames are taken until every stage has enough. While the band is still wide more are taken, and beyond
`KEPT_FRAMES` the oldest left out again, so that a disturbance passes instead of spoiling the trial; up to a limit of
frames and one of time. What has not passed by then is there to stay, and all frames together say more of it.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from shisha_rt.plan.measure import measure_window
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan

FRAMES: Final = 32
KEPT_FRAMES: Final = 128
MAX_FRAMES: Final = 512
MAX_S: Final = 5.0
LEAST_PERIODS: Final = 5
"""Of a CPU quota, that must have passed for their throttled part to mean something."""
WIDE_BAND: Final = 0.03


class Window:
    """Collects the service times of the stages of `epoch`; `warm_up` frames of each are passed over first.

    `alike` (stages,): whether all teams of each are. `last_s`: when a frame last came, or the window was opened.
    `time_scale`: by which the clock's seconds are longer than those of service times. `like`: the measurement that this
    one is to be held against: frames are taken until both were throttled alike, or for as long as may be.
    """

    def __init__(
        self,
        epoch: int,
        plan: Plan,
        alike: Sequence[bool],
        warm_up: int,
        now_s: float,
        *,
        time_scale: float = 1.0,
        like: Measurement | None = None,
    ) -> None:
        self.last_s = now_s
        self.epoch = epoch
        self._plan = plan
        self._alike = alike
        self._warm_up = warm_up
        self._time_scale = time_scale
        self._seen = [0] * len(plan.stages)
        self._team_of = [{lead: team for team, lead in enumerate(stage.leads)} for stage in plan.stages]
        self._ran = [array("q") for _ in plan.stages]  # the team of each frame of a stage, and its seconds
        self._seconds = [array("d") for _ in plan.stages]
        self._alone_s: list[float] = []
        self._since_s: float | None = None
        self._tried_at = 0
        self._like = like
        self._first_periods: tuple[int, int] | None = None
        self._last_periods = (0, 0)

    def came(self, now_s: float) -> None:
        """Note that a part came that is not to be counted."""
        self.last_s = now_s

    def add(self, stage: int, place: str, service_s: float, now_s: float) -> Measurement | None:
        """Count a frame that has passed `stage` in the worker of `place`.

        Return the measurement when this frame completes it.
        """
        self.last_s = now_s
        self._seen[stage] += 1
        if self._seen[stage] <= self._warm_up:
            return None
        if self._since_s is None:
            self._since_s = now_s
        self._ran[stage].append(self._team_of[stage][place])
        self._seconds[stage].append(service_s)
        frames = min(map(len, self._seconds))
        if frames < FRAMES:
            return None
        took_s = now_s - self._since_s
        last = frames >= MAX_FRAMES or took_s >= MAX_S
        if not last and (frames % FRAMES or frames == self._tried_at or not self._every_team_has_some()):
            return None
        self._tried_at = frames  # the frames of other stages that come before the next of this one say little more
        kept = frames if last else KEPT_FRAMES
        windows = [(ran[-kept:], seconds[-kept:]) for ran, seconds in zip(self._ran, self._seconds, strict=True)]
        measurement = measure_window(
            self._plan,
            windows,
            alike=self._alike,
            took_s=took_s,
            frames_per_s=(frames - 1) * self._time_scale / took_s if took_s else math.inf,
            alone_s=self._alone_s,
        )
        measurement = replace(measurement, throttled=self._throttled)
        if last:
            return measurement
        is_alike = self._like is None or measurement.is_throttled_like(self._like)
        return measurement if is_alike and self._is_long_enough and measurement.band <= WIDE_BAND else None

    def add_alone(self, latency_s: float) -> None:
        """Count a frame that met no other on its way through the plan."""
        self._alone_s.append(latency_s)

    def periods_passed(self, periods: int, throttled: int) -> None:
        """Count periods of the CPU quota that have passed, and those in which the quota was used up."""
        if self._since_s is not None:
            self._first_periods = self._first_periods or (periods, throttled)
            self._last_periods = periods, throttled

    @property
    def _is_long_enough(self) -> bool:
        """Whether the window spans enough periods of the CPU quota, if there is one."""
        return self._first_periods is None or self._throttled is not None

    @property
    def _throttled(self) -> float | None:
        if self._first_periods is None:
            return None
        periods, throttled = (last - first for last, first in zip(self._last_periods, self._first_periods, strict=True))
        return throttled / periods if periods >= LEAST_PERIODS else None

    def _every_team_has_some(self) -> bool:
        """Teams that are alike speak for each other."""
        return all(
            alike or len(set(ran)) == len(teams)
            for alike, ran, teams in zip(self._alike, self._ran, self._team_of, strict=True)
        )
