"""Where stages and the ways between them are drawn."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from shisha_rt.http.page.lanes import MOST_LANES, drawing


def test_a_chain_is_one_line() -> None:
    found = drawing([(), (0,), (1,), (2,)])
    assert found.lanes == (0, 0, 0, 0)
    assert found.ways == ((0, 1, 0), (1, 2, 0), (2, 3, 0))


def test_branches_stand_beside_each_other_and_join() -> None:
    found = drawing([(), (0,), (1,), (1,), (1,), (2, 3, 4), (5,)])
    assert found.lanes == (0, 0, 0, 1, 2, 0, 0)
    assert found.ways[-4:] == ((2, 5, 0), (3, 5, 1), (4, 5, 2), (5, 6, 0))


def test_a_way_past_a_stage_goes_round_it() -> None:
    found = drawing([(), (0,), (0, 1)])
    assert found.lanes == (0, 0, 0)
    assert (0, 2, 1) in found.ways


@pytest.mark.parametrize("seed", range(40))
def test_no_way_runs_through_a_stage(seed: int) -> None:
    """Unless the graph is wider than there are columns."""
    rng = random.Random(seed)
    after: list[tuple[int, ...]] = [()]
    for index in range(1, rng.randrange(2, 14)):
        after.append(tuple(rng.sample(range(index), rng.randrange(1, min(3, index) + 1))))
    found = drawing(after)
    if max(found.lanes) == MOST_LANES - 1 or any(lane == MOST_LANES - 1 for *_, lane in found.ways):
        return
    for start, end, lane in found.ways:
        assert lane not in found.lanes[start + 1 : end]


def test_a_graph_that_is_wider_than_the_page() -> None:
    found = drawing([(), *[(0,)] * 200, tuple(range(1, 201))])
    assert max(found.lanes) == MOST_LANES - 1
    assert len(found.ways) == 400
    assert all(start < end for start, end, _ in found.ways)
    assert all(a <= b for a, b in pairwise(sorted(end for _, end, _ in found.ways)))
