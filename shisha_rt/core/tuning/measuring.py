"""How the live plan's frames become measurements, how well those repeat, and when the plan leaves its baseline.

A window leaves its first frames out: they fault in the pages of tensors that cross new cuts, once for each slot, and
find cold caches. Then frames are taken until every stage has enough. While the band is still wide more are taken, and
beyond `KEPT_FRAMES` the oldest left out again, so that a disturbance passes instead of spoiling the trial; up to a
limit of frames and one of time. What has not passed by then is there to stay, and all frames together say more of it.

A host drifts over seconds, as other work comes and goes in its caches and on its cores, and a window of frames shorter
than that cannot see it: its own spread would promise a precision that the next window breaks. But a move leaves most
stages as they were. A stage of the same layers on the same place must take what it took before; by how much it does not
is what bands have to allow for.
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
from shisha_rt.plan.energy import NO_POWER, frame_joules
from shisha_rt.plan.measure import measure_window
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan, Stage

FRAMES: Final = 32
KEPT_FRAMES: Final = 128
MAX_FRAMES: Final = 512
MAX_S: Final = 5.0
LEAST_PERIODS: Final = 5
"""Of a CPU quota, that must have passed for their throttled part to mean something."""
WIDE_BAND: Final = 0.03

ASSUMED: Final = 0.02
"""Relative difference of two measurements of one stage, until enough have been seen."""

_ASSUMED_COUNT: Final = 8
_KEPT: Final = 96  # differences of two measurements
_COMPARED: Final = 6  # earlier measurements of a stage: the last alone would see drift over one trial only
_MATTERS: Final = 0.5  # of the bottleneck; shorter stages repeat worse, and it does not matter

# A quantile that the largest fifth cannot move: moments at which something else ran are no measure of the others.
_QUANTILE: Final = 0.8
_TO_95_IN_100: Final = NormalDist().inv_cdf(0.975) / NormalDist().inv_cdf((1 + _QUANTILE) / 2)

LEAVING_FACTOR: Final = 1.0
LEAVING_FLOOR: Final = 0.1
WINDOWS_TO_LEAVE: Final = 3
"""A stage has left its band when it was outside it, by these measures, for this many windows on end."""
SLOWER_BY_LOAD: Final = 1.5
"""Stages may take so many times as long when frames come seldom (a seventh longer was seen), and less where copies wait
for one memory under load."""
_LEVELS: Final = 4


class Measuring:
    """The live plan's measurement, one at a time. `warm_up`: frames of each stage that are passed over first."""

    def __init__(self, serving: Serving, choice: Choice, warm_up: int) -> None:
        self.repeatability = Repeatability()
        self._serving = serving
        self._choice = choice
        self._warm_up = warm_up
        self._window: Window | None = None

    @property
    def epoch(self) -> int | None:
        """Whose frames are measured; None: nobody's."""
        return None if self._window is None else self._window.epoch

    def begin(self, now_s: float, like: Measurement | None) -> None:
        """With the live plan. `like`: the measurement that it is to be held against, if there is one."""
        self._open(now_s, like, self._warm_up)

    def go_on(self, now_s: float, like: Measurement | None) -> None:
        """The same with a plan that has served for a while."""
        self._open(now_s, like, warm_up=0)

    def _open(self, now_s: float, like: Measurement | None, warm_up: int) -> None:
        live, choice = self._serving.live, self._choice
        assert live is not None
        alike = [choice.are_alike(stage) for stage in live[1].stages]
        machine, target_s = choice.machine, choice.target_s
        self._window = Window(
            *live,
            alike,
            warm_up,
            now_s,
            time_scale=machine.time_scale,
            like=like,
            power_w=machine.power_w,
            target_s=target_s,
        )

    def end(self) -> None:
        self._window = None

    def part_taken(self, part: ev.PartTaken, now_s: float) -> Measurement | None:
        """A part of a frame has been computed: it may complete the measurement, which ends with that."""
        window, judged = self._window, None
        if window is not None and part.epoch == window.epoch and not self._serving.changing:
            judged = window.add(part.stage, part.place, part.service_s, now_s)
        elif window is not None:
            window.came(now_s)
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


class Window:
    """Collects the service times of the stages of `epoch`; `warm_up` frames of each are passed over first.

    `alike` (stages,): whether all teams of each are. `last_s`: when a frame last came, or the window was opened.
    `time_scale`: by which the clock's seconds are longer than those of service times. `like`: the measurement that this
    one is to be held against: frames are taken until both were throttled alike, or for as long as may be. `power_w`: of
    the places, empty where that is not known; a plan whose frames by themselves are late for `target_s` is no plan for
    energy.
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
        power_w: Mapping[str, float] = NO_POWER,
        target_s: float = math.inf,
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
        self._power_w = power_w
        self._target_s = target_s
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
        measurement = replace(measurement, throttled=self._throttled, energy_j=self._energy_j(measurement))
        if last:
            return measurement
        is_alike = self._like is None or measurement.is_throttled_like(self._like)
        return measurement if is_alike and self._is_long_enough and measurement.band <= WIDE_BAND else None

    def _energy_j(self, measurement: Measurement) -> float:
        if not self._power_w or self._time_scale * measurement.latency_s > self._target_s:
            return math.inf
        team_s = measurement.team_s or [
            (seconds,) * len(stage.teams)
            for seconds, stage in zip(measurement.service_s, self._plan.stages, strict=True)
        ]
        if any(math.isinf(seconds) for teams_s in team_s for seconds in teams_s):
            return math.inf  # a team that has run no frame yet would look free
        return frame_joules(self._plan, team_s, self._power_w)

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


class Repeatability:
    """Repeatability of measurements on one machine, whatever the plans."""

    def __init__(self) -> None:
        self._differences = deque([ASSUMED] * _ASSUMED_COUNT, _KEPT)
        self._seen_s: defaultdict[Stage, deque[float]] = defaultdict(lambda: deque(maxlen=_COMPARED))

    @property
    def band(self) -> float:
        """Relative: 95 in 100 pairs of measurements of one stage differ by no more."""
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
        """What stages took holds no longer; how well measurements repeat may still."""
        self._seen_s.clear()


def leaving_stage(baseline: Measurement, measurement: Measurement) -> int | None:
    """The stage whose time, on one of its teams, is furthest outside its band: beyond the noise of both, and 10%.

    Each band is for a difference of two, so their root sum of squares is 1.4 times what 95 in 100 stay within.
    Demanding more would miss a busy process on a core: it makes a stage half as slow again, and its noise, too.
    A band is relative to the bottleneck, which of several teams is less than what each takes; and each has run only its
    share of the frames, and is only that share of the rate.
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
    """What a watched plan is known to take, and for how many windows in a row a stage has been outside its band.

    `measured` is None until a first window says what the plan takes. At another level of load it may take longer or
    less; what it takes there its first window says that does not belie `measured`.
    """

    measured: Measurement | None = None
    outside: int = 0
    _by_level: dict[int, Measurement] = field(default_factory=dict)

    def like(self, measurement: Measurement) -> Measurement | None:
        """What the plan is known to take under a load like that of a window."""
        known, level = self.measured, _level(measurement)
        if known is None or level == _level(known):
            return known
        is_slow = measurement.bottleneck_s > SLOWER_BY_LOAD * known.bottleneck_s
        return known if is_slow else self._by_level.setdefault(level, measurement)

    def left_by(self, measurement: Measurement) -> int | None:
        """The stage (index) that has left its band for good, by a window of the plan; None: none has."""
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
    """Levels of load are halves of each other; below the last frames hardly become slower any more."""
    return min(_LEVELS - 1, math.floor(-math.log2(measurement.load))) if measurement.load > 0 else _LEVELS - 1
