"""How the live plan's frames become measurements.

A window skips its first frames: they meet cold caches, and page faults in tensors that cross new cuts, once for each
slot. Then frames are counted until every stage has enough. While the band is too wide, more frames are taken, and only
the newest `KEPT_FRAMES` count, so that a disturbance passes instead of spoiling the trial. At a limit of frames or of
time all frames count: a disturbance that has not passed by then is there to stay.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from shisha_rt.core.tuning import events as ev
from shisha_rt.core.tuning.choice import Choice
from shisha_rt.core.tuning.repeatability import Repeatability
from shisha_rt.core.tuning.state import Serving
from shisha_rt.plan.energy import frame_joules
from shisha_rt.plan.measure import StageFrames, measure_window
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan

FRAMES: Final = 32
KEPT_FRAMES: Final = 128
MAX_FRAMES: Final = 512
MAX_S: Final = 5.0
REST_S: Final = 0.2
"""From a window of a plan that is only watched to the next: parts and windows cost the daemon time, which it would take
from short frames.
"""
LEAST_PERIODS: Final = 5
"""Periods of a CPU quota that a window must have for its fraction of throttled periods to mean something."""
WIDE_BAND: Final = 0.03


class Measuring:
    """Measures the live plan in windows (`window`; None: not measured). `warm_up`: frames skipped for each stage."""

    def __init__(self, serving: Serving, choice: Choice, warm_up: int) -> None:
        self.repeatability = Repeatability()
        self._serving = serving
        self._choice = choice
        self._warm_up = warm_up
        self.window: Window | None = None

    @property
    def epoch(self) -> int | None:
        """The epoch whose frames are measured; None: nothing is measured."""
        return None if self.window is None else self.window.epoch

    def begin(self, now_s: float, like: Measurement | None, *, again: bool = False) -> None:
        """Begin to measure the live plan. `like`: the measurement that it will be compared with, if there is one.
        `again`: as the plan has served for a while, no frames are skipped; the window opens after a rest.
        """
        live, choice, machine = self._serving.live, self._choice, self._choice.machine
        assert live is not None
        alike = [choice.are_alike(stage) for stage in live[1].stages]
        conditions = Conditions(0 if again else self._warm_up, machine.time_scale, machine.power_w, choice.target_s)
        self.window = Window(live, alike, now_s + REST_S if again else now_s, conditions, like)

    def end(self) -> None:
        self.window = None

    def wants_parts(self, now_s: float) -> bool:
        return self.window is not None and now_s >= self.window.opens_s

    def part_taken(self, part: ev.PartTaken, now_s: float) -> Measurement | None:
        """Count a part; if it completes the measurement, end that and return it."""
        window, judged = self.window, None
        if window is not None and now_s < window.opens_s:
            return None
        if window is not None and part.epoch == window.epoch and not self._serving.changing:
            judged = window.add(part.stage, part.place, part.service_s, now_s)
        else:
            self.frame_seen(now_s)
        if judged is not None:
            self.window = None
        return judged

    def frame_seen(self, now_s: float) -> None:
        """Note that frames come, though this one does not count."""
        if self.window is not None:
            self.window.last_s = max(self.window.last_s, now_s)

    def frame_alone(self, alone: ev.FrameAlone) -> None:
        if self.window is not None and alone.epoch == self.window.epoch:
            self.window.add_alone(alone.latency_s)

    def periods_passed(self, counted: ev.PeriodsCounted) -> None:
        if self.window is not None:
            self.window.periods_passed(counted.periods, counted.throttled)

    def quiet_s(self, now_s: float) -> float:
        """Seconds without a frame; 0 while nothing is being measured."""
        return 0.0 if self.window is None else now_s - self.window.last_s


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a window is measured under. `warm_up`: first frames of each stage, which are skipped. `time_scale`: factor
    from service times to the clock's seconds. `power_w`: of the places; empty if not known. The energy of a plan whose
    single frames miss `target_s` is inf.
    """

    warm_up: int = 0
    time_scale: float = 1.0
    power_w: Mapping[str, float] = field(default_factory=dict)
    target_s: float = math.inf


class Window:
    """Collects the service times of the stages of the live epoch.

    `alike` (stages,): whether all teams of a stage are alike. `last_s`: when a frame last came, or the window opens.
    `like`: the measurement that this one will be compared with: frames are taken until both were throttled alike, or a
    limit is reached.
    """

    def __init__(
        self,
        live: tuple[int, Plan],
        alike: Sequence[bool],
        opens_s: float,
        conditions: Conditions,
        like: Measurement | None = None,
    ) -> None:
        self.opens_s = self.last_s = opens_s
        self.epoch, plan = live
        self._plan = plan
        self._alike = alike
        self._conditions = conditions
        self._seen = [0] * len(plan.stages)
        self._team_of = [{lead: team for team, lead in enumerate(stage.leads)} for stage in plan.stages]
        self._ran = [array("q") for _ in plan.stages]  # the team of each frame of a stage, and its seconds
        self._seconds = [array("d") for _ in plan.stages]
        self._alone_s: deque[float] = deque(maxlen=MAX_FRAMES)
        self._since_s: float | None = None
        self._tried_at = 0
        self._like = like
        self._first_periods: tuple[int, int] | None = None
        self._last_periods = (0, 0)

    def add(self, stage: int, place: str, service_s: float, now_s: float) -> Measurement | None:
        """Count a frame that `stage` on `place` has computed; return the measurement if this frame completes it."""
        self.last_s = now_s
        self._seen[stage] += 1
        if self._seen[stage] <= self._conditions.warm_up:
            return None
        if self._since_s is None:
            self._since_s = now_s
        self._ran[stage].append(self._team_of[stage][place])
        self._seconds[stage].append(service_s)
        if len(self._ran[stage]) > MAX_FRAMES:  # another stage has few, as one whose batches do not fill
            del self._ran[stage][0], self._seconds[stage][0]
        frames = min(map(len, self._seconds))
        if frames < FRAMES:
            return None
        took_s = now_s - self._since_s
        last = frames >= MAX_FRAMES or took_s >= MAX_S
        if not last and (frames % FRAMES or frames == self._tried_at or not self._every_team_has_some()):
            return None
        self._tried_at = frames  # once for each count: parts of other stages meanwhile add little
        kept = frames if last else KEPT_FRAMES
        windows = [
            StageFrames(ran[-kept:], seconds[-kept:], alike)
            for ran, seconds, alike in zip(self._ran, self._seconds, self._alike, strict=True)
        ]
        frames_per_s = (frames - 1) * self._conditions.time_scale / took_s if took_s else math.inf
        measurement = measure_window(
            self._plan, windows, took_s=took_s, frames_per_s=frames_per_s, alone_s=self._alone_s
        )
        measurement = replace(measurement, throttled=self._throttled, energy_j=self._energy_j(measurement))
        if last:
            return measurement
        is_alike = self._like is None or measurement.is_throttled_like(self._like)
        return measurement if is_alike and self._is_long_enough and measurement.band <= WIDE_BAND else None

    def _energy_j(self, measurement: Measurement) -> float:
        conditions = self._conditions
        if not conditions.power_w or conditions.time_scale * measurement.latency_s > conditions.target_s:
            return math.inf
        team_s = measurement.team_s or [
            (seconds,) * len(stage.teams)
            for seconds, stage in zip(measurement.service_s, self._plan.stages, strict=True)
        ]
        if any(math.isinf(seconds) for teams_s in team_s for seconds in teams_s):
            return math.inf  # a team that has run no frame yet would look free
        return frame_joules(self._plan, team_s, conditions.power_w)

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
        """Whether each team has computed a frame; of teams that are alike, one is enough."""
        return all(
            alike or len(set(ran)) == len(teams)
            for alike, ran, teams in zip(self._alike, self._ran, self._team_of, strict=True)
        )
