"""The size of the search space, against counting every plan."""

from __future__ import annotations

from itertools import combinations, permutations

import pytest

from shisha_rt.planner.solution import explored_fraction, plan_count


@pytest.mark.parametrize(
    ("cuts", "place_count", "stage_count"), [(0, 1, 1), (3, 2, 2), (4, 3, 3), (4, 3, 2), (1, 4, 4), (5, 4, 3)]
)
def test_plan_count_is_the_number_of_plans(cuts: int, place_count: int, stage_count: int) -> None:
    plans = {
        (chosen, order)
        for n in range(1, stage_count + 1)
        for chosen in combinations(range(cuts), n - 1)
        for order in permutations(range(place_count), n)
    }
    assert plan_count(cuts, place_count, stage_count) == len(plans)


@pytest.mark.parametrize(
    ("trials", "layers", "stages", "percent"), [(18, 50, 4, 0.1), (17, 18, 4, 2.5), (23, 18, 8, 0.12)]
)
def test_explored_fractions_of_the_paper(trials: int, layers: int, stages: int, percent: float) -> None:
    assert 100 * explored_fraction(trials, layers, stages) == pytest.approx(percent, rel=0.03)
