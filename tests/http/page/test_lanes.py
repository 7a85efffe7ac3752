"""Where stages and the ways between them are drawn."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from shisha_rt.http.page.lanes import MOST_LANES, drawing


def test_a_chain_is_one_line() -> None:
    drawn = drawing([(), (0,), (1,), (2,)])
    assert drawn.lanes == (0, 0, 0, 0)
    assert drawn.ways == ((0, 1, 0), (1, 2, 0), (2, 3, 0))


def test_branches_stand_beside_each_other_and_join() -> None:
    drawn = drawing([(), (0,), (1,), (1,), (1,), (2, 3, 4), (5,)])
    assert drawn.lanes == (0, 0, 0, 1, 2, 0, 0)
    assert drawn.ways[-4:] == ((2, 5, 0), (3, 5, 1), (4, 5, 2), (5, 6, 0))


def test_a_way_past_a_stage_goes_round_it() -> None:
    drawn = drawing([(), (0,), (0, 1)])
    assert drawn.lanes == (0, 0, 0)
    assert (0, 2, 1) in drawn.ways


@pytest.mark.parametrize("seed", range(40))
def test_no_way_runs_through_a_stage(seed: int) -> None:
    """Unless the graph is wider than there are columns."""
    rng = random.Random(seed)
    after: list[tuple[int, ...]] = [()]
    for index in range(1, rng.randrange(2, 14)):
        after.append(tuple(rng.sample(range(index), rng.randrange(1, min(3, index) + 1))))
    drawn = drawing(after)
    if max(drawn.lanes) == MOST_LANES - 1 or any(lane == MOST_LANES - 1 for *_, lane in drawn.ways):
        return
    for start, end, lane in drawn.ways:
        assert lane not in drawn.lanes[start + 1 : end]


def test_a_graph_that_is_wider_than_the_page() -> None:
    drawn = drawing([(), *[(0,)] * 200, tuple(range(1, 201))])
    assert max(drawn.lanes) == MOST_LANES - 1
    assert len(drawn.ways) == 400
    assert all(start < end for start, end, _ in drawn.ways)
    assert all(a <= b for a, b in pairwise(sorted(end for _, end, _ in drawn.ways)))
