"""The random walk: each plan is a neighbour of the last, better or not."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest

from shisha_rt.costs.costs_evaluator import CostsEvaluator
from shisha_rt.papers.shisha.arrangement import Space, space_of
from shisha_rt.papers.shisha.exhaustive import Exhaustive
from shisha_rt.papers.shisha.random_walk import RandomWalk
from shisha_rt.papers.shisha.search import MOST_TIMELESS, Limit, Rival, Search
from shisha_rt.planner.loop import run
from tests.papers.shisha.enumeration import all_plans
from tests.planner.evaluators import costs_of
from tests.wording import says


def test_it_goes_on_from_worse_plans_and_comes_everywhere() -> None:
    costs = costs_of([[1, 2, 3]] * 4, ranks=(1, 2, 3))
    space = space_of(4, ["p0", "p1", "p2"], stage_count=2)
    result = run(Search(RandomWalk(space, random.Random(1)), Limit(trials=500)), CostsEvaluator(costs))
    plans = [trial.plan for trial in result.trials]
    assert all(before != after for before, after in itertools.pairwise(plans))
    assert any(
        later.measurement.bottleneck_s > earlier.measurement.bottleneck_s
        for earlier, later in itertools.pairwise(result.trials)
    )
    assert set(plans) == set(all_plans(4, ["p0", "p1", "p2"], 2))


@pytest.mark.parametrize("number", range(3))
def test_a_space_of_one_plan(number: int) -> None:
    walk = RandomWalk(space_of(2, ["p0"], stage_count=1), random.Random(number))
    result = run(Search(walk, Limit(trials=9)), CostsEvaluator(costs_of([[1], [1]], ranks=(1,))))
    assert result.reason == says("best of 1 trials; there is no …")


@pytest.mark.parametrize("rival", [lambda space: RandomWalk(space, random.Random(0)), Exhaustive])
def test_it_ends_where_no_plan_can_run_whatever_its_limit_of_time(rival: Callable[[Space], Rival[Any]]) -> None:
    costs = costs_of([[None] * 4] * 24, ranks=(1, 2, 3, 4))
    space = space_of(24, ["p0", "p1", "p2", "p3"], stage_count=4)
    ended = run(Search(rival(space), Limit(trial_time_s=1.0)), CostsEvaluator(costs))
    assert len(ended.trials) == MOST_TIMELESS
    assert ended.reason == says("best of 5000 trials; … took no time, …")
