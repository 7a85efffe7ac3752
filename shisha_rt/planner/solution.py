"""The result of planning by costs: a plan, and what is proven of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from shisha_rt.outcome import Solution
from shisha_rt.plan.plan import Plan

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

    @property
    def plan(self) -> Plan | None:
        return self.answer
