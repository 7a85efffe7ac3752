"""Guided tuning: run the best plan by the costs told, correct them by what its stages really took, and solve again.

A plan's stages say only what their layers take together, and of other plans little. So the corrected costs flatter:
the plan that is best by them owes it in part to errors not yet found, and will disappoint. Each trial finds some of
them. Where the best plan is measured already, others may still be better as far as is known. Those are tried that need
the least doubt for it: all their stages so many standard deviations below what is predicted.

It ends where even much doubt leaves no plan that promises a gain, so no trial is run that the model shows to be worse
beyond its error; the plan measured as the fastest stays. Many trials early, as costs are found to be wrong, are the
price of not settling for the first plan whose prediction holds.

Exact under an additive model of stages. Where stages slow each other down, predictions are off and it may end too
early or too late, but it ends: no plan is measured twice.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final

import numpy as np

from shisha_rt.arrays import Floats
from shisha_rt.costs.costs import Costs, stage_service_s
from shisha_rt.outcome import Outcome
from shisha_rt.pipeline.belief import Belief, Sighting, likeliest
from shisha_rt.pipeline.exact import exact_plan
from shisha_rt.pipeline.outlook import outlook
from shisha_rt.pipeline.solution import PlanSolution
from shisha_rt.plan.evaluator import Proposal
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan, Stage

DEFAULT_MOST_TRIALS: Final = 20
DEFAULT_GAIN: Final = 0.01

DOUBTS: Final = tuple(quarters / 4 for quarters in range(1, 9))
"""Standard deviations. Beyond the last, a plan counts as shown to be worse."""

_BAND_OF_ERROR: Final = 1.96 * math.sqrt(2)
"""Two measurements of one plan differ by no more than so many standard errors in 95 of 100 cases."""
_LEAST_ERROR: Final = 0.005
"""Relative. Costs are a model: no measurement says more of them than this."""
_LEAST_SHARE: Final = 0.02
"""Of its told time, that a layer takes at least: a Gaussian does not know that times are positive."""


@dataclass(frozen=True, slots=True)
class Trials:
    """`at` is being measured; `done` has what was measured before, in order. All that is learnt follows from it."""

    at: Plan
    done: tuple[tuple[Plan, Measurement], ...]


@dataclass(frozen=True, slots=True, eq=False)
class GuidedTuner:
    """A `Tuner`; made by `guided`."""

    costs: Costs
    start: Plan
    told_bound_s: float | None
    most_stages: int | None
    most_trials: int
    gain: float

    def init(self) -> tuple[Trials, Proposal]:
        return Trials(self.start, ()), Proposal(self.start, "where tuning starts", lower_bound_s=self.told_bound_s)

    def step(self, trials: Trials, observation: Measurement) -> tuple[Trials, Proposal]:
        """Correct the costs; then the plan that is best by them, or else could be, unless neither promises a gain."""
        trials = replace(trials, done=(*trials.done, (trials.at, observation)))
        corrected, beliefs = self._corrected(trials)
        solution = exact_plan(corrected, most_stages=self.most_stages)
        if len(trials.done) >= self.most_trials:
            return trials, _final(trials, f"the limit of {self.most_trials} trials is reached", solution)
        if solution.plan is None:
            return trials, _final(trials, f"no other plan: {solution.reason}", solution)
        found = self._promising(trials, corrected, beliefs, solution)
        if found is None or any(found.plan == plan for plan, _ in trials.done):
            return trials, _final(trials, f"no other promises to be {100 * self.gain:g}% faster", solution)
        return replace(trials, at=found.plan), found

    def _promising(
        self, trials: Trials, corrected: Costs, beliefs: list[Belief], solution: PlanSolution
    ) -> Proposal | None:
        """The plan that is faster than all measured ones for the least doubt. The same doubt is cast on those.

        So a plan measured as fast by luck sets no mark that others cannot meet, and none of the measured is found.
        """
        best, bound_s = solution.plan, solution.lower_bound_s
        assert best is not None  # the caller has seen to it
        measured = [plan for plan, measurement in trials.done if measurement.can_run]
        best_s = _predicted_s(corrected, best)
        to_beat_s = min((_predicted_s(corrected, plan) for plan in measured), default=math.inf)
        if best_s <= (1 - self.gain) * to_beat_s:
            return Proposal(best, f"predicted {1e3 * best_s:.4g} ms, the best by the corrected costs", False, bound_s)
        if solution.outcome is not Outcome.OPTIMAL:  # too many unlike places for the recursion
            return None
        view = outlook(corrected, beliefs, self.most_stages)

        def better(doubt: float) -> Plan | None:
            stage_s = view.at_best_s(doubt)
            to_beat_s = min(view.bottleneck_s(stage_s, plan) for plan in measured)
            return view.plan_within((1 - self.gain) * to_beat_s, stage_s)

        at = bisect_left(DOUBTS, True, key=lambda doubt: better(doubt) is not None)
        plan = better(DOUBTS[at]) if at < len(DOUBTS) else None
        if plan is None:
            return None
        at_best_s = view.bottleneck_s(view.at_best_s(DOUBTS[at]), plan)
        predicted = f"predicted {1e3 * _predicted_s(corrected, plan):.4g} ms"
        perhaps = f"perhaps {1e3 * at_best_s:.4g} ms, {DOUBTS[at]:g} standard deviations below"
        return Proposal(plan, f"{predicted}, {perhaps}", False, bound_s)

    def _corrected(self, trials: Trials) -> tuple[Costs, list[Belief]]:
        """The costs as they are believed to be.

        Nobody says which layer of a stage it was that kept it from running. So all of them count as layers that the
        place cannot run, but for those that it has run.
        """
        time_s = self.costs.time_s.copy()
        ran = np.zeros(time_s.shape, bool)
        for stage, place, service_s, _ in self._stages(trials):
            ran[stage.first : stage.last + 1, place] |= math.isfinite(service_s)
        for stage, place, service_s, _ in self._stages(trials):
            if math.isinf(service_s):
                layers = slice(stage.first, stage.last + 1)
                time_s[layers, place] = np.where(ran[layers, place], time_s[layers, place], math.nan)
        told_s = np.nan_to_num(time_s)
        beliefs = likeliest(list(told_s.T), [self._seen(trials, place, told_s) for place in range(told_s.shape[1])])
        mean_s = np.maximum(np.stack([belief.mean_s for belief in beliefs], axis=1), _LEAST_SHARE * told_s)
        return replace(self.costs, time_s=np.where(np.isnan(time_s), math.nan, mean_s)), beliefs

    def _seen(self, trials: Trials, place: int, told_s: Floats) -> list[Sighting]:
        """What stages took on a place, their entries taken off. Where nothing was told, nothing can be corrected."""
        seen: list[Sighting] = []
        for stage, its_place, service_s, error in self._stages(trials):
            first, end = stage.first, stage.last + 1
            layers_s = float(told_s[first:end, place].sum())
            if its_place == place and math.isfinite(service_s) and layers_s:
                entry_s = float(self.costs.transfer_s[first - 1]) if first else 0.0
                seen.append(Sighting(first, end, service_s - entry_s, error * max(service_s, layers_s)))
        return seen

    def _stages(self, trials: Trials) -> Iterator[tuple[Stage, int, float, float]]:
        """Each stage measured: its place (index), seconds, and relative standard error."""
        index_of = {place.name: index for index, place in enumerate(self.costs.places)}
        for plan, measurement in trials.done:
            error = max(measurement.band / _BAND_OF_ERROR, _LEAST_ERROR)
            for stage, service_s in zip(plan.stages, measurement.service_s, strict=True):
                yield stage, index_of[stage.place], service_s, error


def guided(
    costs: Costs,
    start: Plan | None = None,
    *,
    most_stages: int | None = None,
    most_trials: int = DEFAULT_MOST_TRIALS,
    gain: float = DEFAULT_GAIN,
) -> GuidedTuner:
    """From `start`, a plan that `verify.py` passes, such as the live one; None: the best by `costs`, as told.

    `gain` is the smallest relative one that is worth a trial. Raises ValueError where no plan can run by `costs` and
    `start` is None, and for numbers that make no sense.
    """
    if most_trials < 1 or not 0 < gain < 1:
        raise ValueError(f"{most_trials} trials, a gain of {gain}: expected at least 1, and between 0 and 1")
    told = exact_plan(costs, most_stages=most_stages)
    start = told.plan if start is None else start
    if start is None:
        raise ValueError(f"costs without a plan: {told.reason}")
    return GuidedTuner(costs, start, told.lower_bound_s, most_stages, most_trials, gain)


def _final(trials: Trials, why: str, solution: PlanSolution) -> Proposal:
    best, _ = reduce(lambda a, b: b if b[1].is_better_than(a[1]) else a, trials.done)  # beyond noise, as everywhere
    count = len(trials.done)
    return Proposal(best, f"best of {count} plan{'s' * (count > 1)}; {why}", True, solution.lower_bound_s)


def _predicted_s(costs: Costs, plan: Plan) -> float:
    """The bottleneck by `costs`; inf where they do not know a stage of the plan."""
    index_of = {place.name: index for index, place in enumerate(costs.places)}
    service_s = [stage_service_s(costs, stage.first, stage.last, index_of[stage.place]) for stage in plan.stages]
    return math.inf if any(map(math.isnan, service_s)) else max(service_s)
