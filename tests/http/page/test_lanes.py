"""Where stages and the ways between them are drawn."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from shisha_rt.http.page.drawn import MOST_LANES, lanes_and_ways


def test_a_chain_is_one_line() -> None:
    lanes, ways = lanes_and_ways([(), (0,), (1,), (2,)])
    assert lanes == [0, 0, 0, 0]
    assert ways == [(0, 1, 0), (1, 2, 0), (2, 3, 0)]


def test_branches_stand_beside_each_other_and_join() -> None:
    lanes, ways = lanes_and_ways([(), (0,), (1,), (1,), (1,), (2, 3, 4), (5,)])
    assert lanes == [0, 0, 0, 1, 2, 0, 0]
    assert ways[-4:] == [(2, 5, 0), (3, 5, 1), (4, 5, 2), (5, 6, 0)]


def test_a_way_past_a_stage_goes_round_it() -> None:
    lanes, ways = lanes_and_ways([(), (0,), (0, 1)])
    assert lanes == [0, 0, 0]
    assert (0, 2, 1) in ways


@pytest.mark.parametrize("seed", range(40))
def test_no_way_runs_through_a_stage(seed: int) -> None:
    """Unless the graph is wider than there are columns."""
    rng = random.Random(seed)
    after: list[tuple[int, ...]] = [()]
    for index in range(1, rng.randrange(2, 14)):
        after.append(tuple(rng.sample(range(index), rng.randrange(1, min(3, index) + 1))))
    lanes, ways = lanes_and_ways(after)
    if max(lanes) == MOST_LANES - 1 or any(lane == MOST_LANES - 1 for *_, lane in ways):
        return
    for start, end, lane in ways:
        assert lane not in lanes[start + 1 : end]


def test_a_graph_that_is_wider_than_the_page() -> None:
    lanes, ways = lanes_and_ways([(), *[(0,)] * 200, tuple(range(1, 201))])
    assert max(lanes) == MOST_LANES - 1
    assert len(ways) == 400
    assert all(start < end for start, end, _ in ways)
    assert all(a <= b for a, b in pairwise(sorted(end for _, end, _ in ways)))
