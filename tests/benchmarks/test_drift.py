"""Drift on paper: what is on when, what counts as near, and that a daemon notices and makes up for a slow place."""

from __future__ import annotations

import dataclasses
import math

import pytest

from benchmarks.paper.drift import (
    BEGINS_S,
    QUIET,
    Case,
    Disturbance,
    Drifting,
    Slowed,
    best_plan,
    run_of,
    within_s,
)
from shisha_rt.machine.machine import Machine, Memory, Place
from shisha_rt.plan.plan import Plan
from tests.planner.evaluators import costs_of

PLACES = tuple(Place(f"p{i}", (i,), 1, 1, 1.0, 1, "ram") for i in range(2))
COSTS = costs_of([[0.005, 0.005]] * 8, ranks=(1, 1))
EVEN = Plan.of([(0, 3, "p0"), (4, 7, "p1")])
CASE = Case("eight layers", Machine("m", "m", (Memory("ram"),), PLACES), COSTS, COSTS, EVEN)
THIRD = Disturbance("p0 at 1/3", 30.0, Slowed(("p0",), 3.0))
BETTER = Plan.of([(0, 1, "p0"), (2, 7, "p1")])


def test_it_is_on_for_as_long_as_it_says_and_by_turns() -> None:
    turns = dataclasses.replace(THIRD, on_s=5.0)
    on = [second for second in range(-5, 40) if turns.is_on(BEGINS_S + second)]
    assert on == [*range(5), *range(10, 15), *range(20, 25)]
    assert turns.changes_s == [BEGINS_S + second for second in range(0, 31, 5)]
    assert THIRD.changes_s == [BEGINS_S, BEGINS_S + 30]
    assert not QUIET.is_on(BEGINS_S)


def test_the_best_under_it() -> None:
    assert best_plan(COSTS).stages[0].layer_count == 4
    assert CASE.bottleneck_s(EVEN, THIRD.slowed) == pytest.approx(0.060)
    assert CASE.bottleneck_s(CASE.best_under(THIRD.slowed), THIRD.slowed) == pytest.approx(0.030)
    link = Slowed(("p0",), entry=1.5)  # of a period of 20 ms: two layers and 30 ms, or six
    assert CASE.bottleneck_s(CASE.best_under(link), link) == pytest.approx(0.035)


def test_near_is_the_first_plan_that_is_live_until_the_end() -> None:
    early, late, never = BEGINS_S + 7, BEGINS_S + 40, math.inf
    assert within_s(CASE, THIRD, [(1.0, EVEN), (early, BETTER), (early + 1, EVEN)]) == 7
    assert within_s(CASE, THIRD, [(1.0, BETTER)]) == 0
    for at_s in (late, never):
        assert within_s(CASE, THIRD, [(1.0, EVEN), (at_s, BETTER)]) is None


@pytest.mark.parametrize("way", ["shisha", "guided", "lls", "odin"])
def test_each_notices_and_answers_more_than_a_plan_that_stays(way: str) -> None:
    static = run_of(CASE, "static", THIRD, 0, THIRD.seconds)
    run = run_of(CASE, way, THIRD, 0, THIRD.seconds)
    assert (static.searches, static.within_s) == (0, None)
    assert run.searches >= 1
    assert run.within_s is not None
    assert run.answered > static.answered
    assert dataclasses.replace(run_of(CASE, way, THIRD, 0, THIRD.seconds), planned_s=run.planned_s) == run


def test_the_oracle_serves_by_the_best_plan_at_once_and_goes_back() -> None:
    daemon = Drifting(CASE, "oracle", THIRD, 0)
    daemon.start()
    daemon.run(BEGINS_S + 40)
    assert [round(at_s - BEGINS_S) for at_s, _ in daemon.live] == [-60, 0, 30]
    assert daemon.live[2][1] == EVEN
