"""The plan of the least energy a frame, with a latency within a limit.

Energy is a sum over stages: the power of a stage's team times the seconds that it is busy. Copies do not change it, so
the search is for a chain with one team for each stage; places left over of the same kinds may serve as copies.

This is a shortest path over positions, constrained by latency and by the places of each kind. Labels are set from the
network's begin: joules and seconds of the stages up to a position, and the places that they use. A label is dropped if
another one at its position is as good in everything, or if the shortest path to the end with unlimited places shows
that it cannot keep the latency or cannot beat the best plan.

If the times of all stages are too many to list, only some of the cuts are searched.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from shisha_rt.arrays import Bools, Floats
from shisha_rt.costs.costs import Costs
from shisha_rt.outcome import STOPPED, Outcome
from shisha_rt.plan.plan import Plan
from shisha_rt.planner.chains import (
    MOST_PERIODS,
    TOLERANCE,
    TeamKind,
    layer_seconds,
    least_left,
    seconds_of,
    team_kinds,
)
from shisha_rt.planner.goal import Goal
from shisha_rt.planner.kinds import StageCosts, stage_costs
from shisha_rt.planner.solution import PLAIN_CHAINS, PlanSolution

_TEAMS: Final = "chains of stages, each on a team of its own"
_MOST_LABELS: Final = 1 << 18


class _Label(NamedTuple):
    """Stages up to a position. `used`: places of each kind, then the number of stages if it is limited. `team`: of the
    last stage, which begins where `before` ends.
    """

    joules: float
    seconds: float
    used: tuple[int, ...]
    position: int
    team: int = 0
    before: _Label | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Space:
    """`seconds` and `joules` (teams, positions, positions): by begin and end, inf if there is no such stage.

    `seconds_left` and `joules_left` (positions,): the least to the end, with unlimited places. `needs` (teams,
    resources) and `limits` (resources,): places of each kind, then the number of stages if it is limited.
    """

    teams: tuple[TeamKind, ...]
    seconds: Floats
    joules: Floats
    seconds_left: Floats
    joules_left: Floats
    needs: Sequence[tuple[int, ...]]
    limits: tuple[int, ...]


def least_energy(costs: Costs, goal: Goal) -> PlanSolution:
    """The plan of least energy with a latency of at most `goal.latency_s`. Raises ValueError if power is unknown."""
    if not costs.power_w:
        raise ValueError("energy is power times time: expected power_w of every place")
    whole = stage_costs(costs)
    model = whole.with_fewer_cuts(math.isqrt(MOST_PERIODS // len(team_kinds(whole, goal))) - 1)
    is_partial = model.groups < whole.groups
    space = _space(model, goal)
    best, labels, is_searched = _search(space, goal)
    is_whole = is_searched and not is_partial
    statistics = {"kinds": len(model.kinds), "labels": labels}
    among = _TEAMS if goal.replicate else PLAIN_CHAINS
    solution = PlanSolution(None, Outcome.LIMIT, statistics=statistics, space=among, is_partial=is_partial)
    if best is None and not is_whole:
        reason = f"{whole.groups - 1} cuts are too many to search them all" if is_searched else STOPPED
        return replace(solution, reason=reason)
    if best is None:
        return replace(solution, outcome=Outcome.INFEASIBLE, reason=_why_none(model, space, goal))
    if is_partial:
        bound_j = _least_joules(whole, space.teams)
    else:
        bound_j = best.joules if is_whole else float(space.joules_left[0])
    return replace(
        solution,
        answer=_with_copies(model, space, best, goal),
        outcome=Outcome.OPTIMAL if is_whole else Outcome.FEASIBLE,
        lower_bound_j=bound_j * (1 - TOLERANCE),
    )


def _least_joules(model: StageCosts, teams: Sequence[TeamKind]) -> float:
    """A lower bound of a plan's joules: each layer on the team that needs the least for it, without entry costs."""
    layers_j = np.array(layer_seconds(model, teams)) * _power_w(model, teams)[:, None]
    return float(np.fmin.reduce(layers_j).sum())


def _power_w(model: StageCosts, teams: Sequence[TeamKind]) -> Floats:
    return np.array([size * model.costs.power_w[model.kinds[kind].name] for kind, size in teams])


def _space(model: StageCosts, goal: Goal) -> _Space:
    teams = team_kinds(model, goal)
    seconds = seconds_of(model, teams)
    joules = seconds.busy_s * _power_w(model, teams)[:, None, None]
    # Among plans of equal energy, prefer few stages.
    joules += TOLERANCE / model.groups * least_left(joules.min(axis=0))[0]
    counts = tuple(len(kind.places) for kind in model.kinds)
    most = goal.most_stages or model.groups
    is_limited = most < min(sum(counts), model.groups)
    needs = [tuple(size * (kind == at) for at in range(len(counts))) + (1,) * is_limited for kind, size in teams]
    return _Space(
        teams,
        seconds.alone_s,
        joules,
        least_left(seconds.alone_s.min(axis=0)),
        least_left(joules.min(axis=0)),
        needs,
        counts + (most,) * is_limited,
    )


def _search(space: _Space, goal: Goal) -> tuple[_Label | None, int, bool]:
    """The best label at the end, None if there is none; the number of labels set; and whether all were expanded."""
    end = len(space.joules_left) - 1
    most_s = goal.latency_s * (1 + TOLERANCE)
    waiting: list[list[_Label]] = [[] for _ in range(end + 1)]
    waiting[0] = [_Label(0.0, 0.0, (0,) * len(space.limits), 0)]
    best: _Label | None = None
    set_labels = 1
    for position in range(end):
        for label in _undominated(waiting[position]):
            # The plans of one stage are known in any case: some answer is better than none.
            if position and (goal.should_stop() or set_labels > _MOST_LABELS):
                return best, set_labels, False
            for longer in _longer(space, label, most_s, math.inf if best is None else best.joules):
                set_labels += 1
                if longer.position < end:
                    waiting[longer.position].append(longer)
                elif best is None or (longer.joules, longer.seconds) < (best.joules, best.seconds):
                    best = longer
        waiting[position].clear()
    return best, set_labels, True


def _longer(space: _Space, label: _Label, most_s: float, most_joules: float) -> Iterable[_Label]:
    """Yield the label with one stage more, if it may still end within `most_s` and `most_joules`."""
    at = label.position
    for team, need in enumerate(space.needs):
        used = tuple(before + more for before, more in zip(label.used, need, strict=True))
        if any(count > limit for count, limit in zip(used, space.limits, strict=True)):
            continue
        seconds, joules = label.seconds + space.seconds[team, at], label.joules + space.joules[team, at]
        is_open: Bools = (seconds + space.seconds_left <= most_s) & (joules + space.joules_left <= most_joules)
        for end in np.flatnonzero(is_open & np.isfinite(joules)).tolist():
            yield _Label(float(joules[end]), float(seconds[end]), used, end, team, label)


def _undominated(labels: Sequence[_Label]) -> list[_Label]:
    """Drop labels if another is as good in joules, seconds and places.

    A label of no fewer joules is compared with the quickest of each different use of places, and those are few.
    """
    number_of = {used: number for number, used in enumerate(dict.fromkeys(label.used for label in labels))}
    uses, quickest_s = np.array(list(number_of)), np.full(len(number_of), np.inf)
    kept: list[_Label] = []
    for label in sorted(labels, key=lambda label: (label.joules, label.seconds, label.used)):
        if (quickest_s[(uses <= label.used).all(axis=1)] > label.seconds).all():
            quickest_s[number_of[label.used]] = label.seconds
            kept.append(label)
    return kept


def _stages(label: _Label) -> list[tuple[int, int, int]]:
    """(team, begin, end) of each stage, in pipeline order."""
    stages: list[tuple[int, int, int]] = []
    last: _Label | None = label
    while last is not None and last.before is not None:
        stages.append((last.team, last.before.position, last.position))
        last = last.before
    return stages[::-1]


def _with_copies(model: StageCosts, space: _Space, best: _Label, goal: Goal) -> Plan:
    """The plan of a label. With `replicate`, places left over become copies, each of the slowest stage of its kind."""
    names = [place.name for place in model.costs.places]
    free = [[names[place] for place in reversed(kind.places)] for kind in model.kinds]
    stages = _stages(best)
    teams = [
        [tuple(free[space.teams[team].kind].pop() for _ in range(space.teams[team].size))] for team, _, _ in stages
    ]
    while goal.replicate:
        room = [
            (float(space.seconds[team, begin, end]) / len(teams[at]), at)
            for at, (team, begin, end) in enumerate(stages)
            if len(free[space.teams[team].kind]) >= space.teams[team].size
        ]
        if not room:
            break
        _, at = max(room, key=lambda slow: (slow[0], -slow[1]))
        kind, size = space.teams[stages[at][0]]
        teams[at].append(tuple(free[kind].pop() for _ in range(size)))
    starts = model.starts
    return Plan.chain(
        (starts[begin], starts[end] - 1, copies) for (_, begin, end), copies in zip(stages, teams, strict=True)
    )


def _why_none(model: StageCosts, space: _Space, goal: Goal) -> str:
    least_s = float(space.seconds_left[0])
    if least_s <= goal.latency_s:
        return f"no plan of up to {goal.most_stages or len(model.costs.places)} stages has room and keeps the latency"
    if math.isinf(least_s):
        return "no place can run some of the layers"
    return f"no plan answers within {1e3 * goal.latency_s:g} ms: the quickest takes {1e3 * least_s:.4g} ms or more"
