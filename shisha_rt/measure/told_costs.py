"""The costs that planners get, on the time scale of measurements, and the best plans by them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from shisha_rt.costs.alike import among
from shisha_rt.costs.costs import Costs
from shisha_rt.costs.layer_costs import LayerCosts
from shisha_rt.costs.split_costs import SHARD_S, PricedSplit, ShardTime, SplitCosts
from shisha_rt.machine.machine import Machine
from shisha_rt.model.split import Splittable
from shisha_rt.placement.placed_costs import PlacedCosts
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import EVERY_OBJECTIVE, Objective
from shisha_rt.planner.goal import Goal
from shisha_rt.planner.shards.split_plan import plan_that_fits

_PLANNING_S: Final = 2.0


def told_costs(
    stored: LayerCosts | PlacedCosts,
    time_scale: float,
    splits: Iterable[Splittable] = (),
    shard_times: Mapping[PricedSplit, ShardTime] | None = None,
) -> Costs:
    """The stored costs divided by `time_scale`, as measurements are.

    `splits`: how layers may be split there; `shard_times`: what shards take, where that is known. Costs of batches are
    left out: measurements of single frames do not show how full batches are, so plans with batches are compared as a
    whole, by their answers.
    """
    costs = stored.costs()
    teams = tuple(replace(team, time_s=team.time_s / time_scale) for team in costs.teams)
    shares = {key: shard_time.stretched(1 / time_scale) for key, shard_time in (shard_times or {}).items()}
    ways = SplitCosts(tuple(splits), SHARD_S / time_scale, shard_times=shares)
    places = tuple(
        place if place.power_w is None else replace(place, power_w=place.power_w * time_scale) for place in costs.places
    )
    return replace(costs, places=places, time_s=costs.time_s / time_scale, teams=teams, splits=ways, batches=())


def plans_by_costs(
    costs: Costs, machine: Machine, goal: Goal, objectives: Iterable[Objective] = EVERY_OBJECTIVE
) -> dict[Objective, Plan]:
    """The best plan for each objective in place of the goal's; with very many places, the best within `_PLANNING_S`.

    For energy: none if the places' power is unknown; if no plan is found within the goal's latency, the one of least
    latency.

    Spare places of `machine` are not planned with.

    Layers are split only if no plan can run otherwise; whether splits gain more than that is left to trials.
    """
    if machine.spare:
        costs = among(costs, [place.name for place in machine.usual], [1.0] * len(machine.usual))
    goals = {
        objective: replace(goal, objective=objective)
        for objective in objectives
        if objective != "energy" or costs.power_w
    }
    plans = {objective: _plan_by_costs(costs, goal) for objective, goal in goals.items()}
    return {objective: plan for objective, plan in plans.items() if plan is not None}


def _plan_by_costs(costs: Costs, goal: Goal) -> Plan | None:
    plan = plan_that_fits(costs, _with_limit(goal)).plan
    if plan is None and goal.objective == "energy":
        plan = plan_that_fits(costs, _with_limit(replace(goal, objective="latency"))).plan
    return plan


def _with_limit(goal: Goal) -> Goal:
    """The goal, given up after `_PLANNING_S` from now."""
    until_s = time.monotonic() + _PLANNING_S
    return replace(goal, should_stop=lambda: time.monotonic() >= until_s)
