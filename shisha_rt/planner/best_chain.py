"""The best chain with copies and teams, proven: the smallest bottleneck, or the least latency.

For throughput, the periods of all stages on all shares are sorted and bisected; the recursion of `need` decides whether
a chain keeps a period. Among the chains of the smallest bottleneck, `quickest` finds one of the least latency. For
latency, `quickest` comes first, and the smallest bottleneck at that latency is bisected.

If there are too many places, or kinds of them, only some are searched; if there are too many layers, only some cuts.
The lower bound holds for all chains even then. Places that are left, of any kind, are added as further copies.

The search ignores that the places of a host share its link. If the link is slower than every stage of the plan found,
chains are also searched in which each place has a part of its host's link to itself.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Final, NamedTuple

import numpy as np

from shisha_rt.costs.costs import Costs
from shisha_rt.costs.team_costs import team_costs
from shisha_rt.outcome import Outcome
from shisha_rt.plan.plan import Plan, Team
from shisha_rt.plan.rate import Objective, Rate
from shisha_rt.planner.chains import (
    TOLERANCE,
    Chains,
    SharedStage,
    chains,
    least_left,
    place_seconds,
    seconds_of,
    team_kinds,
)
from shisha_rt.planner.goal import Goal
from shisha_rt.planner.kinds import StageCosts, stage_costs
from shisha_rt.planner.need import Need, need
from shisha_rt.planner.over_hosts import over_hosts, with_parts_of_links
from shisha_rt.planner.prices import bottleneck_bound_s, speeds
from shisha_rt.planner.quickest import periods_s, quickest, tight_stages
from shisha_rt.planner.solution import TOO_SOON, PlanSolution

_MOST_CELLS: Final = 1 << 22
_MOST_GROUPS: Final = 200
_AHEAD: Final = 0.05
"""Relative: how far above the proven bound the bisection first probes; doubled whenever a probe finds no chain."""
_MANY_WAYS: Final = 4
"""For each group. With more tight stages, a search for the least latency first finds the smallest bottleneck of all."""
_ROUNDED_DOWN: Final = 1 - TOLERANCE
_ROUNDING: Final = 2 * TOLERANCE


class _Found(NamedTuple):
    """`lower_s`: a lower bound of all chains; None: none is proven. `least`: no chain as good has a lower latency.

    `reason`: why there are no stages.
    """

    stages: tuple[SharedStage, ...] = ()
    lower_s: float | None = None
    least: bool = False
    probes: int = 0
    reason: str | None = None


def best_chain(costs: Costs, goal: Goal) -> PlanSolution:
    """See `exact_plan`."""
    solution = _best_chain(costs, goal)
    if solution.plan is None or goal.objective == "latency":
        return solution
    rate = rate_by(costs, solution.plan)
    least_s = rate.bottleneck_s
    for places in with_parts_of_links(costs) if rate.is_link_bound else ():
        other = _best_chain(places, goal).plan
        if other is not None:
            other = over_hosts(costs, other)
            other_s = rate_by(costs, other).bottleneck_s
            if other_s < least_s:
                least_s, solution = other_s, solution.answered(other, other_s, solution.lower_bound_s, _ROUNDING)
    return solution


def _best_chain(costs: Costs, goal: Goal) -> PlanSolution:
    """The best chain if no link were shared by the places of its host."""
    goal = replace(goal, most_cells=min(goal.most_cells, _MOST_CELLS))
    model = stage_costs(costs)
    bound_s = _bound_s(model, goal)
    whole = chains(model, goal)
    space = whole
    if space is None or _cells(space, goal.objective) > goal.most_cells:
        space = _with_fewer_places(model.with_fewer_cuts(_MOST_GROUPS), goal)
    searched = _search(space, bound_s if space is whole else 0.0, goal)
    solution = PlanSolution(
        None,
        Outcome.LIMIT,
        bound_s,
        statistics={"kinds": len(model.kinds), "cells": _cells(space, goal.objective), "probes": searched.probes},
        space=space.space,
        is_partial=space is not whole,
    )
    if searched.reason is not None:
        if space is whole and searched.reason != TOO_SOON:
            return replace(solution, outcome=Outcome.INFEASIBLE, lower_bound_s=None, reason=searched.reason)
        return replace(solution, reason=searched.reason)
    plan = over_hosts(costs, space.plan(searched.stages))
    value_s = rate_by(costs, plan).value(goal.objective)
    lower_s = searched.lower_s if space is whole and searched.lower_s is not None else bound_s
    if goal.replicate and goal.objective == "throughput" and not space.is_mixed:
        copied = over_hosts(costs, with_further_copies(costs, plan))
        copied_s = rate_by(costs, copied).bottleneck_s
        if copied_s < value_s * _ROUNDED_DOWN:
            # A stage may now have places of several kinds, as in no chain of the space.
            plan, value_s, lower_s = copied, copied_s, bound_s
    solution = solution.answered(plan, value_s, lower_s, _ROUNDING)
    least = searched.least and (space is whole or goal.objective == "latency")
    return replace(solution, latency_proven=least and solution.outcome is Outcome.OPTIMAL)


def rate_by(costs: Costs, plan: Plan) -> Rate:
    return team_costs(costs).rate(plan)


def _cells(space: Chains, objective: Objective) -> int:
    """The least number of cells that the search needs."""
    return space.cells(space.counts if objective == "latency" else space.counts[:-1])


def _with_fewer_places(model: StageCosts, goal: Goal) -> Chains:
    """Leave out places until the states are few: of the most numerous kind first, of several such the slowest."""
    fewer = [len(kind.places) for kind in model.kinds]
    per_s = speeds(place_seconds(model, goal))
    while True:
        small, kept = model.with_some(fewer)
        counts = tuple(fewer[kind] for kind in kept)
        if math.prod(count + 1 for count in counts) * (model.groups + 1) <= _MOST_CELLS or len(kept) == 1:
            space = chains(small, goal, counts)
            if space is not None and (_cells(space, goal.objective) <= goal.most_cells or sum(counts) == 1):
                return space
        kind = max(range(len(fewer)), key=lambda kind: (fewer[kind], -per_s[kind]))
        fewer[kind] -= max(1, fewer[kind] // 8)


def _search(space: Chains, bound_s: float, goal: Goal) -> _Found:
    widest = need(space, math.inf, goal.should_stop)
    if widest is None:
        return _Found(reason=TOO_SOON)
    if not widest.is_whole:
        return _Found(reason=space.model.why_no_room(space.most_stages, widest.furthest))
    if goal.objective == "throughput":
        return _fastest(space, widest, bound_s, goal)
    return _least_latency(space, widest, goal)


def _fastest(space: Chains, widest: Need, bound_s: float, goal: Goal) -> _Found:
    traced, upper_s, probes = widest.trace(), space.bottleneck_s(widest.trace()), 0
    periods = np.unique(space.period_s[(space.period_s >= bound_s) & (space.period_s < upper_s)])
    low, high, ahead = 0, len(periods), _AHEAD
    while low < high:
        # The lower end is often the closer one, and probes far above it are wasted.
        middle = min((low + high) // 2, max(low, int(np.searchsorted(periods, (1 + ahead) * periods[low]))))
        table = need(space, float(periods[middle]), goal.should_stop)
        if table is None:
            return _Found(tuple(traced), float(periods[low]), probes=probes)
        probes += 1
        if table.is_whole:
            traced = table.trace()
            upper_s = space.bottleneck_s(traced)
            high = min(middle, int(np.searchsorted(periods, upper_s)))
        else:
            low, ahead = middle + 1, 2 * ahead
    least = False
    if space.cells(space.counts) <= min(goal.latency_states, _MOST_CELLS):
        quick = quickest(space, upper_s, _latency_s(space, traced), goal.should_stop)
        least = quick is not None
        if quick is not None and quick.stages:
            least = _is_as_fast(space, quick.stages, traced)
            traced = list(quick.stages) if least else traced
    return _Found(tuple(traced), upper_s, least, probes)


def _is_as_fast(space: Chains, stages: Sequence[SharedStage], others: Sequence[SharedStage]) -> bool:
    """Whether `stages` are as fast as `others` if shared links count, too. By their stages alone they are."""
    costs = space.model.costs
    if not costs.link_of:
        return True
    own, theirs = (rate_by(costs, over_hosts(costs, space.plan(stages_tried))) for stages_tried in (stages, others))
    return own.link_s <= max(theirs.bottleneck_s, own.period_s[own.slowest_stage]) * (1 + TOLERANCE)


def _latency_s(space: Chains, stages: list[SharedStage]) -> float:
    return rate_by(space.model.costs, space.plan(stages)).latency_s


def _least_latency(space: Chains, widest: Need, goal: Goal) -> _Found:
    """The least latency, and at that latency the smallest bottleneck.

    With many tight stages, probes begin at the smallest bottleneck of all chains.
    """
    first = widest.trace()
    best = quickest(space, math.inf, _latency_s(space, first), goal.should_stop)
    if best is None:
        return _Found(tuple(first))
    stages, most_s, probes = best.stages, best.latency_s * (1 + TOLERANCE), 1
    ways = tight_stages(space, most_s)
    periods = periods_s(space, ways)
    low, high = 0, len(periods)
    if len(ways) > _MANY_WAYS * space.model.groups:
        fastest = _fastest(space, widest, 0.0, replace(goal, latency_states=0))
        low = int(np.searchsorted(periods, (fastest.lower_s or 0.0) * (1 - TOLERANCE)))
        middle = low
    else:
        middle = high // 2
    while low < high:
        quick = quickest(space, float(periods[middle]), most_s, goal.should_stop)
        if quick is None:
            break
        probes += 1
        if quick.stages:
            stages, high = quick.stages, middle
        else:
            low = middle + 1
        middle = (low + high) // 2
    return _Found(stages, best.latency_s, True, probes)


def _bound_s(model: StageCosts, goal: Goal) -> float:
    """A lower bound of all chains; for latency it assumes any number of places."""
    if goal.objective == "latency":
        quickest_s = seconds_of(model, team_kinds(model, goal)).alone_s.min(axis=0)
        return float(least_left(quickest_s)[0]) * _ROUNDED_DOWN
    return bottleneck_bound_s(place_seconds(model, goal), [len(kind.places) for kind in model.kinds])


def with_further_copies(costs: Costs, plan: Plan) -> Plan:
    """Add copies to `plan`, a chain whose stages have teams of their own, until no place left is of use."""
    predicted = team_costs(costs)
    used = set(plan.places)
    free: dict[int, list[str]] = {}
    for place in reversed(costs.places):
        if place.name not in used:
            free.setdefault(predicted.kind_of[place.name], []).append(place.name)

    @cache
    def seconds(index: int, kind: int) -> float:
        """Seconds of the stage on a free place of the kind."""
        alone = replace(plan.stages[index], teams=((free[kind][-1],),))
        return predicted.team_s(Plan((alone,)))[0][0]

    teams: list[list[tuple[float, Team]]] = [
        list(zip(times_s, stage.teams, strict=True))
        for stage, times_s in zip(plan.stages, predicted.team_s(plan), strict=True)
    ]
    alike = [predicted.kind_of[stage.place] for stage in plan.stages]
    rates = [sum(1 / time_s if time_s else math.inf for time_s, _ in team) for team in teams]
    slowest = [(rate, index) for index, rate in enumerate(rates)]
    heapq.heapify(slowest)
    while slowest:
        rate, index = heapq.heappop(slowest)
        kinds = [kind for kind, names in free.items() if names and (costs.mixed or alike[index] == kind)]
        kind = min(kinds, key=lambda kind: seconds(index, kind), default=None)
        if kind is None or not 0 < seconds(index, kind) < math.inf:
            break
        time_s = seconds(index, kind)
        teams[index].append((time_s, (free[kind].pop(),)))
        heapq.heappush(slowest, (rate + 1 / time_s, index))
    stages = [
        replace(stage, teams=tuple(team for _, team in sorted(of_teams, key=lambda of_team: of_team[0])))
        for stage, of_teams in zip(plan.stages, teams, strict=True)
    ]
    return Plan(tuple(stages))
