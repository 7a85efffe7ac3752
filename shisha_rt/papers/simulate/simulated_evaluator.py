"""The simulated `Evaluator`: plans take what costs say, trials take virtual time, and noise is drawn, not suffered.

It repeats exactly and never waits, which is what it is for. It knows nothing of contention beyond what is in the costs:
one stage's time never depends on another's.
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
"""How many frames are measured in a trial, unless the caller says."""

_Z_95: Final = 1.96


class SimulatedEvaluator:
    """An `Evaluator` over `costs`: a roofline's, a costs file's or the profile store's.

    A trial takes `frames` times the bottleneck, and the latency of one frame first, as the pipeline fills; 0 if the
    plan cannot run. Each measured stage time is the true one times exp(noise x z), z normal, drawn from `rng`; the
    band is as wide as two such measurements differ by at most in 95 of 100. Raises ValueError for noise without `rng`.
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
        """Raises ValueError for a plan that `verify.py` finds fault with."""
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
    """True costs for a planner that was told others: each layer's time on each place times exp(sigma x z), z normal.

    The median of the factors is 1. Transfers, and what cannot run, stay as told.
    """
    factors = np.array([[math.exp(sigma * rng.gauss()) for _ in costs.places] for _ in costs.layers])
    return replace(costs, time_s=costs.time_s * factors)
