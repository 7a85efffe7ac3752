"""The stages of a plan, as in `status`, `plan_get` and trials, made ready to be shown.

A stage's period is what it adds to the time between two frames: its own time / the number of its teams. In a pool of
several stages periods add up; the slowest pool is the one with the largest sum.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from shisha_rt.plan.engine import is_exact
from shisha_rt.plan.form import plan_of
from shisha_rt.plan.plan import Plan, Stage, Team, team_name
from shisha_rt.plan.rate import Rate, rate_of
from shisha_rt.show.picture import Box, milliseconds, stage_in_words, teams_in_words

Stages: TypeAlias = Sequence[Mapping[str, Any]]

_UNLIKE: Final = 1.1
"""If the slowest copy takes more than this many times as long as the fastest, their times are shown one by one."""

_MOST_NOTES: Final = 3
_MOST_NAMES: Final = 4


def slowest_of(stages: Stages) -> int | None:
    """The bottleneck by the stages' measured times; None while a stage has none."""
    rate = rate_seen(stages)
    return None if rate is None else rate.slowest_stage


def rate_seen(stages: Stages) -> Rate | None:
    """The rate that follows from the stages' measured times; None while a stage has none."""
    times_s = [stage["service_s"] for stage in stages]
    if not times_s or None in times_s:
        return None
    plan = plan_of(stages)
    alike = [[time_s] * len(stage.teams) for stage, time_s in zip(plan.stages, times_s, strict=True)]
    return rate_of(plan, alike)


def period_s(stage: Stage, service_s: float | None) -> float | None:
    """What a stage adds to the time between two frames."""
    return None if service_s is None else service_s / len(stage.teams)


def unused_places(plan: Plan, places: Iterable[str]) -> list[str]:
    """Those of `places` on which the plan has no stage."""
    used = set(plan.places)
    return [name for name in places if name not in used]


def _frame_s(served: Mapping[str, Any]) -> float | None:
    """What a team of the stage takes for a frame: the harmonic mean over its teams, as that / teams is the period."""
    times_s = [team["service_s"] for team in served.get("teams", ())]
    if not times_s or not all(times_s):  # the median of all frames then stands for those without
        service_s: float | None = served["service_s"]
        return service_s
    first_s: float = times_s[0]  # as the unit: alike times have this mean to the last digit
    return first_s * len(times_s) / math.fsum(first_s / time_s for time_s in times_s)


def stage_boxes(stages: Stages, slowest: int | None) -> list[Box]:
    """A box for each stage. A full bar is the slowest pool's time for a frame."""
    plan = plan_of(stages)
    periods = _periods_s(plan, stages)
    full_s = max((math.fsum(periods[index] or 0.0 for index in pool.stages) for pool in plan.pools), default=0.0)
    return [
        Box(
            teams_in_words(stage.teams),
            stage_in_words(stage),
            time_in_words(_frame_s(served), len(stage.teams)),
            (own_s or 0.0) / full_s if full_s else 0.0,
            index == slowest,
            _notes(served.get("teams", ())),
            stage.after,
        )
        for index, (stage, served, own_s) in enumerate(zip(plan.stages, stages, periods, strict=True))
    ]


def time_in_words(service_s: float | None, teams: int) -> str:
    """Time of one team, and the number of teams: `3.20 ms / 2` is a frame every 1.60 ms from two copies."""
    if service_s is None:
        return "no frames yet"
    return milliseconds(service_s) + (f" / {teams}" if teams > 1 else "")


def pool_lines(stages: Stages) -> list[str]:
    """A line for each pool that serves several stages, with the pool's total time for a frame."""
    plan = plan_of(stages)
    periods = _periods_s(plan, stages)
    lines = []
    for pool in plan.pools:
        if len(pool.stages) > 1:
            works = [stage_in_words(plan.stages[index]) for index in pool.stages]
            shared = " and ".join(works) if len(works) <= _MOST_NAMES else f"{len(works)} stages"
            known_s = [own_s for index in pool.stages if (own_s := periods[index]) is not None]
            total = f": {milliseconds(math.fsum(known_s))} a frame" if len(known_s) == len(pool.stages) else ""
            lines.append(f"{shared} share {_named(pool.teams)}{total}")
    return lines


def placement_lines(stages: Stages) -> list[str]:
    """A line for each placed stage (segments, predicted and measured times) or whose engine changes results."""
    lines = []
    for served, stage in zip(stages, plan_of(stages).stages, strict=True):
        placement = served.get("placement")
        if not is_exact(stage.engine) and served["difference"]:
            by = f"{served['difference']:.2g} of the largest"
            lines.append(f"{_named(stage.teams)}: {stage.engine} changes outputs by up to {by}")
        if placement is not None:
            segments = " → ".join(map(_segment, placement["segments"]))
            predicted = milliseconds(placement["predicted_s"])
            lines.append(f"{_named(stage.teams)} ({placement['solver']}, {predicted} predicted): {segments}")
            if served["difference"]:
                lines[-1] += f"; its rounding changes outputs by up to {served['difference']:.2g} of the largest"
    return lines


def _segment(segment: Mapping[str, Any]) -> str:
    measured_s = segment["measured_s"]
    taken = "" if measured_s is None else f", {milliseconds(measured_s)}"
    return f"{segment['device']} ({segment['operators']} operators{taken})"


def _periods_s(plan: Plan, stages: Stages) -> list[float | None]:
    return [period_s(stage, _frame_s(served)) for stage, served in zip(plan.stages, stages, strict=True)]


def _named(teams: Sequence[Team]) -> str:
    names = [*map(team_name, teams)]
    if len(names) > _MOST_NAMES:
        names = [*names[: _MOST_NAMES - 1], f"{len(names) - _MOST_NAMES + 1} more"]
    return ", ".join(names)


def _notes(teams: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Notes on single copies: unlike times, and copies that are not up."""
    if len(teams) < 2:
        return ()
    times = {"+".join(team["places"]): team["service_s"] for team in teams if team["service_s"] is not None}
    states = {"+".join(team["places"]): team["state"] for team in teams if team["state"] != "up"}
    is_unlike = len(times) > 1 and max(times.values()) > _UNLIKE * min(times.values())
    if len(teams) <= _MOST_NOTES:
        names = ["+".join(team["places"]) for team in teams]
        known = {name: [milliseconds(times[name])] if is_unlike and name in times else [] for name in names}
        for name, state in states.items():
            known[name].append(state)
        return tuple(f"{name} {', '.join(words)}" for name, words in known.items() if words)
    notes = []
    if is_unlike:
        ends = (min(times, key=times.__getitem__), max(times, key=times.__getitem__))
        notes.append(" to ".join(f"{milliseconds(times[name])} ({name})" for name in ends))
    if states:
        notes.append(f"{len(states)} of {len(teams)} not up")
    return tuple(notes)
