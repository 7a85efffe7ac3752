"""How the live plan's frames become measurements, how well measurements repeat, and when the plan leaves its baseline.

A window skips its first frames: they meet cold caches, and page faults in tensors that cross new cuts, once for each
slot. Then frames are counted until every stage has enough. While the band is too wide, more frames are taken, and only
the newest `KEPT_FRAMES` count, so that a disturbance passes instead of spoiling the trial. At a limit of frames or of
time all frames count: a disturbance that has not passed by then is there to stay.

A host drifts over seconds, as other work comes and goes in its caches and on its cores. A window shorter than that
cannot see the drift, so its own spread would promise more precision than there is. But a move leaves most stages as
they were, and a stage of the same layers on the same place should take the same time as before: bands allow for the
differences seen between measurements of the same stage.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Final

from shisha_rt.core.tuning import events as ev
from shisha_rt.core.tuning.choice import Choice
from shisha_rt.core.tuning.state import Serving
from shisha_rt.plan.energy import frame_joules
from shisha_rt.plan.measure import StageFrames, measure_window
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan, Stage

FRAMES: Final = 32
KEPT_FRAMES: Final = 128
MAX_FRAMES: Final = 512
MAX_S: Final = 5.0
LEAST_PERIODS: Final = 5
"""Periods of a CPU quota that a window must have for its fraction of throttled periods to mean something."""
WIDE_BAND: Final = 0.03

ASSUMED: Final = 0.02
"""Assumed relative difference of two measurements of one stage, until enough have been seen."""

_ASSUMED_COUNT: Final = 8
_KEPT: Final = 96  # differences of two measurements
_COMPARED: Final = 6  # earlier measurements of a stage: the last alone would see drift over one trial only
_MATTERS: Final = 0.5  # of the bottleneck; shorter stages repeat worse, and it does not matter

# The largest fifth of differences, measured while something else ran, cannot move this quantile.
_QUANTILE: Final = 0.8
_TO_95_IN_100: Final = NormalDist().inv_cdf(0.975) / NormalDist().inv_cdf((1 + _QUANTILE) / 2)

LEAVING_FACTOR: Final = 1.0
LEAVING_FLOOR: Final = 0.1
WINDOWS_TO_LEAVE: Final = 3
"""A stage has left its band if it was outside it, by these limits, for so many windows in a row."""
SLOWER_BY_LOAD: Final = 1.5
"""At another load a plan may take up to so many times as long without being a drift: longer if frames come seldom (a
seventh longer was seen), less if copies do not compete for one memory then."""
_LEVELS: Final = 4


class Measuring:
    """Measures the live plan, one window at a time. `warm_up`: first frames of each stage, which are skipped."""

    def __init__(self, serving: Serving, choice: Choice, warm_up: int) -> None:
        self.repeatability = Repeatability()
        self._serving = serving
        self._choice = choice
        self._warm_up = warm_up
        self._window: Window | None = None

    @property
    def epoch(self) -> int | None:
        """The epoch whose frames are measured; None: nothing is measured."""
        return None if self._window is None else self._window.epoch

    def begin(self, now_s: float, like: Measurement | None, *, is_warm: bool = False) -> None:
        """Begin to measure the live plan. `like`: the measurement that it will be compared with, if there is one.
        `is_warm`: it has served for a while, so no frames are skipped.
        """
        live, choice, machine = self._serving.live, self._choice, self._choice.machine
        assert live is not None
        alike = [choice.are_alike(stage) for stage in live[1].stages]
        warm_up = 0 if is_warm else self._warm_up
        conditions = Conditions(warm_up, machine.time_scale, machine.power_w, choice.target_s)
        self._window = Window(live, alike, now_s, conditions, like)

    def end(self) -> None:
        self._window = None

    def part_taken(self, part: ev.PartTaken, now_s: float) -> Measurement | None:
        """Count a part; if it completes the measurement, end that and return it."""
        window, judged = self._window, None
        if window is not None and part.epoch == window.epoch and not self._serving.changing:
            judged = window.add(part.stage, part.place, part.service_s, now_s)
        elif window is not None:
            window.last_s = now_s
        if judged is not None:
            self._window = None
        return judged

    def frame_alone(self, alone: ev.FrameAlone) -> None:
        if self._window is not None and alone.epoch == self._window.epoch:
            self._window.add_alone(alone.latency_s)

    def periods_passed(self, counted: ev.PeriodsCounted) -> None:
        if self._window is not None:
            self._window.periods_passed(counted.periods, counted.throttled)

    def quiet_s(self, now_s: float) -> float:
        """Seconds without a frame to measure; 0 while nothing is being measured."""
        return 0.0 if self._window is None else now_s - self._window.last_s


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

    `alike` (stages,): whether all teams of a stage are alike. `last_s`: when a frame last came, or the window was
    opened. `like`: the measurement that this one will be compared with: frames are taken until both were throttled
    alike, or a limit is reached.
    """

    def __init__(
        self,
        live: tuple[int, Plan],
        alike: Sequence[bool],
        now_s: float,
        conditions: Conditions,
        like: Measurement | None = None,
    ) -> None:
        self.last_s = now_s
        self.epoch, plan = live
        self._plan = plan
        self._alike = alike
        self._conditions = conditions
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

    def add(self, stage: int, place: str, service_s: float, now_s: float) -> Measurement | None:
        """Count a frame that has passed `stage` in the worker of `place`.

        Return the measurement when this frame completes it.
        """
        self.last_s = now_s
        self._seen[stage] += 1
        if self._seen[stage] <= self._conditions.warm_up:
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


class Repeatability:
    """Repeatability of measurements on one machine, whatever the plans."""

    def __init__(self) -> None:
        self._differences = deque([ASSUMED] * _ASSUMED_COUNT, _KEPT)
        self._seen_s: defaultdict[Stage, deque[float]] = defaultdict(lambda: deque(maxlen=_COMPARED))

    @property
    def band(self) -> float:
        """Relative difference that 95 in 100 pairs of measurements of one stage do not exceed."""
        ascending = sorted(self._differences)
        return _TO_95_IN_100 * ascending[math.ceil(_QUANTILE * len(ascending)) - 1]

    def widen(self, measurement: Measurement) -> Measurement:
        """The same measurement with a band that allows for drift as well."""
        return replace(measurement, band=max(measurement.band, self.band))

    def observe(self, plan: Plan, measurement: Measurement) -> None:
        """Learn from the stages of `plan` that have been measured before."""
        if not measurement.can_run:
            return
        for stage, service_s in zip(plan.stages, measurement.service_s, strict=True):
            if service_s < _MATTERS * measurement.bottleneck_s or service_s == 0:
                continue
            self._differences.extend(abs(math.log(service_s / before_s)) for before_s in self._seen_s[stage])
            self._seen_s[stage].append(service_s)

    def machine_changed(self) -> None:
        """Forget what stages took; how well measurements repeat may still hold."""
        self._seen_s.clear()


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
