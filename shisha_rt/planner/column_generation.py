"""Chains on very many places of few classes, close to a proven upper bound on throughput.

A stage may have any number of teams of any class; the only objective is throughput. With thousands of places this is
nearly a linear program: its variables are the frames a second that each class computes of each stage. `prices.py`
computes the bound, and finds good cuts on the way. A plan has the same cuts for all frames, so for each set of cuts
found a smaller program, classes by stages, says how many places of which class a stage gets; then cuts are moved, added
and removed while that helps. In the end whole places are handed out host by host, as long as the host's link has room;
what is left goes to the slowest stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from shisha_rt.arrays import Bools, Floats
from shisha_rt.costs.costs import Costs
from shisha_rt.costs.team_costs import team_costs
from shisha_rt.outcome import Outcome
from shisha_rt.plan.plan import Plan, Stage, behind
from shisha_rt.planner.chains import TOLERANCE
from shisha_rt.planner.goal import Goal
from shisha_rt.planner.linear import maximize
from shisha_rt.planner.place_classes import ClassCosts, class_costs
from shisha_rt.planner.prices import NEAR, Bounded, Cuts, bound
from shisha_rt.planner.solution import PlanSolution

SPACE: Final = "chains of stages, each on any places of its own"
_ROUNDED_DOWN: Final = 1 - TOLERANCE
_MOST_TRIED: Final = 300
_FEWER_STAGES: Final = 1e-3
"""Relative throughput given up for one stage fewer, which saves each frame a hand-over."""


def wide_plan(costs: Costs, goal: Goal) -> PlanSolution | None:
    """A chain with copies and high throughput, and a bound for all such chains; each team is a single place.

    None if it does not apply: there are teams of several places, a stage's copies must be alike, or no chain fits into
    memory.
    """
    if costs.teams or not costs.mixed:
        return None
    space = class_costs(costs)
    bounded = bound(space, goal.most_stages, goal.should_stop)
    if bounded is None:
        return None
    tried = [dealt(space, cuts) for cuts in _best_cuts(space, bounded, goal)]
    most = max((deal.per_s for deal in tried), default=0.0)
    if not most:
        return None
    best = next(deal for deal in tried if deal.per_s >= most * (1 - _FEWER_STAGES))
    return PlanSolution(
        _plan(space, best),
        Outcome.FEASIBLE,
        _ROUNDED_DOWN / bounded.most_per_s,
        statistics={"kinds": len(space.model.kinds), "cells": 0, "probes": len(bounded.routes)},
        space=SPACE,
        is_partial=True,
    )


def wider(costs: Costs, plan_solution: PlanSolution, goal: Goal) -> PlanSolution:
    """The better of `plan_solution`, found with some of the places, and `wide_plan`'s; with the tighter lower bound."""
    other = wide_plan(costs, goal)
    if other is None or other.plan is None:
        return plan_solution
    predicted = team_costs(costs)
    best, best_s = other, predicted.rate(other.plan).bottleneck_s
    if plan_solution.plan is not None:
        found_s = predicted.rate(plan_solution.plan).bottleneck_s
        if found_s <= best_s:
            best, best_s = plan_solution, found_s
    assert best.plan is not None  # `other` has one
    lower_s = max(other.lower_bound_s or 0.0, plan_solution.lower_bound_s or 0.0)
    return replace(best.answered(best.plan, best_s, lower_s, 2 * TOLERANCE), space=SPACE)


def _best_cuts(space: ClassCosts, bounded: Bounded, goal: Goal) -> list[Cuts]:
    """Return the best cuts for each number of stages, among those of `bounded.routes` and their neighbours.

    Cuts with more stages are kept only if they are faster than the best with fewer.
    """
    known: dict[Cuts, float] = {}

    def tried(cuts: Cuts) -> float:
        if cuts not in known:
            known[cuts] = shares_of(space, cuts).per_s
        return known[cuts]

    most = goal.most_stages or space.positions
    for route in bounded.routes:
        if len(route.cuts) - 1 <= most:
            tried(route.cuts)
        if goal.should_stop():
            break
    enough = bounded.most_per_s * (1 - NEAR)
    while len(known) < _MOST_TRIED and max(known.values(), default=0.0) < enough:
        before = len(known)
        for best in _fronts(known)[::-1]:
            for cuts in _near(best, space.positions):
                if goal.should_stop() or len(known) >= _MOST_TRIED:
                    break
                if len(cuts) - 1 <= most:
                    tried(cuts)
        if len(known) == before:
            break
    return [cuts for cuts in _fronts(known) if known[cuts] > 0]


def _fronts(known: dict[Cuts, float]) -> list[Cuts]:
    """The best known cuts for each number of stages, unless cuts with fewer stages are as fast."""
    cuts_tried: list[Cuts] = []
    for stages in sorted({len(cuts) for cuts in known}):
        best = max((cuts for cuts in known if len(cuts) == stages), key=lambda cuts: (known[cuts], cuts))
        if not cuts_tried or known[best] > known[cuts_tried[-1]]:
            cuts_tried.append(best)
    return cuts_tried


def _near(cuts: Cuts, positions: int) -> Iterator[Cuts]:
    """Yield neighbours: one cut removed, moved by up to four positions, or added in the middle of a stage."""
    inner = cuts[1:-1]
    for at, cut in enumerate(inner):
        others = {*inner[:at], *inner[at + 1 :]}
        yield (0, *sorted(others), positions - 1)
        for moved in (cut + by for by in (-4, -2, -1, 1, 2, 4)):
            if 0 < moved < positions - 1 and moved not in others:
                yield (0, *sorted({*others, moved}), positions - 1)
    for begin, end in pairwise(cuts):
        if end - begin > 1:
            yield (0, *sorted({*inner, (begin + end) // 2}), positions - 1)


def _plan(space: ClassCosts, dealt_shares: Dealt) -> Plan:
    """The plan of `dealt_shares`; each stage lists its fastest teams first."""
    class_of = {
        place: number for number, members in enumerate(space.classes) for host in members.hosts for place in host
    }
    names, starts = space.model.costs.places, space.model.starts
    stages = []
    for index, (span, places) in enumerate(zip(pairwise(dealt_shares.cuts), dealt_shares.places, strict=True)):
        ordered = sorted(places, key=lambda place: (space.seconds[class_of[place]][span], place))
        work = ((starts[span[0]], starts[span[1]] - 1),)
        stages.append(Stage(work, tuple((names[place].name,) for place in ordered), behind(index)))
    return Plan(tuple(stages))


class Shares(NamedTuple):
    """`per_s`: the chain's frames a second; `frames` (classes, stages): those of each class for each stage."""

    per_s: float
    frames: Floats


class Dealt(NamedTuple):
    """Whole places: `places` (stages,) indices; the slowest stage serves `per_s` frames a second."""

    cuts: Cuts
    places: tuple[tuple[int, ...], ...]
    per_s: float


def shares_of(space: ClassCosts, cuts: Cuts) -> Shares:
    """Solve the linear program of one set of cuts."""
    spans = list(pairwise(cuts))
    seconds = np.array([[space.counted_s[number][span] for span in spans] for number in range(len(space.classes))])
    able = np.argwhere(np.isfinite(seconds))
    counts = np.array([place_class.count for place_class in space.classes], float)
    classes, ways = len(space.classes), len(space.links)
    # A column for each (class, stage), the share of the class that computes it, and one for the chain's throughput.
    full = counts[able[:, 0]] / seconds[able[:, 0], able[:, 1]]
    if set(able[:, 1].tolist()) != set(range(len(spans))):
        return Shares(0.0, np.zeros(seconds.shape))
    unit = float(full.max())
    use = np.zeros((classes + ways + len(spans), len(able) + 1))
    use[able[:, 0], np.arange(len(able))] = 1.0
    for column, (number, stage) in enumerate(able.tolist()):
        for way in space.classes[number].link_rows:
            use[classes + way, column] = full[column] * space.link_s[way][spans[stage]] / space.links[way]
        use[classes + ways + stage, column] = -full[column] / unit
    use[classes + ways :, -1] = 1.0
    gain = np.zeros(len(able) + 1)
    gain[-1] = 1.0
    # Most links can carry all that their hosts can compute: their rows, which never bind, are left out.
    kept = np.ones(len(use), bool)
    for way in range(ways):
        busiest = np.zeros(classes)
        np.maximum.at(busiest, able[:, 0], use[classes + way, :-1])
        kept[classes + way] = busiest.sum() > 1
    limit = np.concatenate([np.ones(classes + ways), np.zeros(len(spans))])
    solved = maximize(gain, use[kept], limit[kept])
    frames = np.zeros(seconds.shape)
    frames[able[:, 0], able[:, 1]] = solved.at[:-1] * full
    return Shares(solved.value * unit, frames)


def dealt(space: ClassCosts, cuts: Cuts) -> Dealt:
    """Round the program's shares to whole places, links overloaded by none or by up to one place; the better of both.

    Frames are dealt in proportion to places' speeds, so an overloaded link slows all places down.
    """
    shares = shares_of(space, cuts)
    ways = (_Deal(space, cuts, has_room).dealt(shares) for has_room in (_within, _not_full))
    return max(ways, key=lambda deal: deal.per_s)


def _within(used: Floats, more: Floats) -> Bools:
    """Whether links have room for all that a place more transfers."""
    return used + more <= 1 + 1e-9


def _not_full(used: Floats, more: Floats) -> Bools:
    return used < 1


class _Deal:
    """Places being handed out, each on a host whose link has room for it."""

    def __init__(self, space: ClassCosts, cuts: Cuts, has_room: Callable[[Floats, Floats], Bools]) -> None:
        self._space = space
        self._cuts = cuts
        self._spans = list(pairwise(cuts))
        self._has_room = has_room
        # In turns over the hosts, so that their links fill evenly; taken from the end.
        self._left = [[at for turn in _turns(members.hosts) for at in turn][::-1] for members in space.classes]
        hosts = {members.group: len(members.hosts) for members in space.classes if members.group is not None}
        self._busy = {group: np.zeros((count, 2, len(self._spans))) for group, count in hosts.items()}
        self._per_s = np.zeros(len(self._spans))
        self._places: list[list[int]] = [[] for _ in self._spans]

    def dealt(self, shares: Shares) -> Dealt:
        """First deal what the program says; then the slowest stage gets one more place, as long as any is of use."""
        seconds, classes = self._space.counted_s, range(len(self._space.classes))
        for number in classes:
            for stage, span in enumerate(self._spans):
                if shares.frames[number, stage] > 0:
                    for _ in range(round(shares.frames[number, stage] * seconds[number][span])):
                        if not self._take(number, stage):
                            break
        while True:
            stage = int(self._per_s.argmin())
            span = self._spans[stage]
            able = sorted((seconds[number][span], number) for number in classes if self._left[number])
            if not any(self._take(number, stage) for time_s, number in able if 0 < time_s < np.inf):
                break
        return Dealt(self._cuts, tuple(map(tuple, self._places)), self._served_per_s())

    def _take(self, number: int, stage: int) -> bool:
        """Give a stage a place of a class, on a host whose link has room; False if there is none."""
        left, span, group = self._left[number], self._spans[stage], self._space.classes[number].group
        if not left:
            return False
        rate, at = 1 / self._space.counted_s[number][span], len(left) - 1
        if group is not None:
            need = rate * self._space.link_s[2 * group : 2 * group + 2, *span]
            open_hosts = np.all(self._has_room(self._busy[group].sum(axis=2), need), axis=1)
            while at >= 0 and not open_hosts[left[at][0]]:
                at -= 1
            if at < 0:
                return False
            self._busy[group][left[at][0], :, stage] += need
        self._places[stage].append(left.pop(at)[1])
        self._per_s[stage] += rate
        return True

    def _served_per_s(self) -> float:
        """Frames a second, as limited by the slowest stage or the fullest link."""
        if not self._per_s.all():
            return 0.0
        fullest_s = max((float((busy / self._per_s).sum(axis=2).max()) for busy in self._busy.values()), default=0.0)
        return 1 / max(1 / float(self._per_s.min()), fullest_s)


def _turns(hosts: Sequence[Sequence[int]]) -> Iterator[Iterable[tuple[int, int]]]:
    for turn in range(max(map(len, hosts))):
        yield [(host, places[turn]) for host, places in enumerate(hosts) if turn < len(places)]
