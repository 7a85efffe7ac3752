"""Chains on very many places of few classes, close to a proven upper bound on throughput.

A stage may have any number of teams of any class; the only objective is throughput. With thousands of places this is
nearly a linear program: its variables are the frames a second that each class computes of each stage. `prices.py`
computes the bound, and finds good cuts on the way. A plan has the same cuts for all frames, so each set of cuts found
is evaluated (`shares.py`); then cuts are moved, added and removed while that helps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Final

from shisha_rt.costs.costs import Costs
from shisha_rt.costs.team_costs import team_costs
from shisha_rt.outcome import Outcome
from shisha_rt.plan.plan import Plan, Stage, behind
from shisha_rt.planner.chains import TOLERANCE
from shisha_rt.planner.goal import Goal
from shisha_rt.planner.place_classes import Wide, wide_space
from shisha_rt.planner.prices import NEAR, Bounded, Cuts, bound
from shisha_rt.planner.shares import Dealt, dealt, shares_of
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
    wide = wide_space(costs)
    bounded = bound(wide, goal.most_stages, goal.should_stop)
    if bounded is None:
        return None
    tried = [dealt(wide, cuts) for cuts in _best_cuts(wide, bounded, goal)]
    most = max((deal.per_s for deal in tried), default=0.0)
    if not most:
        return None
    best = next(deal for deal in tried if deal.per_s >= most * (1 - _FEWER_STAGES))
    return PlanSolution(
        _plan(wide, best),
        Outcome.FEASIBLE,
        _ROUNDED_DOWN / bounded.most_per_s,
        statistics={"kinds": len(wide.model.kinds), "cells": 0, "probes": len(bounded.routes)},
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


def _best_cuts(wide: Wide, bounded: Bounded, goal: Goal) -> list[Cuts]:
    """Return the best cuts for each number of stages, among those of `bounded.routes` and their neighbours.

    Cuts with more stages are kept only if they are faster than the best with fewer.
    """
    known: dict[Cuts, float] = {}

    def tried(cuts: Cuts) -> float:
        if cuts not in known:
            known[cuts] = shares_of(wide, cuts).per_s
        return known[cuts]

    most = goal.most_stages or wide.positions
    for route in bounded.routes:
        if len(route.cuts) - 1 <= most:
            tried(route.cuts)
        if goal.should_stop():
            break
    enough = bounded.most_per_s * (1 - NEAR)
    while len(known) < _MOST_TRIED and max(known.values(), default=0.0) < enough:
        before = len(known)
        for best in _fronts(known)[::-1]:
            for cuts in _near(best, wide.positions):
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


def _plan(wide: Wide, dealt_shares: Dealt) -> Plan:
    """The plan of `dealt_shares`; each stage lists its fastest teams first."""
    class_of = {
        place: number for number, place_class in enumerate(wide.classes) for host in place_class.hosts for place in host
    }
    names, starts = wide.model.costs.places, wide.model.starts
    stages = []
    for index, (span, places) in enumerate(zip(pairwise(dealt_shares.cuts), dealt_shares.places, strict=True)):
        ordered = sorted(places, key=lambda place: (wide.seconds[class_of[place]][span], place))
        work = ((starts[span[0]], starts[span[1]] - 1),)
        stages.append(Stage(work, tuple((names[place].name,) for place in ordered), behind(index)))
    return Plan(tuple(stages))
