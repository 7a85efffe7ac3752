"""A measurement made from the service times of a plan's frames.

It runs in the daemon's loop (R10), for up to as many stages as there are places: so each window is sorted only once,
by numpy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import Rate, rate_of, stage_seconds

MIN_FRAMES: Final = 8
"""Fewer frames of a stage are too few to estimate their spread."""

BAND_FLOOR: Final = 0.01
"""The smallest band: drift slower than a window does not show in it, and a smaller gain is not worth a new plan."""

# 1.96 would do for a known error. This one is estimated from the same frames, so its own error is added: Student's
# t for the batches' 7 degrees of freedom, 2.36.
_ERRORS_IN_BAND: Final = 2.36
_BATCHES: Final = 8
_MIN_FRAMES_IN_BATCH: Final = 4  # with fewer, one outlier makes up half of a batch's median


class StageFrames(NamedTuple):
    """A stage's frames in order: the team (index) and seconds of each. `alike`: alike teams, which are pooled."""

    teams: Sequence[int]
    seconds: Sequence[float]
    alike: bool = True


def _band(rate: Rate, noise_s: Sequence[float]) -> float:
    """Return the noise of the noisiest pool that reaches the bottleneck with it, as a share of the bottleneck."""
    bottleneck_s = rate.bottleneck_s
    reaching_s = (noise for own, noise in zip(rate.period_s, noise_s, strict=True) if own + noise >= bottleneck_s)
    return max(reaching_s) / bottleneck_s if bottleneck_s else 0.0


def measure_window(
    plan: Plan,
    windows: Sequence[StageFrames],
    *,
    took_s: float,
    frames_per_s: float,
    alone_s: Sequence[float] = (),
) -> Measurement:
    """Make a measurement from the service times of one epoch's frames after its warm-up.

    `windows`: the frames of each stage. `took_s`: how long the window lasted. `frames_per_s`: how fast frames came
    meanwhile. `alone_s`: seconds of frames with no other in flight. A team's time is its median, which outliers among
    less than half of its frames hardly change; a team without frames adds nothing.

    The bottleneck is the largest of several medians, and may be another pool's next time. So the band is that of the
    noisiest pool whose own band reaches the bottleneck.

    Raises ValueError if there is no stage, or one has fewer than `MIN_FRAMES` frames.
    """
    counts = [len(frames.seconds) for frames in windows]
    if not windows or min(counts) < MIN_FRAMES:
        raise ValueError(f"windows of {counts} frames: expected at least {MIN_FRAMES} each")
    plain = plan.is_plain
    by_team, pooled = _sorted_windows(plan, windows)
    times_s = [
        tuple(window.median_s for window in ran) * (len(stage.teams) if frames.alike else 1)
        for ran, stage, frames in zip(pooled, plan.stages, windows, strict=True)
    ]
    stage_s = tuple(map(stage_seconds, times_s))
    rate = rate_of(plan, times_s)
    bottleneck_s = rate.bottleneck_s
    load = min(1.0, frames_per_s * bottleneck_s) if bottleneck_s else 1.0
    return Measurement(
        stage_s,
        max(_band(rate, _pool_noise_s(plan, pooled, stage_s)), BAND_FLOOR),
        min(counts),
        took_s,
        rate=None if plain else rate,
        alone_s=median(alone_s) if len(alone_s) >= MIN_FRAMES else None,
        overlap=load if any(len(pool.teams) > 1 for pool in plan.pools) else 1.0,
        team_s=() if plain else tuple(tuple(window.median_s for window in team_windows) for team_windows in by_team),
        load=load,
    )


class _Sorted:
    """The seconds of a team's frames, in the order they ran (`window`) and ascending."""

    def __init__(self, window: npt.NDArray[np.float64]) -> None:
        self.window = window
        self.ascending = np.sort(window)
        self.median_s = float(_middle(self.ascending)) if len(window) else math.inf


def _middle(ascending: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The median along the last axis, which is sorted."""
    last = ascending.shape[-1] - 1
    middle: npt.NDArray[np.float64] = (ascending[..., last // 2] + ascending[..., last - last // 2]) / 2
    return middle


def _sorted_windows(plan: Plan, windows: Sequence[StageFrames]) -> tuple[list[list[_Sorted]], list[list[_Sorted]]]:
    """(stages, teams): windows, empty if a plain plan needs none; and the same with alike teams of a stage pooled."""
    plain = plan.is_plain
    by_team = [
        [] if frames.alike and plain else _by_team(frames, len(stage.teams))
        for frames, stage in zip(windows, plan.stages, strict=True)
    ]
    pooled = [
        [_Sorted(np.asarray(frames.seconds))] if frames.alike else of_team
        for frames, of_team in zip(windows, by_team, strict=True)
    ]
    return by_team, pooled


def _by_team(frames: StageFrames, teams: int) -> list[_Sorted]:
    ran, seconds = np.asarray(frames.teams), np.asarray(frames.seconds)
    ends = np.cumsum(np.bincount(ran, minlength=teams))
    return [_Sorted(part_s) for part_s in np.split(seconds[np.argsort(ran, kind="stable")], ends[:-1])]


def _pool_noise_s(plan: Plan, windows: Sequence[Sequence[_Sorted]], stage_s: Sequence[float]) -> tuple[float, ...]:
    """(stages,): seconds by which two measurements of the period of each stage's pool may differ."""
    errors = [0.0] * len(plan.stages)
    for pool in plan.pools:
        noise_s = sum(_stage_noise_s(windows[index], stage_s[index]) for index in pool.stages)
        for index in pool.stages:
            errors[index] = noise_s / len(pool.teams)
    return tuple(errors)


def _stage_noise_s(teams: Sequence[_Sorted], stage_s: float) -> float:
    """Noise of `rate.stage_seconds` in seconds. A slower team counts less, as it serves fewer frames."""
    ran = (team for team in teams if len(team.window) and team.median_s)
    errors_s = ((stage_s / ran_s.median_s) ** 2 / len(teams) * _median_error(ran_s) for ran_s in ran)
    return math.sqrt(2) * _ERRORS_IN_BAND * math.fsum(errors_s)


def _median_error(ran_s: _Sorted) -> float:
    """The standard error of a window's median: the larger of two estimates, as each misses errors that the other has.

    The first one holds for independent frames of any distribution, even skewed or bimodal; the usual
    1.2533 * 1.4826 * MAD / sqrt(n) holds for normal ones only. The second one covers slow drift, in which neighbouring
    frames are correlated, so that n frames say less than n independent ones.
    """
    if len(ran_s.window) < _MIN_FRAMES_IN_BATCH:
        return 0.5 * ran_s.median_s  # too few frames to estimate their spread
    error = _error_by_ranks(ran_s.ascending)
    if len(ran_s.window) >= _BATCHES * _MIN_FRAMES_IN_BATCH:
        return max(error, _error_by_batches(ran_s.window))
    return error


def _error_by_ranks(ascending: npt.NDArray[np.float64]) -> float:
    """Estimate from order statistics, for any distribution (McKean and Schrader 1984, Price and Bonett 2001).

    The number of frames below the true median is binomial with deviation sqrt(n) / 2. So the ranks `low` and `high` are
    (high - low) / sqrt(n) deviations from the middle on either side, and their values as many errors.
    """
    n = len(ascending)
    low = max(0, round((n - 1) / 2 - math.sqrt(n)))
    high = n - 1 - low
    return float(ascending[high] - ascending[low]) * math.sqrt(n) / (2 * (high - low))


def _error_by_batches(window: npt.NDArray[np.float64]) -> float:
    """Estimate from the medians of successive batches; the remainder of newest frames is left out."""
    size = len(window) // _BATCHES
    medians: list[float] = _middle(np.sort(window[: _BATCHES * size].reshape(_BATCHES, size))).tolist()
    mean = math.fsum(medians) / _BATCHES
    return math.sqrt(math.fsum((value - mean) ** 2 for value in medians) / (_BATCHES - 1) / _BATCHES)
