"""Strategies by name: what each is given, what is refused, and that all find a plan that can run."""

from __future__ import annotations

import random
from typing import Any

import pytest

from shisha_rt.costs.costs import CostPlace
from shisha_rt.costs.costs_evaluator import CostsEvaluator
from shisha_rt.errors import BadInput
from shisha_rt.papers.shisha.arrangement import Space, space_of
from shisha_rt.papers.shisha.rivals import rival
from shisha_rt.papers.shisha.search import Limit, Search
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.verify import PlanRules
from shisha_rt.planner.loop import run
from shisha_rt.planner.seed import seed
from shisha_rt.planner.strategies import LIVE, RIVALS, RivalName
from shisha_rt.planner.tuners import SearchTask, tuner_of
from tests.planner.evaluators import costs_of


def made(name: RivalName, space: Space, limit: Limit) -> Search[Any]:
    weights = [1.0] * space.layer_count
    places = [CostPlace(place, 1, None) for place in space.places]
    start = seed(weights, places, stage_count=space.stage_count)
    return rival(name, space, weights=weights, places=places, seed=start, rng=random.Random(0), limit=limit)


@pytest.mark.parametrize("name", [*LIVE, *RIVALS])
def test_each_finds_a_plan_that_passes_the_gate(name: str) -> None:
    costs = costs_of([[1, 2], [2, 4], [1, 3], [1, 2]], ranks=(1, 2), illegal_cuts=[1])
    start = Plan.of([(0, 0, "p1"), (1, 3, "p0")])
    task = SearchTask(start, costs.places, costs=costs, legal_cuts=costs.legal_cuts, trial_time_s=100.0)
    result = run(tuner_of(name, task), CostsEvaluator(costs))
    assert PlanRules(4, ("p0", "p1"), costs.legal_cuts).problems(result.solution) == []
    assert result.measurement.can_run
    assert result.measurement.bottleneck_s <= CostsEvaluator(costs).measurement_of(start).bottleneck_s


def test_all_but_the_walk_go_by_costs() -> None:
    task = SearchTask(Plan.of([(0, 0, "p1"), (1, 3, "p0")]), costs_of([[1, 2]] * 4, ranks=(1, 2)).places)
    tuner_of("shisha", task)
    for name in {*LIVE, *RIVALS} - {"shisha"}:
        with pytest.raises(ValueError, match="costs"):
            tuner_of(name, task)


SMALL = space_of(4, ["p0", "p1"], stage_count=2)
LARGE = space_of(40, [f"p{i}" for i in range(8)], stage_count=8)


@pytest.mark.parametrize("name", RIVALS)
def test_each_ends_without_a_limit(name: RivalName) -> None:
    result = run(made(name, SMALL, Limit()), CostsEvaluator(costs_of([[1, 2]] * 4, ranks=(1, 2))))
    assert len(result.trials) <= 1000
    assert (result.reason == "best of 1000 trials; the limit of 1000 trials is reached") == (name == "random_walk")


@pytest.mark.parametrize("name", ["exhaustive", "pipe_search"])
def test_a_space_too_large_is_refused(name: RivalName) -> None:
    with pytest.raises(BadInput, match=f"^{name}: .* expected at most 1000000"):
        made(name, LARGE, Limit())


def test_with_a_limit_any_space_can_be_enumerated() -> None:
    assert made("exhaustive", LARGE, Limit(trials=5)).limit == Limit(trials=5)


def test_only_pipe_search_prepares() -> None:
    assert {name for name in RIVALS if made(name, SMALL, Limit()).setup_s} == {"pipe_search"}
