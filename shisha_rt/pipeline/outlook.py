"""Which plans could still turn out to be fast: stage times as far below what is predicted as the doubt allows.

Stages are on different places, so what is not known of one is independent of the others; but of one place's layers it
is not, and a stage's deviation is no sum over them. So `exact`, which adds layers up, cannot look for such plans. The
recursion under it can: a bound is kept by the longest stage that, at best, keeps it, and `reach` does not ask why.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shisha_rt.arrays import Floats
from shisha_rt.costs.costs import Costs
from shisha_rt.pipeline.belief import Belief
from shisha_rt.pipeline.kinds import Kind, StageCosts, stage_costs
from shisha_rt.pipeline.reach import Lattice, lattice, reach
from shisha_rt.plan.plan import Plan


@dataclass(frozen=True, slots=True, eq=False)
class Outlook:
    """Of a pipeline. `predicted_s` (kinds, positions, positions): what the stage from begin to end takes.

    It is 0 where the end is not behind the begin, inf where no such stage can run. `deviation` is relative to it.
    """

    model: StageCosts
    states: Lattice
    predicted_s: Floats
    deviation: Floats

    def at_best_s(self, doubt: float) -> Floats:
        """(kinds, positions, positions): `doubt` deviations below the prediction, on a logarithmic scale.

        There no time becomes negative, and for small deviations it is the same. A longer stage takes no less.
        """
        return np.maximum.accumulate(self.predicted_s * np.exp(-doubt * self.deviation), axis=2)

    def bottleneck_s(self, stage_s: Floats, plan: Plan) -> float:
        """Of a plan, if stages take `stage_s` (kinds, positions, positions)."""
        costs, starts = self.model.costs, self.model.starts
        kind_of = {costs.places[place].name: k for k, kind in enumerate(self.model.kinds) for place in kind.places}
        return max(
            float(stage_s[kind_of[stage.place], starts.index(stage.first), starts.index(stage.last + 1)])
            for stage in plan.stages
        )

    def plan_within(self, bound_s: float, stage_s: Floats) -> Plan | None:
        """A plan whose slowest stage takes at most `bound_s` >= 0, if stages take `stage_s`; None: there is none."""
        furthest = (stage_s <= bound_s).sum(axis=2) - 1
        table = reach(self.states, furthest, lambda: False)
        return self.model.plan(table.trace()) if table is not None and table.is_whole else None


def outlook(costs: Costs, beliefs: Sequence[Belief], most_stages: int | None = None) -> Outlook:
    """`costs` have the means of `beliefs` (places,)."""
    model = stage_costs(costs)
    most = min(len(costs.places), model.groups, most_stages or model.groups)
    begins, ends = np.ogrid[: model.groups + 1, : model.groups + 1]

    def stages_s(kind: Kind) -> Floats:
        time_s = kind.prefix_s - kind.prefix_s[:, None] + model.entry_s[:, None]
        return np.where(ends <= begins, 0.0, np.where(ends <= kind.longest[:, None], time_s, math.inf))

    starts = np.array(model.starts)
    predicted_s = np.stack([stages_s(kind) for kind in model.kinds])
    deviation_s = np.stack([beliefs[kind.places[0]].deviation_s(starts) for kind in model.kinds])
    return Outlook(
        model=model,
        states=lattice([min(len(kind.places), most) for kind in model.kinds], most),
        predicted_s=predicted_s,
        deviation=np.divide(deviation_s, predicted_s, out=np.zeros_like(predicted_s), where=predicted_s > 0),
    )
