"""The result of planning by costs: a plan, and what is proven of it; and how many plans there are."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from shisha_rt.outcome import Outcome, Solution
from shisha_rt.plan.plan import Plan

TOO_SOON: Final = "stopped before the first plan"
PLAIN_CHAINS: Final = "chains of stages, each on a place of its own"


@dataclass(frozen=True, slots=True)
class PlanSolution(Solution[Plan]):
    """The answer is the `plan`.

    `space`: in words, the plans that were searched. `lower_bound_s`: no plan of the space has a smaller bottleneck, or
    latency if that was the objective. `latency_proven`: the bottleneck is the smallest, and no plan of the space with
    that bottleneck has a lower latency (up to a relative error of 1e-12); if latency was the objective, no plan of the
    space has a lower one. `lower_bound_j`: if energy was the objective, no plan of the space takes fewer joules; the
    bound in seconds means nothing then. `is_partial`: only some of the places or cuts were searched, as there are too
    many. `statistics` depend on the space.
    """

    latency_proven: bool = False
    space: str = PLAIN_CHAINS
    is_partial: bool = False
    lower_bound_j: float | None = None

    def answered(self, plan: Plan, value_s: float, lower_s: float | None, rounding: float) -> PlanSolution:
        """With `plan`, which takes `value_s`, as its answer; optimal if the lower bound is as high but for rounding.

        Nothing is proven of the plan's latency beside its bottleneck.
        """
        proven = lower_s is not None and lower_s >= value_s * (1 - rounding)
        return replace(
            self,
            answer=plan,
            outcome=Outcome.OPTIMAL if proven else Outcome.FEASIBLE,
            lower_bound_s=value_s if proven else lower_s,
            latency_proven=False,
        )

    @property
    def plan(self) -> Plan | None:
        return self.answer


def plan_count(legal_cut_count: int, place_count: int, stage_count: int) -> int:
    """Plans of 1 to `stage_count` stages over the legal cuts, each stage on a place of its own, in any order."""
    return sum(math.comb(legal_cut_count, n - 1) * math.perm(place_count, n) for n in range(1, stage_count + 1))


def explored_fraction(trials: int, layer_count: int, stage_count: int) -> float:
    """Shisha (2022), section 6: trials over C(L-1, N-1), the ways to cut L layers with the places fixed."""
    return trials / math.comb(layer_count - 1, stage_count - 1)
