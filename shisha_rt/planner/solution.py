"""What planners by costs return: a plan, and what is proven of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from shisha_rt.outcome import Solution
from shisha_rt.plan.plan import Plan

PLAIN_CHAINS: Final = "chains of stages, each on a place of its own"


@dataclass(frozen=True, slots=True)
class PlanSolution(Solution[Plan]):
    """The answer is the `plan`.

    `space`, in words: the plans among which this one was sought. None of them is below `lower_bound_s` in what was to
    be small, be it bottleneck or latency. `latency_proven`: no plan of the space with this one's bottleneck, which is
    then the smallest, has a lower latency (up to a relative error of 1e-12); where latency was to be small, none has a
    lower one at all. `lower_bound_j`: where energy was to be small, no plan of the space takes fewer joules; the bound
    in seconds says nothing then. `is_partial`: it was sought with some of the places or cuts only, as there are too
    many. `statistics` depend on the space; kinds of places, cells of the recursion and probes (bounds tried) always.
    """

    latency_proven: bool = False
    space: str = PLAIN_CHAINS
    is_partial: bool = False
    lower_bound_j: float | None = None

    @property
    def plan(self) -> Plan | None:
        return self.answer
