"""Exhaustive search against an enumeration written apart from it."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Sequence

import pytest

from shisha_rt.costs.costs_evaluator import CostsEvaluator
from shisha_rt.papers.shisha.arrangement import Space, space_of
from shisha_rt.papers.shisha.exhaustive import Exhaustive, next_combination, next_permutation, trial_count
from shisha_rt.papers.shisha.search import Limit, Search
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan
from shisha_rt.planner.loop import run
from tests.papers.shisha.enumeration import all_plans
from tests.planner.evaluators import costs_of
from tests.wording import says


def tried(space: Space) -> list[Plan]:
    tuner = Exhaustive(space)
    state, proposal = tuner.init()
    plans = [proposal.plan]
    while True:
        state, proposed = tuner.step(state, Measurement((1.0,), band=0.0, frames=1, took_s=1.0))
        if isinstance(proposed, str):
            assert proposed == says("all plans are …")
            return plans
        plans.append(proposed.plan)


@pytest.mark.parametrize(
    ("layers", "places", "stages", "legal_cuts"),
    [
        (1, 1, 1, None),
        (1, 3, 1, None),
        (5, 3, 3, None),
        (6, 4, 3, None),
        (7, 4, 2, {1, 4}),
        (7, 4, 3, {1, 4}),
        (4, 5, 4, None),
    ],
)
def test_every_plan_once(layers: int, places: int, stages: int, legal_cuts: set[int] | None) -> None:
    names = [f"p{i}" for i in range(places)]
    space = space_of(layers, names, stage_count=stages, legal_cuts=legal_cuts)
    plans = tried(space)
    expected = list(all_plans(layers, names, stages, legal_cuts))
    assert Counter(plans) == Counter(expected)
    assert trial_count(space) == len(expected)


@pytest.mark.parametrize("kinds", ["aabb", "abab", "aaaa", "abcc", "abbb"])
def test_of_places_that_are_alike_one_way_each(kinds: str) -> None:
    names = [f"{kind}{i}" for i, kind in enumerate(kinds)]
    alike = [[place for place, own in enumerate(kinds) if own == kind] for kind in dict.fromkeys(kinds)]
    space = space_of(5, names, stage_count=3, kinds=alike)

    def by_kind(plan: Plan) -> Sequence[tuple[int, str]]:
        return tuple((stage.first, stage.place[0]) for stage in plan.stages)

    ways = [by_kind(plan) for plan in tried(space)]
    assert len(set(ways)) == len(ways) == trial_count(space)
    assert set(ways) == set(map(by_kind, all_plans(5, names, 3)))


def test_the_optimum_of_random_instances() -> None:
    rng = random.Random(11)
    for _ in range(25):
        layers, places = rng.randint(1, 7), rng.randint(1, 3)
        stages = rng.randint(1, min(layers, places))
        costs = costs_of([[rng.randint(0, 9) for _ in range(places)] for _ in range(layers)], ranks=[1] * places)
        names = [place.name for place in costs.places]
        evaluator = CostsEvaluator(costs)
        result = run(Search(Exhaustive(space_of(layers, names, stage_count=stages)), Limit()), evaluator)
        expected_s = min(evaluator.measurement_of(plan).bottleneck_s for plan in all_plans(layers, names, stages))
        assert result.measurement.bottleneck_s == expected_s


@pytest.mark.parametrize(("count", "end"), [(0, 4), (1, 4), (3, 6), (5, 6)])
def test_combinations_in_order(count: int, end: int) -> None:
    expected = list(itertools.combinations(range(1, end), count))
    combinations = [expected[0]]
    while (following := next_combination(combinations[-1], end)) is not None:
        combinations.append(following)
    assert combinations == expected


@pytest.mark.parametrize(("line", "count"), [((0, 0, 1, 1), 2), ((0, 1, 2, 3), 4), ((0, 0, 0), 2), ((0, 1, 1, 2), 3)])
def test_the_beginnings_of_permutations_in_order(line: tuple[int, ...], count: int) -> None:
    expected = sorted(set(itertools.permutations(line, count)))
    lines = [line]
    while (following := next_permutation(lines[-1], count)) is not None:
        lines.append(following)
    assert [order[:count] for order in lines] == expected
    assert all(sorted(order) == sorted(line) for order in lines)
