"""Measuring without running: a plan's stage times as a file of costs adds them up.

Exact and repeatable, so the band is 0 and a tuner's comparison is the paper's own. What it leaves out is all that
happens between stages: shared bandwidth, noise, the pipeline's filling.
"""

from __future__ import annotations

import math

from shisha_rt.costs.costs import Costs, stage_service_s, why_infeasible
from shisha_rt.plan.evaluator import Proposal
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan, Stage
from shisha_rt.plan.verify import PlanRules


class CostsEvaluator:
    """An `Evaluator` over costs. A trial's virtual time is one frame through the slowest stage, 0 if it cannot run."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._place_index = {place.name: i for i, place in enumerate(costs.places)}
        self._rules = PlanRules(len(costs.layers), tuple(self._place_index), costs.legal_cuts)

    def measure(self, proposal: Proposal) -> Measurement:
        return self.measurement_of(proposal.plan)

    def measurement_of(self, plan: Plan) -> Measurement:
        """Additive stage times; inf for a stage that its place cannot run, be it a layer or the memory."""
        faults = self._rules.problems(plan)
        if faults:
            raise ValueError(f"{plan}: {faults[0]}")
        service_s = tuple(map(self._service_s, plan.stages))
        bottleneck_s = max(service_s)
        return Measurement(service_s, band=0.0, frames=1, took_s=bottleneck_s if math.isfinite(bottleneck_s) else 0.0)

    def _service_s(self, stage: Stage) -> float:
        place = self._place_index[stage.place]
        if why_infeasible(self._costs, stage.first, stage.last, place) is not None:
            return math.inf
        return stage_service_s(self._costs, stage.first, stage.last, place)
