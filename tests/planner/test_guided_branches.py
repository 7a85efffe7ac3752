"""Guided tuning for latency where the network has branches: side by side where that is quicker, and not elsewhere."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from shisha_rt.costs.costs import Costs, CostTeam
from shisha_rt.costs.costs_evaluator import CostsEvaluator
from shisha_rt.planner.exact import exact_plan
from shisha_rt.planner.goal import Goal
from shisha_rt.planner.guided import guided
from shisha_rt.planner.loop import run
from tests.planner.evaluators import costs_of

Needs = tuple[frozenset[int], ...]

FORK = ((), (0,), (1,), (0,), (3,), (2, 4))
"""From layer 0 to 1 and 2, and to 3 and 4, and from both to 5."""


def fork(
    layer_s: list[float], slower: float, teams: tuple[float, ...] = ()
) -> tuple[Costs, tuple[frozenset[int], ...]]:
    """On two places; `teams`: what both take together, as a share of what the first takes."""
    costs = costs_of([[time_s, time_s * slower] for time_s in layer_s], ranks=[1, 1 if slower == 1 else 2])
    together = tuple(CostTeam(("p0", "p1"), np.array([share * time_s for time_s in layer_s])) for share in teams)
    return replace(costs, teams=together), tuple(map(frozenset, FORK))


@pytest.mark.parametrize(
    ("slower", "teams", "latency_s"),
    [
        (1.0, (), 1 + 4 + 1),  # both branches of 4 side by side
        (1.0, (0.55,), 10 * 0.55),  # two cores at each layer are quicker
        (1.0, (0.8,), 1 + 4 + 1),
        (1.9, (), 1 + 2 + 2 + 2 + 1),  # the first half of a branch there
        (2.5, (), 1 + 5 + 2 + 1),  # the same, though here its end is waited for
        (4.0, (), 10.0),  # half a branch there takes longer than both here
    ],
)
def test_it_takes_what_is_quickest(slower: float, teams: tuple[float, ...], latency_s: float) -> None:
    costs, needs = fork([1.0, 2.0, 2.0, 2.0, 2.0, 1.0], slower, teams)
    tuner = guided(costs, goal=Goal(replicate=True, objective="latency"), needs=needs)
    result = run(tuner, CostsEvaluator(costs, needs), objective="latency")
    assert result.measurement.latency_s == pytest.approx(latency_s)


def test_a_network_without_branches_has_no_further_trial() -> None:
    costs = costs_of([[1.0, 1.0] for _ in range(5)], ranks=[1, 1])
    needs = tuple(frozenset({layer - 1} if layer else ()) for layer in range(5))
    result = run(guided(costs, goal=Goal(replicate=True, objective="latency"), needs=needs), CostsEvaluator(costs))
    assert not any("branches" in trial.reason for trial in result.trials)


def test_not_for_throughput_nor_for_plain_chains() -> None:
    costs, needs = fork([1.0, 2.0, 2.0, 2.0, 2.0, 1.0], 1.0)
    for tuner in (
        guided(costs, goal=Goal(replicate=True), needs=needs),
        guided(costs, goal=Goal(objective="latency"), needs=needs),
    ):
        assert all(trial.plan.is_chain for trial in run(tuner, CostsEvaluator(costs, needs)).trials)


def test_it_is_never_behind_what_it_finds_without_branches() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        costs, needs = fork([rng.uniform(1, 3) for _ in FORK], rng.choice((1.0, 1.5, 3.0)), (rng.uniform(0.5, 0.9),))
        solution = exact_plan(costs, Goal(replicate=True, objective="latency"))
        assert solution.lower_bound_s is not None
        tuner = guided(costs, goal=Goal(replicate=True, objective="latency"), needs=needs)
        measurement = run(tuner, CostsEvaluator(costs, needs), objective="latency").measurement
        assert measurement.latency_s <= solution.lower_bound_s * (1 + 1e-9)
        assert math.isfinite(measurement.bottleneck_s)
