"""The loop between a tuner and an evaluator: who is asked what, and what comes back."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import pytest

from shisha_rt.costs.costs_evaluator import CostsEvaluator
from shisha_rt.plan.evaluator import Proposal
from shisha_rt.plan.measure import StageFrames, measure_window
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan
from shisha_rt.planner.loop import Trial, run
from shisha_rt.planner.seed import seed
from shisha_rt.planner.tune import shisha
from tests.planner.evaluators import ScriptedEvaluator, costs_of

A, B, C, D = (Plan.of([(0, n, "p"), (n + 1, 4, "q")]) for n in range(4))


@dataclass(frozen=True)
class Listed:
    """A tuner that has its proposals written down; its state is what it has been told."""

    proposals: tuple[Proposal, ...]

    def init(self) -> tuple[tuple[Measurement, ...], Proposal]:
        return (), self.proposals[0]

    def step(
        self, state: tuple[Measurement, ...], observation: Measurement
    ) -> tuple[tuple[Measurement, ...], Proposal]:
        measurements = (*state, observation)
        return measurements, self.proposals[len(measurements)]


LISTED = Listed(
    (Proposal(A, "1st"), Proposal(B, "2nd"), Proposal(C, "3rd"), Proposal(D, "4th"), Proposal(B, "end", True, 0.5))
)
SCRIPT = {str(A): (2.0, 4.0), str(B): (3.0, 1.0), str(C): (5.0, 5.0), str(D): (4.0, 3.0)}


def test_all_that_a_search_leaves_behind() -> None:
    evaluator = ScriptedEvaluator(SCRIPT)
    seen: list[Trial] = []
    result = run(LISTED, evaluator, seen.append)
    assert evaluator.asked == list(SCRIPT)  # the final proposal is not measured again
    assert result.trials == tuple(seen)
    assert [(t.number, t.reason) for t in seen] == [(0, "1st"), (1, "2nd"), (2, "3rd"), (3, "4th")]
    assert [t.is_best for t in seen] == [True, True, False, False]  # D is better than C, but not than B
    assert (result.solution, result.outcome, result.reason, result.lower_bound_s) == (B, "feasible", "end", 0.5)
    assert result.measurement == seen[1].measurement
    assert (result.trial_time_s, result.trials_to_best, result.time_to_best_s) == (4.0, 2, 2.0)


def test_a_trial_is_told_before_the_next_is_run() -> None:
    evaluator = ScriptedEvaluator(SCRIPT)
    asked_by_then: list[int] = []
    run(LISTED, evaluator, lambda trial: asked_by_then.append(len(evaluator.asked) - trial.number))
    assert asked_by_then == [1, 1, 1, 1]


def test_an_evaluator_breaks_the_search_off_by_raising() -> None:
    class Closed:
        def measure(self, proposal: Proposal) -> Measurement:
            raise InterruptedError(str(proposal.plan))

    with pytest.raises(InterruptedError, match="p: 0-0"):
        run(LISTED, Closed())


class Noisy:
    """True times of a file of costs, seen through windows of frames that an exponential tail makes late."""

    def __init__(self, truth: CostsEvaluator, frames: int, rng: random.Random) -> None:
        self._truth = truth
        self._frames = frames
        self._rng = rng

    def measure(self, proposal: Proposal) -> Measurement:
        true = self._truth.measure(proposal)
        windows = [
            StageFrames([0] * self._frames, [t * (1 + 0.05 * self._rng.expovariate(1)) for _ in range(self._frames)])
            for t in true.service_s
        ]
        return measure_window(proposal.plan, windows, took_s=0.0, frames_per_s=math.inf)


def test_tuning_through_noise_keeps_no_plan_that_is_worse_than_the_seed() -> None:
    rng = random.Random(5)
    worse = gained = 0
    for _ in range(100):
        weights = [rng.randint(1, 20) for _ in range(20)]
        costs = costs_of(
            [[w * rng.uniform(0.7, 1.4) * (1, 1, 3, 3)[p] for p in range(4)] for w in weights], (1, 1, 2, 2)
        )
        truth = CostsEvaluator(costs)
        start = seed(weights, costs.places)
        result = run(shisha(start, costs.places), Noisy(truth, 32, rng))
        ratio = truth.measurement_of(result.solution).bottleneck_s / truth.measurement_of(start).bottleneck_s
        worse += ratio > 1
        gained += ratio < 0.97
    assert worse == 0
    assert gained > 60
