"""A plan for places that are short of memory, while costs are unknown: layers' times are taken as their Eq. 1 weights.

Shisha's seed ignores the memory of places. If no cut of the layers fits, some layers are split.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from shisha_rt.costs.costs import CostLayer, CostPlace, Costs
from shisha_rt.costs.split_costs import SplitCosts
from shisha_rt.machine.machine import Place
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.verify import PlanRules
from shisha_rt.planner.goal import Goal
from shisha_rt.planner.shards.split_plan import plan_that_fits

_MOST_CELLS: Final = 1 << 14
"""Small, as the plan may be wanted while a daemon serves."""


def plan_by_weights(rules: PlanRules, weights: Sequence[float], places: Sequence[Place]) -> Plan | None:
    """A plan over some of the `places`; None if the model has no room, even split. `weights` is (layers,)."""
    costs = _costs(rules, weights, places)
    plan = plan_that_fits(costs, Goal(latency_states=0, most_cells=_MOST_CELLS)).plan
    return None if plan is None or rules.problems(plan) else plan


def _costs(rules: PlanRules, weights: Sequence[float], places: Sequence[Place]) -> Costs:
    """Costs by weights: a unit of weight takes a second on a thread of full speed, a layer without any almost none."""
    least = 1e-6 * max(*weights, 1e-6)
    layers_s = np.maximum(weights, least)
    legal = rules.legal_cuts
    cuts = range(rules.layer_count - 1)
    return Costs(
        layers=tuple(
            CostLayer(str(layer), *figures)
            for layer, figures in enumerate(zip(weights, rules.weight_bytes, rules.live_bytes, strict=True))
        ),
        places=tuple(CostPlace(place.name, place.rank, rules.memory_bytes.get(place.name)) for place in places),
        time_s=np.stack([layers_s / (place.speed * place.threads) for place in places], axis=1),
        transfer_s=np.array([0.0 if legal is None or cut in legal else math.nan for cut in cuts]),
        splits=SplitCosts(tuple(rules.splits.values()), overhead_s=0.0),
    )
