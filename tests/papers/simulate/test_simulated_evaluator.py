"""Virtual time, drawn noise, and costs that are not what was told."""

from __future__ import annotations

import math
import random
import statistics

import numpy as np
import pytest

from shisha_rt.papers.simulate.simulated_evaluator import SimulatedEvaluator, with_error
from shisha_rt.plan.evaluator import Evaluator, Proposal
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan
from tests.planner.evaluators import costs_of

COSTS = costs_of([[1, 3], [2, 6], [3, None]], ranks=(1, 2))
PROPOSAL = Proposal(Plan.of([(0, 0, "p1"), (1, 2, "p0")]), "why not")


def test_a_trial_takes_its_frames_and_the_filling() -> None:
    evaluator: Evaluator = SimulatedEvaluator(COSTS, frames=10)
    assert evaluator.measure(PROPOSAL) == Measurement((3.0, 5.0), band=0.0, frames=10, took_s=10 * 5 + 8)


def test_a_plan_that_cannot_run_takes_no_time() -> None:
    proposal = Proposal(Plan.of([(0, 1, "p0"), (2, 2, "p1")]), "why not")
    measurement = SimulatedEvaluator(COSTS, noise=0.1, rng=random.Random(0)).measure(proposal)
    assert (measurement.can_run, measurement.took_s) == (False, 0.0)


def test_a_plan_that_no_planner_should_have_made() -> None:
    with pytest.raises(ValueError, match="p0: 0-1: layer 2 is in no"):
        SimulatedEvaluator(COSTS).measure(Proposal(Plan.of([(0, 1, "p0")]), "why not"))


def test_noise_is_as_large_as_asked_for_and_the_band_knows_it() -> None:
    evaluator = SimulatedEvaluator(COSTS, noise=0.02, rng=random.Random(5))
    trials = [evaluator.measure(PROPOSAL) for _ in range(2000)]
    logs = [math.log(trial.service_s[1] / 5.0) for trial in trials]
    assert statistics.fmean(logs) == pytest.approx(0, abs=0.002)
    assert statistics.stdev(logs) == pytest.approx(0.02, rel=0.1)
    agree = sum(trial.agrees_with(other) for trial, other in zip(trials[::2], trials[1::2], strict=True))
    assert agree / 1000 == pytest.approx(0.95, abs=0.03)
    assert {trial.took_s for trial in trials} == {trials[0].took_s}  # the frames run at the true times


def test_noise_repeats_with_its_generator() -> None:
    first, other = (SimulatedEvaluator(COSTS, noise=0.1, rng=random.Random(9)) for _ in range(2))
    assert [first.measure(PROPOSAL) for _ in range(3)] == [other.measure(PROPOSAL) for _ in range(3)]


def test_without_noise_no_draw_changes_a_time() -> None:
    assert SimulatedEvaluator(COSTS, rng=random.Random(1)).measure(PROPOSAL).service_s == (3.0, 5.0)


def test_noise_needs_a_generator() -> None:
    with pytest.raises(ValueError, match=r"noise = 0\.1:"):
        SimulatedEvaluator(COSTS, noise=0.1)


def test_true_costs_differ_for_each_layer_and_place() -> None:
    costs = costs_of([[1.0, 3.0, None]] * 400, ranks=(1, 2, 2))
    true = with_error(costs, 0.3, random.Random(2))
    logs = np.log(true.time_s[:, :2] / costs.time_s[:, :2])
    assert np.isnan(true.time_s[:, 2]).all()
    assert logs.std() == pytest.approx(0.3, rel=0.1)
    assert np.median(logs) == pytest.approx(0, abs=0.03)
    assert abs(np.corrcoef(logs[:, 0], logs[:, 1])[0, 1]) < 0.15
    assert (true.layers, true.places) == (costs.layers, costs.places)
