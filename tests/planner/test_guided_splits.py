"""Guided tuning with layers that may be split: shards that take what is told, more, or far more."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from shisha_rt.costs.costs import CostLayer, Costs
from shisha_rt.costs.costs_evaluator import CostsEvaluator
from shisha_rt.costs.split_costs import ShardScale, SplitCosts
from shisha_rt.model.spans import Span
from shisha_rt.model.split import Splittable
from shisha_rt.outcome import Outcome
from shisha_rt.papers.simulate.simulated_evaluator import SimulatedEvaluator, with_error
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import Objective
from shisha_rt.planner.exact import exact_plan
from shisha_rt.planner.goal import Goal
from shisha_rt.planner.guided import guided
from shisha_rt.planner.loop import Result, run
from tests.planner.evaluators import costs_of


def with_ways(costs: Costs, units: int = 32, block: int = 1, *, overhead_s: float = 0.0, factor: float = 1.0) -> Costs:
    """All layers can be split; shards take `factor` times as long."""
    ways = tuple(Splittable(layer, layer, "channels", units, block, ()) for layer in range(len(costs.layers)))
    return replace(costs, splits=SplitCosts(ways, overhead_s, scaled(costs, factor)))


def scaled(costs: Costs, factor: float) -> dict[tuple[Span, str], ShardScale]:
    scale = ShardScale(factor, factor)
    return {((layer, layer), place.name): scale for layer in range(len(costs.layers)) for place in costs.places}


HEAVY = costs_of([[1.0, 1.0, 1.0], [12.0, 12.0, 12.0], [2.0, 2.0, 2.0]], [1, 1, 1])
"""A bottleneck of 12, and with splits of 5."""


def tuned(costs: Costs, truth: Costs, *, replicate: bool = False, objective: Objective = "throughput") -> Result:
    start = exact_plan(costs, Goal(replicate=replicate, objective=objective)).plan
    tuner = guided(costs, start, Goal(replicate=replicate, objective=objective))
    return run(tuner, CostsEvaluator(truth), objective=objective)


def split_trials(result: Result) -> list[Plan]:
    return [trial.plan for trial in result.trials if trial.plan.splits]


def test_a_split_is_the_last_thing_tried_and_kept_if_it_is_better() -> None:
    costs = with_ways(HEAVY)
    result = tuned(costs, costs)
    assert not result.trials[0].plan.splits
    assert "layer 1" in result.trials[-1].reason
    assert split_trials(result) == [result.solution]
    assert result.measurement.bottleneck_s == pytest.approx(5, rel=0.05)


def test_what_one_layers_shards_took_corrects_all_others() -> None:
    """Told that a shard takes its share; in truth it takes half as much again."""
    costs, truth = with_ways(HEAVY), with_ways(HEAVY, factor=1.5)
    result = tuned(costs, truth)
    tried = split_trials(result)
    assert 2 <= len(tried) <= 3
    fair = tuned(truth, truth)
    assert result.measurement.bottleneck_s <= 1.02 * fair.measurement.bottleneck_s
    assert result.measurement.bottleneck_s < CostsEvaluator(truth).measurement_of(tried[0]).bottleneck_s


def test_one_layer_after_the_other() -> None:
    """For latency all layers are worth it; the longest comes first, so that the others are told of better."""
    costs = with_ways(costs_of([[3.0, 3.0], [12.0, 12.0], [6.0, 6.0]], [1, 1]), overhead_s=0.1)
    result = tuned(costs, costs, objective="latency")
    spans = [[plan.stages[shards[0]].first for shards in plan.splits] for plan in split_trials(result)]
    assert spans == [[1], [1, 2], [0, 1, 2]]
    assert result.solution == split_trials(result)[-1]


@pytest.mark.parametrize("objective", ["throughput", "latency"])
@pytest.mark.parametrize("replicate", [False, True])
def test_a_split_that_does_not_pay_is_tried_once_and_dropped(objective: Objective, replicate: bool) -> None:
    costs, truth = with_ways(HEAVY), with_ways(HEAVY, overhead_s=30.0)
    result = tuned(costs, truth, objective=objective, replicate=replicate)
    spans = [stage.split.span for plan in split_trials(result) for stage in plan.stages if stage.split]
    assert len(split_trials(result)) <= 1
    assert (spans != []) == (not replicate or objective == "latency")
    assert not result.solution.splits
    best = exact_plan(truth, Goal(objective=objective, replicate=replicate)).plan
    assert best is not None
    least_s = CostsEvaluator(truth).measurement_of(best).value(objective)
    assert result.measurement.value(objective) == pytest.approx(least_s)


@pytest.mark.parametrize("seed", range(6))
def test_the_best_measured_plan_stays(seed: int) -> None:
    """Costs that are wrong, shards that take longer than told, noise: nothing is worse than without splits."""
    rng = random.Random(seed)
    layers_s = [rng.choice([1.0, 2.0, 9.0]) for _ in range(8)]
    costs = costs_of([[seconds, seconds, 2 * seconds] for seconds in layers_s], [1, 1, 2])
    costs = with_ways(replace(costs, transfer_s=np.full(7, 0.1)), block=4, overhead_s=0.05)
    truth = with_error(costs, 0.15, rng)
    truth = replace(
        truth, splits=replace(costs.splits, overhead_s=rng.choice([0.05, 0.5, 5.0]), scales=scaled(costs, 1.2))
    )
    evaluator = SimulatedEvaluator(truth, noise=0.005, rng=rng)
    result = run(guided(costs), evaluator)
    without = run(guided(replace(costs, splits=SplitCosts())), evaluator)
    assert result.measurement.bottleneck_s <= 1.03 * without.measurement.bottleneck_s
    assert len(split_trials(result)) <= 8
    measured = min(trial.measurement.bottleneck_s for trial in result.trials)
    assert result.measurement.bottleneck_s <= 1.03 * measured


def test_it_begins_with_a_split_where_nothing_else_has_room() -> None:
    layers = tuple(CostLayer(str(i), 1.0, size, 0) for i, size in enumerate((10, 100, 10)))
    places = tuple(replace(place, memory_bytes=70) for place in HEAVY.places)
    costs = with_ways(replace(HEAVY, layers=layers, places=places), units=100)
    assert exact_plan(costs).outcome is Outcome.INFEASIBLE
    result = run(guided(costs), CostsEvaluator(costs))
    assert result.trials[0].plan.splits
    assert result.outcome is Outcome.FEASIBLE
    with pytest.raises(ValueError, match="costs without a"):
        guided(replace(costs, splits=SplitCosts()))
