"""The smallest pipeline bottleneck, proven: contiguous stages on unequal places, in any order along the pipeline.

Exact under the additive model of `Costs`: a stage takes the sum of its layers' times and its entry transfer, whatever
runs beside it. If places share a memory's bandwidth, a plan may take longer than predicted here.

The smallest bottleneck is the service time of some stage. If no plan keeps a bound, the lower bound is raised to the
next service time; if a plan does, the upper bound is lowered to its slowest stage, until both are equal. The recursion
of `reach` decides whether a plan keeps a bound. Its work grows with the product of the numbers of places of each kind,
and hardly with the number of layers: hundreds of places of a few kinds are easy, dozens of places all different are
not.

With links to other hosts a longer stage may take less time, so that recursion does not hold: `best_chain` has another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np

from shisha_rt.arrays import Floats, Ints
from shisha_rt.costs.costs import Costs, why_infeasible
from shisha_rt.costs.team_costs import plan_period_s
from shisha_rt.outcome import Outcome, ShouldStop
from shisha_rt.planner.best_chain import best_chain
from shisha_rt.planner.chains import TOLERANCE, StageSeconds, chains, computing_s, place_seconds, team_kinds
from shisha_rt.planner.column_generation import wide_plan, wider
from shisha_rt.planner.goal import Goal
from shisha_rt.planner.kinds import KindedStage, StageCosts, stage_costs
from shisha_rt.planner.least_energy import least_energy
from shisha_rt.planner.prices import bottleneck_bound_s, speeds
from shisha_rt.planner.quickest import quickest
from shisha_rt.planner.reach import Counts, Lattice, cell_count, lattice, reach
from shisha_rt.planner.solution import TOO_SOON, PlanSolution

_MOST_SEARCHED: Final = 500
"""With copies, links, and more places than this, `wide_plan` is tried first, without a search on some of the places."""
_QUICK_CELLS: Final = 1 << 16
_NEAR: Final = 1e-3
"""Relative gap at which a search that proves nothing ends."""


@dataclass(frozen=True, slots=True)
class _Bracket:
    """Bounds of the smallest bottleneck. `upper_s` is the bottleneck of `stages`, which are in pipeline order."""

    lower_s: float
    upper_s: float
    stages: Sequence[KindedStage]
    probes: int = 0

    @property
    def is_closed(self) -> bool:
        return self.lower_s >= self.upper_s


def exact_plan(costs: Costs, goal: Goal = Goal()) -> PlanSolution:  # noqa: B008 (it is frozen)
    """A plan of the smallest bottleneck that `costs` allow, and of low latency; or of the least latency or energy (see
    `Goal`).

    If `costs` have times of batches and no links, plans for throughput may have batches; low latency is sought only
    among plans without. The bottleneck is that of `rate_of` to the last bit.
    """
    if goal.objective == "energy":
        return least_energy(costs, goal)
    one_by_one = _one_by_one(costs, replace(goal, run_s=0))
    if not costs.batches or costs.link_of or goal.objective == "latency":
        return one_by_one
    shared = best_chain(costs, replace(goal, latency_states=0))
    value_s, shared_s = plan_period_s(costs, one_by_one.plan), plan_period_s(costs, shared.plan)
    if one_by_one.plan is None or shared_s < value_s * (1 - TOLERANCE):
        return one_by_one if shared.outcome is Outcome.INFEASIBLE else shared
    lower_s = shared.lower_bound_s
    if lower_s is not None and lower_s > value_s * (1 + TOLERANCE):
        lower_s = None  # it is of chains with one kind of places for each stage, and this plan has unlike copies
    solution = one_by_one.answered(one_by_one.plan, value_s, lower_s, TOLERANCE)
    latency_proven = one_by_one.latency_proven and solution.outcome is Outcome.OPTIMAL
    return replace(solution, latency_proven=latency_proven)


def _one_by_one(costs: Costs, goal: Goal) -> PlanSolution:
    """The answer without batches."""
    fast = goal.objective == "throughput"
    if goal.replicate and fast and len(costs.places) > _MOST_SEARCHED and costs.link_of:
        wide = wide_plan(costs, goal)
        if wide is not None:
            return wide
    if not (goal.replicate or goal.objective == "latency" or costs.link_of):
        return _plain_plan(costs, goal)
    solution = best_chain(costs, goal)
    many = solution.is_partial or solution.outcome is Outcome.LIMIT
    if many and goal.replicate and fast and not goal.should_stop():
        solution = wider(costs, solution, goal)
    if solution.outcome is not Outcome.INFEASIBLE:
        return solution
    return replace(solution, reason=_hopeless(stage_costs(costs)) or solution.reason)


def _plain_plan(costs: Costs, goal: Goal) -> PlanSolution:
    """The smallest bottleneck of chains with each stage on a place of its own, all on this host."""
    should_stop = goal.should_stop
    model = stage_costs(costs)
    most = min(len(costs.places), model.groups, goal.most_stages or model.groups)
    counts = tuple(min(len(kind.places), most) for kind in model.kinds)
    cells = cell_count(counts, most)
    statistics: dict[str, float] = {"kinds": len(counts), "cells": cells, "probes": 0}
    solution = PlanSolution(None, Outcome.INFEASIBLE, statistics=statistics)
    hopeless = _hopeless(model)
    if hopeless is not None:
        return replace(solution, reason=hopeless)
    lower_s = bottleneck_bound_s(_group_s(model), [len(kind.places) for kind in model.kinds], most)
    fewer = _fewer(model, counts, most, min(goal.most_cells, _QUICK_CELLS))
    stages = None if fewer == counts else _early_plan(model, fewer, most, lower_s, should_stop)
    limited = replace(solution, outcome=Outcome.LIMIT, lower_bound_s=lower_s)
    if cells > goal.most_cells:
        stages = _walked(model, most, lower_s, stages, should_stop)
        if stages is None:
            reason = f"{len(counts)} kinds of places: {cells} states, expected at most {goal.most_cells}"
            return replace(limited, reason=reason)
        return replace(limited, answer=model.plan(stages), outcome=Outcome.FEASIBLE, is_partial=True)
    states = lattice(counts, most)
    if stages is None:
        widest = reach(states, model.furthest(math.inf), should_stop)
        if widest is None:
            return replace(limited, reason=TOO_SOON)
        if not widest.is_whole:
            return replace(solution, reason=model.why_no_room(most, widest.furthest))
        stages = widest.trace()
        del widest  # before the next table is made: they are large
    bracket = _narrowed(model, states, _Bracket(lower_s, model.bottleneck_s(stages), stages), should_stop)
    statistics["probes"] = bracket.probes
    if not bracket.is_closed:
        return replace(
            solution, answer=model.plan(bracket.stages), outcome=Outcome.FEASIBLE, lower_bound_s=bracket.lower_s
        )
    return _of_least_latency(model, counts, bracket, goal, statistics)


def _of_least_latency(
    model: StageCosts, counts: Counts, bracket: _Bracket, goal: Goal, statistics: dict[str, float]
) -> PlanSolution:
    """Among the plans of the smallest bottleneck one of the least latency, if their states are few enough to search."""
    solution = PlanSolution(model.plan(bracket.stages), Outcome.OPTIMAL, bracket.lower_s, statistics=statistics)
    seconds = computing_s(model, team_kinds(model, goal))
    seconds[np.arange(model.groups + 1) > model.furthest(bracket.upper_s)[:, :, None]] = np.inf
    space = chains(model, goal, counts, StageSeconds(seconds, seconds))
    if space is None or space.cells(counts) > goal.latency_states:
        return solution
    quick = quickest(space, math.inf, math.fsum(map(model.service_s, bracket.stages)), goal.should_stop)
    return solution if quick is None else replace(solution, answer=space.plan(quick.stages), latency_proven=True)


def _early_plan(
    model: StageCosts, fewer: Counts, most: int, lower_s: float, should_stop: ShouldStop
) -> Sequence[KindedStage] | None:
    """The best plan on `fewer` places, few enough to find it at once; None if there is none.

    A search that is stopped returns this plan; one that is not begins with its bottleneck as upper bound.
    """
    model, kept = model.with_some(fewer)
    states = lattice([fewer[kind] for kind in kept], min(most, sum(fewer)))
    widest = reach(states, model.furthest(math.inf), should_stop)
    if widest is None or not widest.is_whole:
        return None
    stages = widest.trace()
    bracket = _narrowed(model, states, _Bracket(lower_s, model.bottleneck_s(stages), stages), should_stop)
    return [(kept[kind], begin, end) for kind, begin, end in bracket.stages]


def _walked(
    model: StageCosts, most: int, lower_s: float, stages: Sequence[KindedStage] | None, should_stop: ShouldStop
) -> Sequence[KindedStage] | None:
    """`stages`, or a faster plan on any of the places: each stage, in turn, is on the place that gets furthest."""
    upper_s, bound_s = (math.inf, math.inf) if stages is None else (model.bottleneck_s(stages), lower_s)
    while (stages is None or lower_s < upper_s * (1 - _NEAR)) and not should_stop():
        walk = _walk(model, most, model.furthest(bound_s))
        if walk is not None:
            stages, upper_s = walk, model.bottleneck_s(walk)
        elif stages is None:
            break
        else:
            lower_s = bound_s
        bound_s = lower_s + (upper_s - lower_s) / 2
    return stages


def _walk(model: StageCosts, most: int, furthest: Ints) -> list[KindedStage] | None:
    """Stages within `furthest` (kinds, positions), each as long as any place left allows; None if they do not do."""
    left = np.array([len(kind.places) for kind in model.kinds])
    stages: list[KindedStage] = []
    begin = 0
    while begin < model.groups and len(stages) < most:
        ends = np.where(left > 0, furthest[:, begin], 0)
        kind = int(ends.argmax())
        if ends[kind] <= begin:
            return None
        stages.append((kind, begin, int(ends[kind])))
        left[kind], begin = left[kind] - 1, int(ends[kind])
    return stages if begin == model.groups else None


def _fewer(model: StageCosts, counts: Counts, most: int, most_cells: int) -> Counts:
    """Halve the most numerous kind, of several such the slowest, until there are at most `most_cells` states."""
    per_s = speeds(_group_s(model))
    fewer = list(counts)
    while cell_count(fewer, min(most, sum(fewer))) > most_cells:
        kind = max(range(len(fewer)), key=lambda kind: (fewer[kind], -per_s[kind]))
        fewer[kind] //= 2
    return tuple(fewer)


def _narrowed(model: StageCosts, states: Lattice, bracket: _Bracket, should_stop: ShouldStop) -> _Bracket:
    """Narrow the bracket until it is closed or `should_stop` says so."""
    lower_s, upper_s, stages = bracket.lower_s, bracket.upper_s, bracket.stages
    probes = bracket.probes
    while lower_s < upper_s:
        bound_s = lower_s + (upper_s - lower_s) / 2
        # The lower end is often the closer one, and probes far above it are wasted.
        bound_s = min(bound_s, 2 * lower_s) if lower_s else bound_s
        furthest = model.furthest(bound_s if bound_s < upper_s else lower_s)
        table = reach(states, furthest, should_stop)
        if table is None:
            break
        probes += 1
        if table.is_whole:
            stages = table.trace()
            upper_s = model.bottleneck_s(stages)
        else:
            lower_s = model.next_s(furthest)
        del table  # before the next is made: they are large
    return _Bracket(lower_s, upper_s, stages, probes)


def _hopeless(model: StageCosts) -> str | None:
    """Say which layers no place can run even by themselves, and why; None if there are none."""
    for begin, (start, end) in enumerate(pairwise(model.starts)):
        if all(kind.longest[begin] == begin for kind in model.kinds):
            whys = [why_infeasible(model.costs, start, end - 1, kind.places[0]) for kind in model.kinds]
            which = f"layer {start}" if end - start == 1 else f"layers {start}-{end - 1}, which no legal cut parts"
            return f"no place can run {which}: {'; '.join(map(str, whys))}"
    return None


def _group_s(model: StageCosts) -> Floats:
    """(groups, kinds) seconds; inf where a place cannot run the group, or has not the memory for it."""
    fits = np.array([kind.fits[:-1] > np.arange(model.groups) for kind in model.kinds]).T
    return np.where(fits, place_seconds(model, Goal(run_s=0)), np.inf)
