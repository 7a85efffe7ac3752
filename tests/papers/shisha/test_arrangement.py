"""The space that the rivals share: what lies in it, and that its moves reach all of it."""

from __future__ import annotations

import random
from collections import deque

import pytest

from shisha_rt.errors import BadInput
from shisha_rt.papers.shisha.arrangement import Arrangement, Space, space_of
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.verify import PlanRules
from tests.papers.shisha.enumeration import all_plans


def reachable(space: Space, start: Arrangement) -> set[Plan]:
    """By moves alone; each move must lead to another plan."""
    seen, pending = {start}, deque([start])
    while pending:
        at = pending.popleft()
        for to in space.neighbours(at):
            assert space.plan(to) != space.plan(at)
            if to not in seen:
                seen.add(to)
                pending.append(to)
    return {space.plan(at) for at in seen}


@pytest.mark.parametrize(
    ("layers", "places", "stages", "legal_cuts"),
    [(5, 3, 3, None), (4, 4, 2, None), (6, 3, 3, {0, 3, 4}), (4, 3, 1, None), (1, 2, 1, None), (3, 3, 3, {1, 0})],
)
def test_moves_reach_every_plan_and_no_other(
    layers: int, places: int, stages: int, legal_cuts: set[int] | None
) -> None:
    names = [f"p{i}" for i in range(places)]
    space = space_of(layers, names, stage_count=stages, legal_cuts=legal_cuts)
    expected = set(all_plans(layers, names, stages, legal_cuts))
    assert reachable(space, space.drawn(random.Random(1))) == expected


def test_places_that_are_alike_are_not_exchanged() -> None:
    space = space_of(4, ["f0", "f1", "s0"], stage_count=2, kinds=[(0, 1), (2,)])
    start = space.arrangement(Plan.of([(0, 1, "f0"), (2, 3, "f1")]))
    assert {str(space.plan(to)) for to in space.neighbours(start)} == {
        "f0: 0-0 | f1: 1-3",
        "f0: 0-2 | f1: 3-3",
        "s0: 0-1 | f1: 2-3",
        "f0: 0-1 | s0: 2-3",
    }


def test_a_plan_and_its_arrangement() -> None:
    space = space_of(6, ["a", "b", "c", "d"], stage_count=3, legal_cuts={0, 2, 3})
    plan = Plan.of([(0, 2, "c"), (3, 5, "a")])
    at = space.arrangement(plan)
    assert (at, space.plan(at)) == (Arrangement((0, 2, 4, 4), (2, 0, 1, 3)), plan)


def test_a_drawn_plan_uses_every_stage_and_any_place() -> None:
    names = ["a", "b", "c", "d"]
    space = space_of(7, names, stage_count=3, legal_cuts={0, 2, 3, 5})
    rng = random.Random(0)
    drawn = [space.plan(space.drawn(rng)) for _ in range(400)]
    assert all(len(plan.stages) == 3 for plan in drawn)
    assert not any(PlanRules(7, tuple(names), frozenset({0, 2, 3, 5})).problems(plan) for plan in drawn)
    assert len(set(drawn)) > 120  # of 6 x 24 = 144


@pytest.mark.parametrize("stages", [0, 4, -1])
def test_a_stage_count_that_cannot_be(stages: int) -> None:
    with pytest.raises(BadInput, match=rf"^{stages} stages: expected 1 to 3, for 3 places and 4 cuts$"):
        space_of(5, ["a", "b", "c"], stage_count=stages)
