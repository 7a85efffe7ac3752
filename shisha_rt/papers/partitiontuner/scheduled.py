"""Tuning of a scheme's schedule: costs are corrected by measured times of stages, and the scheme makes a new schedule.

The first trial is the scheme's plan by stored costs. The ratio of a stage's measured to its predicted time corrects all
of its nodes on its place; nodes not measured there get the median ratio of the place's stages. Unloaded latency beyond
the stages' times is divided among hand-overs. Then the scheme makes a plan again: if it has not been measured and its
predicted gain exceeds noise, it is the next trial; else the fastest plan measured is final.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import median
from typing import Final, cast

import msgspec

from shisha_rt.core.tuning import tuner_messages as tm
from shisha_rt.papers.partitiontuner.partition_plan import foretold, nodes_of_stage
from shisha_rt.papers.partitiontuner.processors import ProcessorCosts
from shisha_rt.papers.partitiontuner.scheme_plans import SchemePlan, scheme_plan
from shisha_rt.plan.evaluator import Proposal
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import latency_s
from shisha_rt.planner.strategies import SchemeName

MOST_TRIALS: Final = 8
LEAST_GAIN: Final = 0.01
"""Fraction of the latency that another schedule must promise to gain."""


@dataclass(frozen=True, slots=True)
class Scheduled:
    """`at`: the plan being measured; `done`: the plans measured before, in order."""

    at: Plan
    done: tuple[tuple[Plan, Measurement], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class SchemeTuner:
    """A `Tuner`. `costs`: of the places that can be used, at their speeds. `start`: measured if there is no plan."""

    scheme: SchemeName
    costs: ProcessorCosts
    start: Plan

    def init(self) -> tuple[Scheduled, Proposal]:
        scheduled = scheme_plan(self.scheme, self.costs)
        if scheduled is None:
            return Scheduled(self.start), Proposal(self.start, f"{self.scheme} has no plan for these places")
        return Scheduled(scheduled.plan), _proposal(scheduled, f"{self.scheme} by the costs told")

    def step(self, state: Scheduled, observation: Measurement) -> tuple[Scheduled, Proposal]:
        done = (*state.done, (state.at, observation))
        scheduled = scheme_plan(self.scheme, corrected(self.costs, done))
        best, best_m = min(done, key=lambda trial: trial[1].latency_s)
        state = replace(state, done=done)
        why = ""
        if scheduled is None:
            why = f"{self.scheme} has no plan for these places"
        elif any(scheduled.plan == plan for plan, _ in done):
            why = "its schedule by the corrected costs is measured already"
        elif len(done) >= MOST_TRIALS:
            why = f"the limit of {MOST_TRIALS} trials is reached"
        elif scheduled.foretold.latency_s >= (1 - max(LEAST_GAIN, best_m.band)) * best_m.latency_s:
            why = "no other schedule promises a gain beyond noise"
        if scheduled is None or why:
            return state, Proposal(
                best, why, final=True, lower_bound_s=None if scheduled is None else scheduled.lower_bound_s
            )
        return replace(state, at=scheduled.plan), _proposal(scheduled, f"{self.scheme} by the corrected costs")


def scheme_tuner(stored: tm.StoredProcessors, begin: tm.Begin) -> SchemeTuner:
    """Tuner of the scheme that the daemon asks for, by stored costs of the places at their present speeds."""
    costs = msgspec.msgpack.decode(stored.packed, type=ProcessorCosts).on([place.name for place in begin.places])
    slower = {place.name: place.slower for place in begin.places}
    factors = [slower[name] for name in costs.places]
    return SchemeTuner(cast(SchemeName, begin.strategy), costs.scaled([factors] * len(costs.spans)), begin.start)


def _proposal(scheduled: SchemePlan, why: str) -> Proposal:
    told_s = scheduled.foretold.latency_s
    return Proposal(scheduled.plan, f"{why}: {1e3 * told_s:.4g} ms predicted", lower_bound_s=scheduled.lower_bound_s)


def corrected(costs: ProcessorCosts, done: Iterable[tuple[Plan, Measurement]]) -> ProcessorCosts:
    """The costs corrected by these trials; if several have measured a node on a place, the last one counts."""
    seen: dict[tuple[int, int], float] = {}
    shares: list[list[float]] = [[] for _ in costs.places]
    handover_s = costs.handover_s
    for plan, measurement in done:
        if not (measurement.can_run and set(plan.places) <= set(costs.places)):
            continue
        told_s = foretold(costs, plan).stage_s
        for stage, expected_s, taken_s in zip(plan.stages, told_s, measurement.service_s, strict=True):
            if 0 < expected_s < math.inf and taken_s > 0:
                place = costs.places.index(stage.place)
                shares[place].append(taken_s / expected_s)
                seen |= dict.fromkeys(((node, place) for node in nodes_of_stage(costs, stage)), taken_s / expected_s)
        handover_s = _handover_s(plan, measurement, handover_s)
    of_place = [median(share) if share else 1.0 for share in shares]
    factors = [
        [seen.get((node, place), of_place[place]) for place in range(len(costs.places))]
        for node in range(len(costs.spans))
    ]
    return replace(costs.scaled(factors), handover_s=handover_s)


def _handover_s(plan: Plan, measurement: Measurement, before_s: float) -> float:
    """Unloaded latency beyond the stages' times, for each stage on the longest path."""
    if measurement.alone_s is None:
        return before_s
    stage_s = measurement.service_s
    without_s = latency_s(plan, [(s,) for s in stage_s])
    waits = latency_s(plan, [(1.0,) for _ in stage_s])
    return max(0.0, (measurement.alone_s - without_s) / waits)
