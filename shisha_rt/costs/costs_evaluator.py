"""Measuring without running: a plan's stage times are sums from a file of costs.

Exact and repeatable, so the band is 0 and a tuner's comparison is the paper's own. All effects between stages are left
out: shared bandwidth, noise, the pipeline's filling.
"""

from __future__ import annotations

import math

from shisha_rt.costs.costs import Costs
from shisha_rt.costs.team_costs import team_costs
from shisha_rt.plan.energy import frame_joules
from shisha_rt.plan.evaluator import Proposal
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import stage_seconds
from shisha_rt.plan.verify import PlanRules


class CostsEvaluator:
    """An `Evaluator` over costs. A trial's virtual time is one frame at saturation, 0 if the plan cannot run.

    `needs` as in `PlanRules`. Without them only chains are known to be valid plans, as a file of costs does not say
    which layer reads from which.
    """

    def __init__(self, costs: Costs, needs: tuple[frozenset[int], ...] = ()) -> None:
        self._teams = team_costs(costs)
        self._has_links = bool(costs.link_of)
        self._power_w = costs.power_w
        self._rules = PlanRules(
            len(costs.layers),
            tuple(self._teams.kind_of),
            costs.legal_cuts,
            needs=needs,
            kinds=self._teams.kind_of,
            far=costs.far,
            splits={splittable.along: splittable for splittable in costs.splits.splittables},
            most_batch=max((batch.frames for batch in costs.batches), default=1),
        )

    def measure(self, proposal: Proposal) -> Measurement:
        return self.measurement_of(proposal.plan)

    def measurement_of(self, plan: Plan) -> Measurement:
        """Additive stage times; inf if the place cannot run a layer of the stage, or lacks the memory."""
        faults = self._rules.problems(plan)
        if faults:
            raise ValueError(f"{plan}: {faults[0]}")
        team_s = self._teams.team_s(plan)
        service_s = tuple(map(stage_seconds, team_s))
        # A plain chain's slowest stage determines its rate, unless stages share a link.
        rate = None if plan.is_plain and not self._has_links else self._teams.rate(plan)
        bottleneck_s = max(service_s) if rate is None else rate.bottleneck_s
        took_s = bottleneck_s if math.isfinite(bottleneck_s) else 0.0
        energy_j = frame_joules(plan, team_s, self._power_w)
        return Measurement(service_s, 0.0, 1, took_s, rate, team_s=() if rate is None else team_s, energy_j=energy_j)
