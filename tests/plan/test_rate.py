"""How fast plans are, by closed form and by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from shisha_rt.plan.plan import Plan, Stage
from shisha_rt.plan.rate import latency_s, rate_of

A, B, C, D = ("a",), ("b",), ("c",), ("d",)


def test_a_chain_is_as_fast_as_its_slowest_stage() -> None:
    rate = rate_of(Plan.of([(0, 1, "a"), (2, 3, "b"), (4, 5, "c")]), [[2.0], [5.0], [5.0]])
    assert (rate.bottleneck_s, rate.slowest_stage, rate.latency_s) == (5.0, 1, 12.0)


def test_copies_divide_the_time_and_not_the_latency() -> None:
    rate = rate_of(Plan.chain([(0, 5, (A, B, C))]), [[6.0, 6.0, 6.0]])
    assert rate.bottleneck_s == pytest.approx(2.0)
    assert rate.latency_s == 6.0


def test_unlike_copies_add_up_their_speeds() -> None:
    rate = rate_of(Plan.chain([(0, 5, (A, B))]), [[1.0, 3.0]])
    assert rate.bottleneck_s == pytest.approx(0.75)
    assert rate.latency_s == 1.0


def test_a_copy_that_cannot_run_adds_nothing() -> None:
    assert rate_of(Plan.chain([(0, 5, (A, B))]), [[2.0, math.inf]]).bottleneck_s == 2.0
    assert rate_of(Plan.chain([(0, 5, (A, B))]), [[math.inf, math.inf]]).bottleneck_s == math.inf
    assert rate_of(Plan.chain([(0, 5, (A, B))]), [[0.0, 1.0]]).bottleneck_s == 0.0


def test_the_stages_of_a_pool_share_its_teams() -> None:
    plan = Plan.chain([(0, 1, (A, B)), (2, 3, (C,)), (4, 5, (B, A))])
    rate = rate_of(plan, [[2.0, 2.0], [3.0], [6.0, 6.0]])
    assert rate.period_s == (4.0, 3.0, 4.0)
    assert (rate.bottleneck_s, rate.slowest_stage) == (4.0, 2)  # of the pool, the stage that takes longest


def test_a_part_waits_for_a_team_that_can_run_it() -> None:
    """Both branches run on `a` alone, one after the other, though `b` of the same pool is idle."""
    plan = Plan(tuple(Stage(((layer, layer),), (A, B)) for layer in (0, 1)))
    assert latency_s(plan, [[1.0, math.inf], [5.0, math.inf]]) == 6.0


def test_a_rate_of_a_slower_machine() -> None:
    rate = replace(rate_of(Plan.of([(0, 1, "a"), (2, 3, "b")]), [[2.0], [5.0]]), link_s=1.0, energy_j=4.0)
    scaled = rate.scaled(3.0)
    assert (scaled.period_s, scaled.latency_s, scaled.link_s, scaled.energy_j) == ((6.0, 15.0), 21.0, 3.0, 12.0)
    assert scaled.slowest_stage == rate.slowest_stage


def test_a_link_may_be_slower_than_all_pools() -> None:
    rate = replace(rate_of(Plan.chain([(0, 5, (A, B))]), [[6.0, 6.0]]), link_s=5.0)
    assert (rate.bottleneck_s, rate.slowest_stage) == (5.0, 0)


def fork(*stages: tuple[tuple[str, ...], tuple[int, ...]]) -> Plan:
    return Plan(tuple(Stage(((i, i),), (team,), after) for i, (team, after) in enumerate(stages)))


def test_branches_run_side_by_side() -> None:
    plan = fork((A, ()), (B, (0,)), (C, (0,)), (A, (1, 2)))
    rate = rate_of(plan, [[1.0], [5.0], [3.0], [2.0]])
    assert rate.latency_s == 8.0
    assert rate.period_s == (3.0, 5.0, 3.0, 3.0)


def test_branches_of_one_team_run_one_after_the_other() -> None:
    plan = fork((A, ()), (B, (0,)), (B, (0,)), (A, (1, 2)))
    assert rate_of(plan, [[1.0], [5.0], [3.0], [2.0]]).latency_s == 11.0


def test_branches_of_a_pool_of_two_run_side_by_side() -> None:
    stages = [Stage(((i, i),), (A, B), after) for i, after in enumerate([(), (0,), (0,), (1, 2)])]
    assert rate_of(Plan(tuple(stages)), [[1.0, 1.0], [5.0, 5.0], [3.0, 3.0], [2.0, 2.0]]).latency_s == 8.0


@pytest.mark.parametrize(("copies", "seconds"), [(1, 202.0), (64, 6.0)])
def test_a_frame_with_very_many_branches(copies: int, seconds: float) -> None:
    """The daemon asks for it in its loop: 200 branches, in so many waves as there are copies, between fork and join."""
    pool = tuple((f"p{i}",) for i in range(copies))
    branches = (Stage(((i, i),), pool, (0,)) for i in range(1, 201))
    plan = Plan((Stage(((0, 0),), pool), *branches, Stage(((201, 201),), pool, tuple(range(1, 201)))))
    assert latency_s(plan, [[1.0] * copies] * 202) == seconds
