"""Where places that are left go, by hand, and that they never make a plan slower."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from shisha_rt.costs.costs import CostLayer, CostPlace
from shisha_rt.costs.costs_evaluator import CostsEvaluator
from shisha_rt.plan.plan import Plan
from shisha_rt.planner.best_chain import with_further_copies
from shisha_rt.planner.exact import exact_plan
from shisha_rt.planner.goal import Goal
from tests.planner.evaluators import costs_of


def test_to_the_slowest_stage_each_time() -> None:
    costs = costs_of([[4] * 6, [1.5] * 6], ranks=[1] * 6)
    plan = with_further_copies(costs, Plan.of([(0, 0, "p0"), (1, 1, "p1")]))
    assert str(plan) == "p0, p2, p3, p5: 0-0 | p1, p4: 1-1"


def test_the_quickest_first_and_none_that_cannot() -> None:
    costs = costs_of([[4, 8, 2, None]], ranks=[1] * 4)
    assert str(with_further_copies(costs, Plan.of([(0, 0, "p0")]))) == "p2, p0, p1: 0-0"


def test_it_ends_where_the_slowest_stage_cannot_be_helped() -> None:
    costs = costs_of([[4, 8, None], [1, 2, 1]], ranks=[1] * 3)
    assert str(with_further_copies(costs, Plan.of([(0, 0, "p0"), (1, 1, "p1")]))) == "p0: 0-0 | p1: 1-1"


def test_unlike_copies_only_where_stages_may_be_mixed() -> None:
    costs = replace(costs_of([[4, 4, 1]], ranks=[1] * 3), mixed=False)
    assert str(with_further_copies(costs, Plan.of([(0, 0, "p0")]))) == "p0, p1: 0-0"


def test_a_copy_has_to_hold_its_stage() -> None:
    costs = costs_of([[4, 4, 4]], ranks=[1] * 3)
    small = (CostPlace("p0", 1, None), CostPlace("p1", 1, 5), CostPlace("p2", 1, 20))
    costs = replace(costs, places=small, layers=(CostLayer("0", 1.0, 10, 0),))
    assert str(with_further_copies(costs, Plan.of([(0, 0, "p0")]))) == "p0, p2: 0-0"


@pytest.mark.parametrize("seed", range(30))
def test_no_plan_is_slower_for_it(seed: int) -> None:
    rng = random.Random(seed)
    places = rng.randint(2, 9)
    times = [[rng.choice([None, *range(1, 9)]) for _ in range(places)] for _ in range(rng.randint(1, 6))]
    costs = costs_of([[1, *row] for row in times], ranks=[1] * (places + 1))
    plan = exact_plan(costs, Goal(most_stages=2)).plan
    assert plan is not None
    before, after = (CostsEvaluator(costs).measurement_of(p) for p in (plan, with_further_copies(costs, plan)))
    assert after.can_run
    assert after.bottleneck_s <= before.bottleneck_s
