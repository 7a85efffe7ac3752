"""Costs of a model's layers on the machine that it was made ready for, as planners get them, and best plans by them.

If places have devices, a layer's cost is that of the best placement of its operators.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from shisha_rt.costs.alike import among
from shisha_rt.costs.costs import Costs
from shisha_rt.costs.layer_costs import LayerCosts, PacedCosts
from shisha_rt.costs.links import AS_INPUT, CostTensor, Links
from shisha_rt.costs.split_costs import SHARD_S, PricedSplit, ShardTime, SplitCosts
from shisha_rt.machine.machine import Machine
from shisha_rt.measure.compile import Tell, silent
from shisha_rt.measure.model_on_machine import ModelOnMachine
from shisha_rt.measure.profile import known_costs, profile_model
from shisha_rt.measure.sitting import Sitting
from shisha_rt.model.index import NO_LAYER, ModelIndex
from shisha_rt.model.layers import layer_of_operator
from shisha_rt.model.split import Splittable
from shisha_rt.placement.placed_costs import PlacedCosts
from shisha_rt.placement.shard_costs import shard_times
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import EVERY_OBJECTIVE, Objective
from shisha_rt.planner.goal import Goal
from shisha_rt.planner.shards.split_plan import plan_that_fits

_PLANNING_S: Final = 2.0


def layer_costs(ready: ModelOnMachine, on_progress: Tell = silent, batches: Sequence[int] = ()) -> PacedCosts:
    """Costs of layers on the places, measured first if need be. `batches`, and what is raised: as `profile_model`."""
    if ready.operator_costs:
        return _placed_costs(ready)
    return LayerCosts(profile_model(ready, Sitting(on_progress), batches), ready.machine, _links(ready))


def known_layer_costs(ready: ModelOnMachine) -> PacedCosts | None:
    """Costs of layers on the places; None if anything has to be measured. Raises as `profile_model` does."""
    if ready.operator_costs:
        return _placed_costs(ready)
    raw = known_costs(ready)
    return None if raw is None else LayerCosts(raw, ready.machine, _links(ready))


def _placed_costs(ready: ModelOnMachine) -> PlacedCosts:
    graph, layers = ready.compiled.model.graph, ready.compiled.layers
    return PlacedCosts(graph, layers, ready.machine, ready.operator_costs, ready.team_costs)


def _links(ready: ModelOnMachine) -> Links | None:
    """Costs of sending tensors to places on other hosts; None if there are no such places."""
    return Links(cost_tensors(ready.compiled.index), ready.far) if ready.machine.remote else None


def priced_splits(ready: ModelOnMachine) -> tuple[Sequence[Splittable], Mapping[PricedSplit, ShardTime]]:
    """How layers may be split, and times of shards known beforehand, scaled by the place's speed and the time scale.

    Such times come from the formulas of described devices; then only splits that the formulas cover are allowed.
    """
    splits = () if ready.unsplit else ready.compiled.index.splits
    devices = {place: device[0] for place, device in ready.devices.items() if device[0].described}
    if not devices or ready.unsplit:
        return splits, {}
    layers = layer_of_operator(ready.compiled.layers)
    times = shard_times(ready.compiled.model.graph, layers, splits, devices)
    known = {key[:2] for key in times}
    scale = ready.machine.time_scale
    shares = {key: time.stretched(scale / ready.machine.place(key[-1]).speed) for key, time in times.items()}
    return [split for split in splits if split.along in known], shares


def cost_tensors(index: ModelIndex) -> tuple[CostTensor, ...]:
    """Tensors between layers, each with a reader: inputs, those read by other layers, outputs that none reads."""
    makers = dict(zip((spec.name for spec in index.outputs), index.output_makers, strict=True))
    crossing = {entry.tensor.name: entry for entry in index.crossing}
    tensors = [
        CostTensor(spec.name, spec.size_bytes, AS_INPUT, readers)
        for spec, readers in zip(index.inputs, index.input_readers, strict=True)
    ]
    for name, entry in crossing.items():
        out = (index.layer_count,) if name in makers else ()
        tensors.append(CostTensor(name, entry.tensor.size_bytes, entry.made, entry.readers + out))
    tensors += [
        CostTensor(spec.name, spec.size_bytes, makers[spec.name], (index.layer_count,))
        for spec in index.outputs
        if spec.name not in crossing and makers[spec.name] != NO_LAYER
    ]
    return tuple(tensor for tensor in tensors if tensor.readers)


def told_costs(
    stored: PacedCosts,
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
    split_costs = SplitCosts(tuple(splits), SHARD_S / time_scale, shard_times=shares)
    places = tuple(
        place if place.power_w is None else replace(place, power_w=place.power_w * time_scale) for place in costs.places
    )
    return replace(costs, places=places, time_s=costs.time_s / time_scale, teams=teams, splits=split_costs, batches=())


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
