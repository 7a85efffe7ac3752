"""Pipe-Search: the order of its database, its places, and the time it takes to build."""

from __future__ import annotations

import itertools
import statistics

import pytest

from shisha_rt.costs.costs import CostPlace
from shisha_rt.papers.shisha.arrangement import space_of
from shisha_rt.papers.shisha.pipe_search import PipeSearch, build_s, cut_count, most_even_first, pipe_search
from shisha_rt.plan.measurement import Measurement
from tests.wording import says

WEIGHTS = (5, 1, 4, 2, 8, 3)
PLACES = [CostPlace("slow", 2, None), CostPlace("fast", 1, None), CostPlace("slower", 3, None)]


def proposed(tuner: PipeSearch) -> list[str]:
    state, proposal = tuner.init()
    plans = [str(proposal.plan)]
    while True:
        state, following = tuner.step(state, Measurement((1.0,), band=0.0, frames=1, took_s=1.0))
        if isinstance(following, str):
            assert following == says("the database is …")
            return plans
        plans.append(str(following.plan))


@pytest.mark.parametrize("stages", [1, 2, 3, 6])
def test_all_ways_to_cut_the_most_even_first(stages: int) -> None:
    def spread(cuts: tuple[int, ...]) -> float:
        return statistics.pstdev(sum(WEIGHTS[a:b]) for a, b in itertools.pairwise((0, *cuts, 6)))

    ways = most_even_first(WEIGHTS, stages)
    assert sorted(ways) == list(itertools.combinations(range(1, 6), stages - 1))
    spreads = [spread(cuts) for cuts in ways]
    assert spreads == pytest.approx(sorted(spreads))


def test_depths_take_turns_and_the_heaviest_stage_is_on_the_fastest_place() -> None:
    plans = proposed(pipe_search(space_of(6, ["slow", "fast", "slower"], stage_count=3), WEIGHTS, PLACES))
    # Most even: 6 | 6 | 11 (2: 12 | 11), the deepest first; then one stage.
    assert plans[:3] == [
        "slow: 0-1 | slower: 2-3 | fast: 4-5",
        "fast: 0-3 | slow: 4-5",
        "fast: 0-5",
    ]
    assert len(plans) == len(set(plans)) == 1 + 5 + 10
    assert [plan.count("|") for plan in plans[3:7]] == [2, 1, 2, 1]


def test_only_legal_cuts() -> None:
    space = space_of(6, ["slow", "fast", "slower"], stage_count=3, legal_cuts={0, 2})
    assert set(proposed(pipe_search(space, WEIGHTS, PLACES))) == {
        "slow: 0-0 | slower: 1-2 | fast: 3-5",  # 5 and 5: the left one chooses first
        "slow: 0-0 | fast: 1-5",
        "slow: 0-2 | fast: 3-5",
        "fast: 0-5",
    }


def test_figure_4_took_1200_s_to_build() -> None:
    figure_4 = space_of(18, [f"p{i}" for i in range(8)], stage_count=8)
    assert cut_count(figure_4) == 41226
    assert build_s(figure_4) == pytest.approx(1200)
    smaller = space_of(18, [f"p{i}" for i in range(4)], stage_count=4)
    assert build_s(smaller) == pytest.approx(1200 * 834 / 41226)
