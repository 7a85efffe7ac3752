"""Guided tuning with places on other hosts: what links explain is not learnt as layers, and it gets to good plans."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import numpy as np
import pytest

from shisha_rt.costs.costs import Costs
from shisha_rt.costs.costs_evaluator import CostsEvaluator
from shisha_rt.costs.costs_file import parse_costs
from shisha_rt.costs.split_costs import SplitCosts
from shisha_rt.model.split import Splittable
from shisha_rt.papers.simulate.simulated_evaluator import with_error
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import OBJECTIVES, Objective
from shisha_rt.planner.exact import exact_plan
from shisha_rt.planner.goal import Goal
from shisha_rt.planner.guided import guided
from shisha_rt.planner.learning import learnt
from shisha_rt.planner.loop import run
from shisha_rt.planner.shards.split_plan import split_plan
from tests.costs.linked import linked
from tests.drawn import chunks
from tests.planner.every_far_chain import random_far_costs

COSTS = parse_costs(json.dumps(linked()), "C.json")


def learnt_s(true_s: float, plan: Plan) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """(layers, places): what is believed when each layer takes so long, and one second was told."""
    truth = CostsEvaluator(replace(COSTS, time_s=np.full_like(COSTS.time_s, true_s)))
    return learnt(COSTS, [(plan, truth.measurement_of(plan))], lambda _: True).costs.time_s


class TestLearning:
    def test_what_links_take_says_nothing_of_layers(self) -> None:
        # Layer 3 on y0: there 6 s, its layer 1 s as told, or 5.
        for true_s in (1.0, 5.0):
            assert learnt_s(true_s, Plan.of([(0, 2, "l0"), (3, 3, "y0")]))[3, 3] == pytest.approx(1.0, rel=0.3 * true_s)

    def test_a_stage_that_takes_longer_than_its_links_tells_of_its_layers(self) -> None:
        assert learnt_s(9.0, Plan.of([(0, 2, "l0"), (3, 3, "y0")]))[3, 3] == pytest.approx(9.0, rel=0.05)

    def test_layers_take_no_longer_than_their_stage(self) -> None:
        costs = replace(COSTS, time_s=COSTS.time_s * 20)
        plan = Plan.of([(0, 2, "l0"), (3, 3, "y0")])
        time_s = learnt(costs, [(plan, CostsEvaluator(COSTS).measurement_of(plan))], lambda _: True).costs.time_s
        assert time_s[3, 3] == pytest.approx(6.0, rel=0.05)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("seeds", chunks(100, 5, short=5))
def test_it_gets_near_the_best_of_what_is_true(seeds: range, objective: Objective) -> None:
    ratios = []
    for seed in seeds:
        rng = random.Random(seed)
        costs = random_far_costs(rng, rng.randint(2, 7), rng.randint(2, 4))
        truth = with_error(costs, 0.3, rng)
        best = exact_plan(truth, Goal(replicate=seed % 2 == 1, objective=objective))
        if best.plan is None:
            continue
        tuner = guided(costs, goal=Goal(replicate=seed % 2 == 1, objective=objective))
        result = run(tuner, CostsEvaluator(truth), objective=objective)
        least_s = CostsEvaluator(truth).measurement_of(best.plan).value(objective)
        ratios.append(result.measurement.value(objective) / least_s if least_s else 1.0)
    assert np.mean(ratios) < 1.1


def with_splits(costs: Costs) -> Costs:
    return replace(costs, splits=SplitCosts((Splittable(1, 1, "channels", 8, 1, ()),), overhead_s=0.01))


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_no_shard_is_on_another_host(objective: Objective) -> None:
    # Layer 1 takes most; two places here, two far away.
    slow = linked()
    slow["places"][1].pop("host")
    slow["time_s"][1] = [20.0] * 4
    costs = with_splits(parse_costs(json.dumps(slow), "C.json"))
    solution = split_plan(
        costs, exact_plan(costs, Goal(objective=objective)), Goal(objective=objective), handover_s=0.0
    )
    assert solution.plan is not None
    assert solution.plan.splits
    assert CostsEvaluator(costs).measurement_of(solution.plan).can_run
    assert {place for stage in solution.plan.stages if stage.split for place in stage.places} == {"l0", "x0"}
    everywhere = with_splits(COSTS)
    whole = exact_plan(everywhere, Goal(objective=objective))
    assert split_plan(everywhere, whole, Goal(objective=objective)).plan == whole.plan
    tuned = run(guided(costs, goal=Goal(objective=objective)), CostsEvaluator(costs), objective=objective)
    assert tuned.measurement.can_run
