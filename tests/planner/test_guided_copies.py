"""Guided tuning with copies, teams and for latency: on costs that hold, that do not, and where copies gain nothing."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from shisha_rt.costs.alike import kinds_of
from shisha_rt.costs.costs import Costs, CostTeam
from shisha_rt.costs.costs_evaluator import CostsEvaluator
from shisha_rt.outcome import Outcome
from shisha_rt.papers.simulate.simulated_evaluator import SimulatedEvaluator
from shisha_rt.plan.evaluator import Evaluator, Proposal
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import OBJECTIVES, Objective, rate_of, stage_seconds
from shisha_rt.planner.exact import exact_plan
from shisha_rt.planner.goal import Goal
from shisha_rt.planner.guided import guided
from shisha_rt.planner.loop import run
from tests.planner.evaluators import costs_of
from tests.wording import says


def drawn(rng: random.Random) -> Costs:
    """Six to twelve layers on one or two kinds of two to four places, some of which can be teams of two."""
    layer_s = [rng.uniform(1, 3) for _ in range(rng.randint(6, 12))]
    slower = [by for by in rng.choice([(1,), (1, 2.5)]) for _ in range(rng.randint(2, 4))]
    costs = costs_of([[time_s * by for by in slower] for time_s in layer_s], ranks=[round(by) for by in slower])
    team = CostTeam(("p0", "p1"), np.array([rng.uniform(0.5, 0.8) * time_s for time_s in layer_s]))
    transfer_s = np.array([rng.choice([0.0, 0.3]) for _ in layer_s[1:]])
    return replace(costs, teams=(team,) if rng.random() < 0.7 else (), transfer_s=transfer_s)


def with_error_of_kinds(costs: Costs, sigma: float, rng: random.Random) -> Costs:
    """Each layer takes another time than told, but the same on all places of a kind, and on all their teams."""
    time_s = costs.time_s.copy()
    for kind in kinds_of(costs):
        time_s[:, list(kind)] *= np.array([[math.exp(sigma * rng.gauss())] for _ in costs.layers])
    teams = [replace(team, time_s=team.time_s * math.exp(sigma * rng.gauss())) for team in costs.teams]
    return replace(costs, time_s=time_s, teams=tuple(teams))


class Pooled:
    """As the live evaluator, it measures what the teams of a stage take together."""

    def __init__(self, truth: Evaluator) -> None:
        self._truth = truth

    def measure(self, proposal: Proposal) -> Measurement:
        return replace(self._truth.measure(proposal), team_s=())


class CopiesThatGainNothing:
    """What waits for a memory: with twice the copies, each takes twice as long."""

    def __init__(self, truth: Costs) -> None:
        self._truth = CostsEvaluator(truth)

    def measure(self, proposal: Proposal) -> Measurement:
        alone = self._truth.measure(proposal)
        if alone.rate is None:
            return alone
        team_s = tuple(tuple(time_s * len(times_s) for time_s in times_s) for times_s in alone.team_s)
        service_s = tuple(map(stage_seconds, team_s))
        return replace(alone, team_s=team_s, service_s=service_s, rate=rate_of(proposal.plan, team_s))


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("seed", range(6))
def test_costs_that_hold_are_believed(seed: int, objective: Objective) -> None:
    costs = drawn(random.Random(seed))
    best = exact_plan(costs, Goal(replicate=True, objective=objective))
    result = run(
        guided(costs, goal=Goal(replicate=True, objective=objective)), CostsEvaluator(costs), objective=objective
    )
    assert result.trials[0].plan == best.plan
    assert result.measurement.value(objective) == best.lower_bound_s


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_costs_that_do_not_hold_are_corrected(objective: Objective) -> None:
    """Most searches end within 5% of the optimum by the true costs, which not so many first plans are."""
    first, last = [], []
    for seed in range(16):
        rng = random.Random(seed)
        costs = drawn(rng)
        truth = with_error_of_kinds(costs, 0.4, rng)
        best_s = exact_plan(truth, Goal(replicate=True, objective=objective)).lower_bound_s
        assert best_s is not None
        evaluator = Pooled(SimulatedEvaluator(truth, noise=0.01, rng=rng))
        result = run(guided(costs, goal=Goal(replicate=True, objective=objective)), evaluator, objective=objective)
        kept = CostsEvaluator(truth).measurement_of(result.solution).value(objective)
        started = CostsEvaluator(truth).measurement_of(result.trials[0].plan).value(objective)
        first.append(started <= 1.05 * best_s)
        last.append(kept <= 1.05 * best_s)
    assert sum(last) >= 14
    assert sum(last) > sum(first)


@pytest.mark.parametrize("decades", [(-30, 15), (-9, 1)])
def test_costs_that_spread_over_many_decades(decades: tuple[float, float]) -> None:
    """Layers that take nothing too: no step divides by what is lost beside the rest."""
    for seed in range(12):
        rng = random.Random(seed)
        layer_s = [rng.choice([0.0, *[10 ** rng.uniform(*decades) for _ in range(7)]]) for _ in range(6)]
        costs = costs_of([[time_s, time_s, 3 * time_s] for time_s in layer_s], ranks=(1, 1, 2))
        costs = replace(costs, transfer_s=np.array([10 ** rng.uniform(*decades) for _ in range(5)]))
        for replicate, objective in product((False, True), OBJECTIVES):
            best = exact_plan(costs, Goal(replicate=replicate, objective=objective))
            tuner = guided(costs, goal=Goal(replicate=replicate, objective=objective))
            result = run(tuner, CostsEvaluator(costs), objective=objective)
            assert best.outcome is Outcome.OPTIMAL
            assert result.measurement.value(objective) == best.lower_bound_s


def test_copies_that_gain_nothing_are_given_up() -> None:
    costs = costs_of([[1] * 4] * 12, ranks=(1,) * 4)
    costs = replace(costs, transfer_s=np.full(11, 0.25))  # else the even chain is as good as copies to begin with
    result = run(guided(costs, goal=Goal(replicate=True)), CopiesThatGainNothing(costs))
    assert len(result.trials[0].plan.stages) == 1
    assert result.trials[0].measurement.bottleneck_s == 12
    assert result.measurement.bottleneck_s == exact_plan(costs).lower_bound_s == 3.25
    assert result.solution.is_plain


def test_a_team_that_is_slower_than_told_is_given_up() -> None:
    costs = replace(costs_of([[2, 2]] * 4, ranks=(1, 1)), teams=(CostTeam(("p0", "p1"), np.full(4, 0.5)),))
    truth = replace(costs, teams=(CostTeam(("p0", "p1"), np.full(4, 3.0)),))
    for objective, best_s in zip(OBJECTIVES, (4, 8), strict=True):
        result = run(
            guided(costs, goal=Goal(replicate=True, objective=objective)), CostsEvaluator(truth), objective=objective
        )
        assert str(result.trials[0].plan) == "p0+p1: 0-3"
        assert result.measurement.value(objective) == best_s


def test_a_slow_place_among_many_is_told_apart() -> None:
    """Without the evidence, all of a kind share a belief: beliefs of 40 places each would be too many to plan with."""
    costs = costs_of([[1] * 40] * 40, ranks=(1,) * 40)
    time_s = costs.time_s.copy()
    time_s[:, 7] = 3
    truth = replace(costs, time_s=time_s)
    result = run(guided(costs), CostsEvaluator(truth))
    assert result.trials[0].measurement.bottleneck_s == 3
    assert result.measurement.bottleneck_s == exact_plan(truth).lower_bound_s == 2


@pytest.mark.parametrize(("replicate", "objective"), [(False, "throughput"), (True, "throughput"), (True, "latency")])
def test_places_of_too_many_kinds_are_the_reason_given(replicate: bool, objective: Objective) -> None:
    """A step looks at a few of them only. From a plan that is beaten by what it finds there, it goes on to that."""
    costs = costs_of([[1 + i / 100 for i in range(30)]] * 12, ranks=[1] * 30)
    start = Plan.of([(0, 5, "p29"), (6, 11, "p28")])
    result = run(
        guided(costs, start, Goal(replicate=replicate, objective=objective)), CostsEvaluator(costs), objective=objective
    )
    assert len(result.trials) >= 2
    assert result.measurement.value(objective) < result.trials[0].measurement.value(objective)
    reason = f"best of {len(result.trials)} plans; places of 30 kinds are too …"
    assert result.reason == says(reason)


def test_sixty_four_places_of_eight_kinds() -> None:
    """All of them are in use, though a step cannot look at all ways to use them."""
    costs = costs_of([[1 + i // 8 / 10 for i in range(64)]] * 40, ranks=[1] * 64)
    start = Plan.of([(0, 39, "p63")])
    result = run(guided(costs, start, Goal(replicate=True)), CostsEvaluator(costs))
    rate = sum(1 / (1 + i // 8 / 10) for i in range(64)) / 40
    assert result.measurement.bottleneck_s < 1.2 / rate
    assert len(result.solution.places) > 56


@pytest.mark.parametrize("replicate", [False, True])
def test_from_a_plan_that_is_no_chain_of_its_own_making(replicate: bool) -> None:
    costs = costs_of([[1, 1, 3]] * 9, ranks=(1, 1, 2))
    pool = Plan.chain([(0, 2, [("p0",), ("p1",)]), (3, 5, [("p2",)]), (6, 8, [("p0",), ("p1",)])])
    result = run(guided(costs, pool, Goal(replicate=replicate)), CostsEvaluator(costs))
    assert result.trials[0].measurement.bottleneck_s == 9
    assert result.measurement.bottleneck_s == pytest.approx(exact_plan(costs, Goal(replicate=replicate)).lower_bound_s)
