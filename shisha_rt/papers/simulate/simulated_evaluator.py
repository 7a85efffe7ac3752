"""The simulated `Evaluator`: times of plans follow from costs, trials take virtual time, and noise is drawn at random.

It repeats exactly and never waits. There is no contention beyond what is in the costs: a stage's time never depends on
other stages.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Final

import numpy as np

from shisha_rt.costs.costs import Costs
from shisha_rt.costs.costs_evaluator import CostsEvaluator
from shisha_rt.costs.team_costs import team_costs
from shisha_rt.plan.evaluator import Proposal
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.rate import stage_seconds

FRAMES: Final = 32
"""How many frames are measured in a trial by default."""

_Z_95: Final = 1.96


class SimulatedEvaluator:
    """An `Evaluator` over `costs`: of a roofline, a costs file or the profile store.

    A trial takes `frames` times the bottleneck, plus one frame's latency to fill the pipeline; 0 if it cannot run. Each
    measured stage time is the true one times exp(noise x z), z normal, drawn from `rng`; the band is the
    difference that two such measurements do not exceed in 95 of 100 cases. Raises ValueError for noise without `rng`.
    """

    def __init__(
        self, costs: Costs, *, frames: int = FRAMES, noise: float = 0.0, rng: random.Random | None = None
    ) -> None:
        if noise and rng is None:
            raise ValueError(f"noise = {noise}: expected a random generator to draw it from")
        self._truth = CostsEvaluator(costs)
        self._teams = team_costs(costs)
        self._frames = frames
        self._noise = noise
        self._rng = rng

    def measure(self, proposal: Proposal) -> Measurement:
        """Measure a plan. Raises ValueError for a plan that breaks the rules of `verify.py`."""
        true = self._truth.measurement_of(proposal.plan)
        took_s = self._frames * true.bottleneck_s + true.latency_s if true.can_run else 0.0
        band = _Z_95 * math.sqrt(2) * self._noise
        if true.rate is None:
            return Measurement(tuple(map(self._noisy_s, true.service_s)), band, self._frames, took_s)
        team_s = tuple(tuple(map(self._noisy_s, times_s)) for times_s in true.team_s)
        service_s = tuple(map(stage_seconds, team_s))
        return Measurement(
            service_s, band, self._frames, took_s, self._teams.rate(proposal.plan, team_s), team_s=team_s
        )

    def _noisy_s(self, true_s: float) -> float:
        return true_s * math.exp(self._noise * self._rng.gauss()) if self._rng is not None else true_s


def with_error(costs: Costs, sigma: float, rng: random.Random) -> Costs:
    """True costs for a planner that knows `costs`: each layer's time on each place times exp(sigma x z), z normal.

    The median of the factors is 1. Transfers stay the same, and so does what cannot run.
    """
    factors = np.array([[math.exp(sigma * rng.gauss()) for _ in costs.places] for _ in costs.layers])
    return replace(costs, time_s=costs.time_s * factors)
