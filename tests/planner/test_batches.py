"""Stages whose runs have several frames: `exact` against every choice there is, and what is learnt of such runs."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from shisha_rt.costs.alike import kinds_of
from shisha_rt.costs.costs import CostBatch, CostLayer, CostPlace, Costs, CostTeam
from shisha_rt.costs.costs_evaluator import CostsEvaluator
from shisha_rt.costs.team_costs import team_costs
from shisha_rt.outcome import Outcome
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import OBJECTIVES, Objective
from shisha_rt.planner.exact import exact_plan
from shisha_rt.planner.goal import Goal
from shisha_rt.planner.guided import guided
from shisha_rt.planner.learning import learnt
from shisha_rt.planner.loop import run
from tests.drawn import chunks
from tests.planner.evaluators import costs_of
from tests.planner.every_chain import ROUNDING, every_chain, random_costs

INSTANCES = 600


def with_batches(costs: Costs, **frames_s: list[list[float | None]]) -> Costs:
    """`x4=[[…], …]`: (layers, places) seconds of each of four frames that share a run."""
    batches = (CostBatch(int(name[1:]), np.array(rows, np.float64)) for name, rows in frames_s.items())
    return replace(costs, batches=tuple(batches))


def stop_after(asked: int) -> Callable[[], bool]:
    asks = count()
    return lambda: next(asks) >= asked


def drawn(rng: random.Random) -> Costs:
    """Layers that gain by sharing a run, lose, or cannot."""
    costs = random_costs(rng, rng.randint(1, 5), rng.randint(1, 4), rng.choice([None, 1.0]))
    kinds = {bytes(column.tobytes()): rng.random() for column in costs.time_s.T.copy()}
    batches = []
    for frames in rng.sample([2, 4, 8], rng.randint(1, 2)):
        gains = [rng.choice([math.nan, 0.3, 0.7, 1.0, 1.4]) for _ in costs.layers]
        of_kind = np.array([0.9 + kinds[bytes(column.tobytes())] / 5 for column in costs.time_s.T.copy()])
        batches.append(CostBatch(frames, costs.time_s * np.array(gains)[:, None] * of_kind))
    return replace(costs, batches=tuple(sorted(batches, key=lambda batch: batch.frames)))


@pytest.mark.parametrize("seeds", chunks(INSTANCES, 30, short=30))
def test_it_finds_the_optimum(seeds: range) -> None:
    shared = 0
    for seed in seeds:
        rng = random.Random(seed)
        costs, replicate = drawn(rng), rng.random() < 0.7
        most = rng.choice([None, rng.randint(1, 3)])
        solution = exact_plan(costs, Goal(replicate=replicate, most_stages=most))
        if replicate:
            optimum = min((period_s for period_s, _ in every_chain(costs, most or len(costs.places))), default=None)
            assert (solution.plan is None) == (optimum is None), seed
        if solution.plan is None:
            continue
        measurement = CostsEvaluator(costs).measurement_of(solution.plan)
        assert measurement.can_run, seed
        shared += any(stage.batch > 1 for stage in solution.plan.stages)
        if replicate and optimum is not None and len(kinds_of(costs)) > 2 and measurement.bottleneck_s < optimum:
            # Places left of another kind serve, too: no chain of the enumeration has that.
            assert (solution.lower_bound_s or 0) <= measurement.bottleneck_s, seed
            continue
        assert solution.outcome is Outcome.OPTIMAL, seed
        assert solution.lower_bound_s == pytest.approx(measurement.bottleneck_s, rel=ROUNDING), seed
        if replicate:
            assert measurement.bottleneck_s == pytest.approx(optimum, rel=ROUNDING), seed
        else:
            assert solution.plan.is_plain
            alone = exact_plan(replace(costs, batches=()), Goal(most_stages=most)).plan
            alone_s = math.inf if alone is None else CostsEvaluator(costs).measurement_of(alone).bottleneck_s
            assert measurement.bottleneck_s <= alone_s * (1 + ROUNDING), seed
    assert shared > 2


def test_a_bound_of_chains_of_one_kind_a_stage_proves_nothing_of_unlike_copies() -> None:
    # Only p0 has batches: 3.8 s is the best with them and a kind for each stage, three copies without take 2.2 s.
    costs = costs_of([[2, 4, 6]] * 2, ranks=(1, 2, 3))
    costs = replace(costs, batches=(CostBatch(2, np.array([[1.9, math.nan, math.nan]] * 2)),))
    solution = exact_plan(costs, Goal(replicate=True))
    assert (str(solution.plan), solution.outcome) == ("p0, p1, p2: 0-1", Outcome.FEASIBLE)


def test_for_low_latency_batches_count_for_nothing() -> None:
    """Not for the bottleneck of plans of the least latency either: frames come one at a time."""
    for seed in range(40):
        rng = random.Random(seed)
        costs, goal = drawn(rng), Goal(replicate=rng.random() < 0.7, objective="latency")
        solution, alone = exact_plan(costs, goal), exact_plan(replace(costs, batches=()), goal)
        assert (str(solution.plan), solution.lower_bound_s) == (str(alone.plan), alone.lower_bound_s), seed


@pytest.mark.parametrize("replicate", [False, True])
def test_what_is_known_when_it_is_stopped_is_true_of_plans_with_batches_too(replicate: bool) -> None:
    """The search without batches may end before that with them has begun."""
    outcomes = set()
    for seed in range(20):
        costs = drawn(random.Random(seed))
        optimum = exact_plan(costs, Goal(replicate=replicate))
        for asked in range(100):
            solution = exact_plan(costs, Goal(replicate=replicate, should_stop=stop_after(asked)))
            outcomes.add(solution.outcome)
            if solution == optimum:
                break
            if optimum.plan is None:
                assert solution.outcome is Outcome.LIMIT, (seed, asked)
                continue
            optimum_s = CostsEvaluator(costs).measurement_of(optimum.plan).bottleneck_s
            assert solution.lower_bound_s is not None
            assert solution.lower_bound_s <= optimum_s * (1 + ROUNDING), (seed, asked)
            if solution.plan is not None:
                bottleneck_s = CostsEvaluator(costs).measurement_of(solution.plan).bottleneck_s
                assert (solution.outcome is Outcome.OPTIMAL) == (bottleneck_s == solution.lower_bound_s), (seed, asked)
                assert solution.outcome is Outcome.OPTIMAL or not solution.latency_proven, (seed, asked)
    assert outcomes == set(Outcome)


def test_each_stage_has_runs_of_its_own() -> None:
    # The first layer loses by sharing a run, the second gains.
    costs = with_batches(costs_of([[4, 4], [8, 8]], ranks=(1, 1)), x2=[[5, 5], [6, 6]], x8=[[6, 6], [4, 4]])
    solution = exact_plan(costs, Goal())
    assert (str(solution.plan), solution.lower_bound_s) == ("p0: 0-0 | p1: 1-1 x8", 4)
    assert str(exact_plan(costs, Goal(run_s=20)).plan) == "p0: 0-0 | p1: 1-1 x2"  # eight of them take 32 s


def test_a_team_beside_a_place_that_shares_runs_has_its_frames_alone() -> None:
    costs = with_batches(costs_of([[13, 13, 6]], ranks=(1, 1, 2)), x2=[[13, 13, 3]])
    costs = replace(costs, teams=(CostTeam(("p0", "p1"), np.array([6.0])),))
    solution = exact_plan(costs, Goal(replicate=True))
    assert (str(solution.plan), solution.lower_bound_s) == ("p2, p0+p1: 0-0 x2", 2)
    assert solution.plan is not None
    assert CostsEvaluator(costs).measurement_of(solution.plan).bottleneck_s == 2


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_places_that_share_runs_unlike_are_no_team_without_runs_either(objective: Objective) -> None:
    costs = with_batches(costs_of([[9, 9, 9]], ranks=(1, 1, 1)), x2=[[9, 8, 8]])
    costs = replace(costs, teams=(CostTeam(("p1", "p2"), np.array([1.0])),))
    solution = exact_plan(costs, Goal(replicate=True, objective=objective, most_stages=1))
    assert solution.plan is not None
    assert ("p1", "p2") in solution.plan.stages[0].teams
    assert CostsEvaluator(costs).measurement_of(solution.plan).can_run


def test_frames_are_alone_where_that_is_as_good_and_for_low_latency() -> None:
    costs = with_batches(costs_of([[4, 4], [8, 8]], ranks=(1, 1)), x4=[[4, 4], [8, 8]])
    assert str(exact_plan(costs).plan) == str(exact_plan(replace(costs, batches=())).plan)
    assert exact_plan(costs).latency_proven
    quicker = with_batches(costs, x4=[[1, 1], [1, 1]])
    latency = exact_plan(quicker, Goal(objective="latency"))
    assert (str(latency.plan), latency.lower_bound_s) == ("p0: 0-0 | p1: 1-1", 12)


def test_what_is_live_counts_for_each_frame_of_a_run() -> None:
    costs = with_batches(costs_of([[8], [8]], ranks=(1,)), x2=[[4], [4]], x4=[[2], [2]])
    roomy = replace(
        costs,
        layers=tuple(CostLayer(layer.name, 1.0, 10, 5) for layer in costs.layers),
        places=(CostPlace("p0", 1, 20 + 3 * 5),),
    )
    solution = exact_plan(roomy)
    assert (str(solution.plan), solution.lower_bound_s) == ("p0: 0-1 x2", 8)


def test_a_frame_by_itself_takes_its_own_time() -> None:
    costs = with_batches(costs_of([[8, 8]], ranks=(1, 1)), x4=[[3, 3]])
    rate = team_costs(costs).rate(exact_plan(costs, Goal(replicate=True)).plan or Plan(()))
    assert (rate.bottleneck_s, rate.latency_s) == (1.5, 8)


def test_what_a_run_takes_tells_of_such_runs_alone() -> None:
    costs = with_batches(costs_of([[8, 8]], ranks=(1, 1)), x2=[[6, 6]], x4=[[4, 4]])
    slower = with_batches(costs, x2=[[6, 6]], x4=[[9, 9]])
    plan = Plan((replace(Plan.of([(0, 0, "p0")]).stages[0], batch=4),))
    believed = learnt(costs, [(plan, CostsEvaluator(slower).measurement_of(plan))], lambda _: True, copies=True).costs
    np.testing.assert_allclose(believed.time_s, costs.time_s)
    np.testing.assert_allclose(believed.batches[1].time_s, 9)
    np.testing.assert_allclose(believed.batches[0].time_s, 6)


def test_where_frames_by_themselves_take_longer_so_do_those_that_share_a_run() -> None:
    costs = with_batches(costs_of([[8, 8]], ranks=(1, 1)), x4=[[4, 4]])
    np.testing.assert_allclose(costs.with_times(costs.time_s * 1.5).batches[0].time_s, 6)


def test_guided_finds_what_pays_where_it_was_told_wrongly() -> None:
    """It was told that eight frames in a run of the second layer take half as long; they take longer."""
    costs = with_batches(costs_of([[4, 4], [8, 8]], ranks=(1, 1)), x2=[[5, 5], [6, 6]], x8=[[6, 6], [4, 4]])
    really = with_batches(costs, x2=[[5, 5], [6, 6]], x8=[[6, 6], [9, 9]])
    result = run(guided(costs, goal=Goal()), CostsEvaluator(really))
    assert str(result.trials[0].plan) == "p0: 0-0 | p1: 1-1 x8"
    assert (str(result.solution), result.measurement.bottleneck_s) == ("p0: 0-0 | p1: 1-1 x2", 6)
