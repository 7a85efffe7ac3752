"""Guided tuning where another order of layers than the file's is better: tried at the end, if it promises more."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from shisha_rt.costs.costs import Costs
from shisha_rt.costs.costs_evaluator import CostsEvaluator
from shisha_rt.plan.evaluator import Proposal
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan
from shisha_rt.planner.exact import exact_plan
from shisha_rt.planner.goal import Goal
from shisha_rt.planner.guided import guided
from shisha_rt.planner.loop import Result, run
from shisha_rt.planner.tuners import SearchTask, tuner_of
from tests.planner.evaluators import costs_of
from tests.wording import says

Needs = tuple[frozenset[int], ...]
FORK: Needs = tuple(map(frozenset, ((), (0,), (1,), (0,), (2, 3))))
"""From 0 to 1 and 2, and to 3, and from both to 4."""


def fork(memory_bytes: int | None = None) -> Costs:
    """On two places 5 s in the file's order, 4 s in another. There are 10 bytes of weights."""
    costs = costs_of([[time_s] * 2 for time_s in (1, 1, 1, 3, 2)], ranks=[1, 1])
    return replace(
        costs,
        layers=tuple(
            replace(layer, weight_bytes=size) for layer, size in zip(costs.layers, (2, 1, 2, 3, 2), strict=True)
        ),
        places=tuple(replace(place, memory_bytes=memory_bytes) for place in costs.places),
    )


def tuned(costs: Costs, truth: Costs | None = None, needs: Needs = FORK, *, replicate: bool = True) -> Result:
    tuner = guided(costs, goal=Goal(replicate=replicate), needs=needs)
    return run(tuner, CostsEvaluator(truth or costs, needs))


def test_another_order_is_tried_where_copies_have_no_room() -> None:
    result = tuned(fork(memory_bytes=5))
    assert [str(trial.plan) for trial in result.trials] == ["p0: 0-2 | p1: 3-4", "p0: 0-0,3-3 | p1: 1-2,4-4"]
    assert result.trials[-1].reason == says("predicted 4000 ms, with … the file's")
    assert (result.measurement.bottleneck_s, result.lower_bound_s) == (4, None)


def test_a_search_by_name_is_given_what_layers_read() -> None:
    costs = fork(memory_bytes=5)
    task = SearchTask(Plan.of([(0, 2, "p0"), (3, 4, "p1")]), costs.places, Goal(replicate=True), costs, FORK)
    assert run(tuner_of("guided", task), CostsEvaluator(costs, FORK)).measurement.bottleneck_s == 4


def test_not_where_copies_do_as_well() -> None:
    result = tuned(fork())
    assert [str(trial.plan) for trial in result.trials] == ["p0, p1: 0-4"]


class CopiesThatSlowEachOther:
    """What each of several copies takes is three times as long as told."""

    def __init__(self, costs: Costs) -> None:
        self._costs = CostsEvaluator(costs, FORK)

    def measure(self, proposal: Proposal) -> Measurement:
        measurement = self._costs.measure(proposal)
        if measurement.rate is None or all(len(stage.teams) == 1 for stage in proposal.plan.stages):
            return measurement
        slower = tuple(3 * time_s for time_s in measurement.service_s)
        rate = replace(measurement.rate, period_s=tuple(3 * time_s for time_s in measurement.rate.period_s))
        return replace(measurement, service_s=slower, rate=rate, team_s=())


def test_where_copies_disappoint_it_is_tried_without_them() -> None:
    result = run(guided(fork(), goal=Goal(replicate=True), needs=FORK), CopiesThatSlowEachOther(fork()))
    assert str(result.solution) == "p0: 0-0,3-3 | p1: 1-2,4-4"


def test_it_stays_only_if_it_is_better() -> None:
    """What it is told of the second place is wrong."""
    costs = fork(memory_bytes=5)
    truth = replace(costs, time_s=costs.time_s * np.array([[1.0, 1], [1, 2.5], [1, 2.5], [1, 1], [1, 1]]))
    result = tuned(costs, truth)
    assert result.measurement.bottleneck_s == min(trial.measurement.bottleneck_s for trial in result.trials)


@pytest.mark.parametrize("needs", [(), tuple(frozenset({layer - 1} - {-1}) for layer in range(5))])
def test_not_without_branches_nor_where_nobody_knows_of_any(needs: Needs) -> None:
    result = tuned(fork(memory_bytes=5), needs=needs)
    assert [str(trial.plan) for trial in result.trials] == ["p0: 0-2 | p1: 3-4"]
    assert result.lower_bound_s == 5


def test_not_where_plans_are_to_be_plain_chains_or_cuts_cost_something() -> None:
    assert all(trial.plan.is_chain for trial in tuned(fork(memory_bytes=5), replicate=False).trials)
    dear = replace(fork(memory_bytes=5), transfer_s=np.array([0, 0, 0.1, 0]))
    assert all(trial.plan.is_chain for trial in tuned(dear).trials)


def test_it_is_never_behind_what_it_finds_over_the_files_order() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        costs = costs_of([[rng.uniform(1, 3) * by for by in (1, 1, 2)] for _ in range(5)], ranks=[1, 1, 2])
        costs = replace(
            costs,
            layers=tuple(replace(layer, weight_bytes=rng.randint(1, 3)) for layer in costs.layers),
            places=tuple(replace(place, memory_bytes=7) for place in costs.places),
        )
        solution = exact_plan(costs, Goal(replicate=True))
        if solution.plan is None:
            continue
        in_order_s = CostsEvaluator(costs).measurement_of(solution.plan).bottleneck_s
        assert tuned(costs).measurement.bottleneck_s <= in_order_s * (1 + 1e-9)
