"""What trials teach of shards: on places that are slower than predicted, and of layers that are."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

import pytest

from shisha_rt.costs.costs import Costs
from shisha_rt.costs.split_costs import ShardScale, SplitCosts
from shisha_rt.costs.team_costs import team_costs
from shisha_rt.model.split import Splittable
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan
from shisha_rt.planner.shards.pieces import Item, Shards, WholeRun, assembled
from shisha_rt.planner.shards.splits_tried import with_splits_tried
from tests.drawn import chunks
from tests.planner.evaluators import costs_of

LAYERS, UNITS = 8, 32
WAYS = tuple(Splittable(layer, layer, "channels", UNITS, 1, ()) for layer in range(LAYERS))


def predicted(rng: random.Random) -> Costs:
    """A place, and one less than half as quick."""
    costs = costs_of([[seconds, 2.5 * seconds] for seconds in (rng.uniform(0.5, 10) for _ in range(LAYERS))], [1, 2])
    return replace(costs, splits=SplitCosts(WAYS, overhead_s=0.25))


def true(rng: random.Random, costs: Costs, layers: float) -> Costs:
    """The slow place takes far longer to begin with a shard; each place is off, and each layer by up to `layers`."""
    places = {"p0": ShardScale(rng.uniform(0.8, 1.2), rng.uniform(0.9, 1.2)), "p1": ShardScale(rng.uniform(2, 5), 1.4)}
    scales = {
        ((layer, layer), name): ShardScale(scale.fixed * off, scale.units * off)
        for name, scale in places.items()
        for layer in range(LAYERS)
        for off in [rng.uniform(1 - layers, 1 + layers)]
    }
    return replace(costs, splits=replace(costs.splits, scales=scales))


def split_in(fraction: float) -> Plan:
    """All layers split over both places, `fraction` of each on p0."""
    units = round(UNITS * fraction)
    items: list[Item] = [Shards.on_places(way, ("p0", "p1"), (units, UNITS - units)) for way in WAYS]
    return assembled(items)


def measured(costs: Costs, plan: Plan, noise: random.Random) -> Measurement:
    """Within 2% of what it takes."""
    taken_s = [own_s * noise.uniform(0.98, 1.02) for (own_s,) in team_costs(costs).team_s(plan)]
    return Measurement(tuple(taken_s), 0.02, 32, 1.0)


def errors(costs: Costs, truth: Costs, plan: Plan) -> list[float]:
    both_s = zip(team_costs(costs).team_s(plan), team_costs(truth).team_s(plan), strict=True)
    return [abs(predicted_s / true_s - 1) for (predicted_s,), (true_s,) in both_s]


def after(costs: Costs, truth: Costs, fractions: Sequence[float], noise: random.Random) -> Costs:
    plans = [split_in(fraction) for fraction in fractions]
    return with_splits_tried(costs, [(plan, measured(truth, plan, noise)) for plan in plans], "latency")


@pytest.mark.parametrize("seeds", chunks(100, 25, short=25))
def test_shards_of_other_sizes_are_predicted_within_a_tenth(seeds: range) -> None:
    """Where one factor for all shards is a fifth off in the median."""
    before, at_once, later = list[float](), list[float](), list[float]()
    for seed in seeds:
        rng = random.Random(seed)
        costs = predicted(rng)
        truth = true(rng, costs, layers=0.1)
        tried = split_in(0.5)
        factor = sum(map(sum, team_costs(truth).team_s(tried))) / sum(map(sum, team_costs(costs).team_s(tried)))
        scales = {key: ShardScale(factor, factor) for key in truth.splits.scales}
        by_factor = replace(costs, splits=replace(costs.splits, scales=scales))
        before += errors(by_factor, truth, split_in(0.7))
        at_once += errors(after(costs, truth, [0.5], rng), truth, split_in(0.7))
        later += errors(after(costs, truth, [0.5, 0.8], rng), truth, split_in(0.3))
    assert median(before) > 0.15
    assert median(at_once) < 0.02
    assert median(later) < 0.02
    assert sorted(later)[int(0.95 * len(later))] < 0.1


def test_other_layers_go_by_their_place_and_places_alike_by_each_other() -> None:
    """p1 and p2 are alike: what a shard took on p1 holds for both. No shard ran on p3: it is off as all others are."""
    costs = costs_of([[1.0, 2.0, 2.0, 3.0]] * 2, [1, 2, 2, 3])
    ways = tuple(Splittable(layer, layer, "channels", 4, 1, ()) for layer in range(2))
    costs = replace(costs, splits=SplitCosts(ways))
    plan = assembled([Shards.on_places(ways[0], ("p0", "p1"), (2, 2)), WholeRun(1, 1, (("p0",),))])
    taken = Measurement(
        tuple(3 * s if index == 1 else s for index, (s,) in enumerate(team_costs(costs).team_s(plan))), 0.0, 1, 1.0
    )
    learnt = with_splits_tried(costs, [(plan, taken)], "latency").splits
    scales = {name: learnt.scale((1, 1), name).units for name in ("p0", "p1", "p2", "p3")}
    assert scales == pytest.approx({"p0": 1.0, "p1": 3.0, "p2": 3.0, "p3": 2.3}, rel=0.1)


def test_a_shard_that_took_no_time_or_never_ran_teaches_nothing() -> None:
    costs = predicted(random.Random(0))
    plan = split_in(0.5)
    for seconds, frames in ((0.0, 1), (math.inf, 0)):
        never = Measurement((seconds,) * len(plan.stages), 0.0, frames, 0.0)
        assert with_splits_tried(costs, [(plan, never)], "latency").splits.scales == {}
