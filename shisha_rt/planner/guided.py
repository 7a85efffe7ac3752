"""Guided tuning: measure the best plan by predicted costs, correct the costs by its stages' times, and repeat.

A stage's measured time is the sum of its layers' times, and says little about other plans. So the plan that is best by
the corrected costs owes that in part to errors not yet found, and is usually slower than predicted. Each trial finds
some of these errors. If the best plan by the costs is measured already, other plans may still be better within the
error of the costs. The next one tried is the plan that would be better with the least doubt: the number of standard
deviations by which all stages are assumed to be faster than predicted.

If no chain in the file's order of layers promises a gain, one in another order may (see `order`). If no plan of whole
layers does, layers may be split; what shards took corrects the times of all. Tuning ends when even the largest doubt
leaves no plan that promises a gain: no plan is tried that the model shows to be worse beyond its error. The fastest
measured plan stays. Many early trials, while costs are found to be wrong, are the price of not settling for the first
plan whose prediction holds.

Exact under an additive model of stages. If stages slow each other down, predictions are off and tuning may end too
early or too late, but it ends: no plan is measured twice.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce
from typing import TYPE_CHECKING, Final

from shisha_rt.costs.alike import kinds_of
from shisha_rt.costs.costs import HANDOVER_S, Costs, why_no_other_order
from shisha_rt.costs.team_costs import plan_period_s, team_costs
from shisha_rt.model.spans import layers_in_words
from shisha_rt.plan.evaluator import Proposal
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import Objective
from shisha_rt.planner.chains import TOLERANCE, StageSeconds, can_list
from shisha_rt.planner.exact import exact_plan
from shisha_rt.planner.goal import DEFAULT_LATENCY_STATES, PART_OF_TARGET, Goal
from shisha_rt.planner.kinds import stage_costs
from shisha_rt.planner.learning import Learnt, learnt
from shisha_rt.planner.outlook import Outlook, outlook
from shisha_rt.planner.shards.pieces import split_spans
from shisha_rt.planner.shards.quickest_split import alone_s
from shisha_rt.planner.shards.split_plan import split_plan
from shisha_rt.planner.shards.splits_tried import with_longest_alone, with_splits_tried
from shisha_rt.planner.solution import PlanSolution
from shisha_rt.studies import study

if TYPE_CHECKING:
    from shisha_rt.papers.order.ordered_plan import OrderedPlan
    from shisha_rt.papers.partitiontuner.scheme_plans import SchemePlan

DOUBTS: Final = tuple(quarters / 4 for quarters in range(1, 9))
"""Standard deviations. A plan that would need more than the last counts as shown to be worse."""

MOST_TRIALS: Final = 20
LEAST_GAIN: Final = 0.01
"""Relative: the smallest gain worth a trial."""

_MOST_CELLS: Final = 1 << 15
"""Limit of the recursion of `need`, so that a step is short."""
_MOST_PLAIN_CELLS: Final = 1 << 16
"""Limit of the recursion of `reach`, without copies."""
_MOST_LATENCY_CELLS: Final = 1 << 20
"""Limit of the recursion of `quickest`, for latency."""
_MOST_DOWNSETS: Final = 600
_MOST_ORDER_WORK: Final = 1e7
"""Limits of the search for another order of layers (see `ordered_plan`)."""


@dataclass(frozen=True, slots=True)
class Trials:
    """`at`: the plan being measured. `done`: earlier trials, in order; all that is learnt follows from them."""

    at: Plan
    done: tuple[tuple[Plan, Measurement], ...]

    def have(self, plan: Plan) -> bool:
        return any(plan == tried for tried, _ in self.done)


@dataclass(frozen=True, slots=True, eq=False)
class GuidedTuner:
    """A `Tuner`; made by `guided`."""

    costs: Costs
    start: Plan
    told_bound_s: float | None
    goal: Goal
    needs: tuple[frozenset[int], ...]

    def init(self) -> tuple[Trials, Proposal]:
        return Trials(self.start, ()), Proposal(self.start, "where tuning starts", lower_bound_s=self.told_bound_s)

    def step(self, trials: Trials, observation: Measurement) -> tuple[Trials, Proposal]:
        """Correct the costs, then propose the plan that promises most by them; end if none promises a gain."""
        trials = replace(trials, done=(*trials.done, (trials.at, observation)))
        believed = learnt(self.costs, trials.done, self._few_enough, copies=self.goal.replicate)
        believed = replace(believed, costs=with_splits_tried(believed.costs, trials.done, self.goal.objective))
        solution = exact_plan(believed.costs, replace(self._of_a_step, latency_s=self._latency_s(trials, believed)))
        # The bound is proven only for chains of whole layers in the file's order.
        if self.costs.splits.splittables or not self._best(trials)[0].is_chain:
            solution = replace(solution, lower_bound_s=None)
        if len(trials.done) >= MOST_TRIALS:
            return trials, self._final(trials, f"the limit of {MOST_TRIALS} trials is reached", solution)
        proposal = None if solution.plan is None else self._promising(trials, believed, solution)
        failed = proposal is not None and trials.have(proposal.plan)
        if proposal is None or failed:
            proposal = (
                self._without_copies(trials)
                or self._branches(trials, believed)
                or self._reordered(trials, believed.costs, self.goal)
                or self._reordered(trials, self.costs, replace(self.goal, replicate=False))
            )
        if proposal is None and believed.costs.splits.splittables and self.goal.objective != "energy":
            handover_s = _handover_s(believed.costs, trials.done)
            whole, solution = solution, self._with_splits(believed.costs, solution, handover_s)
            fewer = with_longest_alone(believed.costs, solution.plan, trials.done)
            if fewer is not None:
                proposal = self._split(trials, fewer, self._with_splits(fewer, whole, handover_s), handover_s)
            proposal = proposal or self._split(trials, believed.costs, solution, handover_s)
        if proposal is None and solution.plan is None:
            return trials, self._final(trials, f"no other plan: {solution.reason}", solution)
        if proposal is None:
            why = "what promises most could not be run" if failed else self._why_none(believed, solution)
            return trials, self._final(trials, why, solution)
        return replace(trials, at=proposal.plan), proposal

    @property
    def _has_copies(self) -> bool:
        return self.goal.replicate and self.goal.objective == "throughput"

    @property
    def _of_a_step(self) -> Goal:
        latency_states = 0 if self.goal.replicate else DEFAULT_LATENCY_STATES
        return replace(self.goal, latency_states=latency_states, most_cells=_most_cells(self.goal))

    def _latency_s(self, trials: Trials, believed: Learnt) -> float:
        """The longest predicted latency allowed: shorter if measured latencies exceed predictions, as by hand-overs."""
        if self.goal.latency_s == math.inf:
            return math.inf
        by_believed = team_costs(believed.costs)
        beyond = [
            measurement.latency_s / told_s
            for plan, measurement in trials.done
            if measurement.can_run
            and measurement.latency_s > 0
            and 0 < (told_s := by_believed.rate(plan).latency_s) < math.inf
        ]
        return min(self.goal.latency_s, self.goal.latency_s / PART_OF_TARGET / max(beyond, default=1.0))

    def _promising(self, trials: Trials, believed: Learnt, solution: PlanSolution) -> Proposal | None:
        """Propose the best plan by the costs, or else the one that is better than all measured ones with least doubt.

        Measured chains are compared by their predictions, with the same doubt. So one that was measured as fast by luck
        sets no bound that others cannot meet, and no plan that ran is proposed again. One that costs do not tell of, as
        its team was not measured before, is compared as it was measured.
        """
        best, bound_s = solution.plan, solution.lower_bound_s
        assert best is not None  # the caller has seen to it
        by_believed, most_s = team_costs(believed.costs), self._latency_s(trials, believed) * (1 + TOLERANCE)
        objective = self.goal.objective

        def predicted_s(plan: Plan, otherwise_s: float = math.inf) -> float:
            rate = by_believed.rate(plan)
            if objective == "energy" and rate.latency_s > most_s:  # it is late
                return math.inf
            told_s = rate.value(objective)
            return told_s if told_s < math.inf else otherwise_s

        measured = [(plan, measurement) for plan, measurement in trials.done if measurement.can_run]
        best_s = predicted_s(best)
        to_beat_s = min((predicted_s(plan, taken.value(objective)) for plan, taken in measured), default=math.inf)
        if not to_beat_s:  # no plan is faster
            return None
        if best_s <= (1 - LEAST_GAIN) * to_beat_s:
            what = f"{1e3 * best_s:.4g} {'mJ' if objective == 'energy' else 'ms'}"
            return Proposal(best, f"predicted {what}, the best by the corrected costs", lower_bound_s=bound_s)
        if solution.is_partial or objective == "energy":
            return None
        view = outlook(believed, self.goal)
        doubtful = _better_with_least_doubt(view, measured, objective)
        if doubtful is None:
            return None
        plan, doubt = doubtful
        at_best_s = view.value(view.at_best_s(doubt), plan)
        predicted = f"predicted {1e3 * predicted_s(plan):.4g} ms"
        perhaps = f"{1e3 * at_best_s:.4g} ms if stages are {doubt:g} standard deviations quicker"
        return Proposal(plan, f"{predicted}, {perhaps}", lower_bound_s=bound_s)

    def _if_worth_it(
        self, trials: Trials, plan: Plan | None, told_s: float, how: str, lower_bound_s: float | None = None
    ) -> Proposal | None:
        """Propose a plan of which costs promise `told_s`, if it is new and that is less than the best one measured."""
        to_beat_s = (1 - LEAST_GAIN) * self._best(trials)[1].value(self.goal.objective)
        if plan is None or trials.have(plan) or told_s > to_beat_s:
            return None
        return Proposal(plan, f"predicted {1e3 * told_s:.4g} ms{how}", lower_bound_s=lower_bound_s)

    def _without_copies(self, trials: Trials) -> Proposal | None:
        """Propose the best plan without copies before tuning ends, as costs do not know how copies slow each other."""
        if not self._has_copies or all(plan.is_plain for plan, _ in trials.done):
            return None
        without = exact_plan(self.costs, Goal(most_stages=self.goal.most_stages, most_cells=_MOST_PLAIN_CELLS))
        predicted_s = plan_period_s(self.costs, without.plan)
        return self._if_worth_it(
            trials, without.plan, predicted_s, " by costs not corrected, the best without copies", without.lower_bound_s
        )

    def _branches(self, trials: Trials, believed: Learnt) -> Proposal | None:
        """Propose branches side by side, as they may lower the latency (see `forkjoin`)."""
        near = len(self.costs.places) - len(self.costs.far)  # `handover_s` does not cover places on other hosts
        if not (self.needs and self.goal.replicate and near) or self.goal.objective != "latency":
            return None
        handover_s = _handover_s(believed.costs, trials.done)
        branched: SchemePlan | None = study("side_by_side")(believed.costs, self.needs, handover_s, self.costs.far)
        if branched is None:
            return None
        return self._if_worth_it(trials, branched.plan, branched.foretold.latency_s, ", with branches side by side")

    def _reordered(self, trials: Trials, costs: Costs, goal: Goal) -> Proposal | None:
        """Propose a chain in another order of layers: a stage may have parts of branches that are apart in the file."""
        if not (self.needs and self._has_copies) or why_no_other_order(costs, self.needs):
            return None
        to_beat_s = (1 - LEAST_GAIN) * self._best(trials)[1].bottleneck_s
        ordered: OrderedPlan = study("ordered_plan")(
            costs,
            self.needs,
            to_beat_s,
            replace(goal, latency_states=0, most_cells=_most_cells(goal)),
            study("OrderLimits")(_MOST_DOWNSETS, _MOST_ORDER_WORK),
        )
        how = ", with layers in another order than the file's"
        return self._if_worth_it(trials, ordered.plan, ordered.bottleneck_s, how, ordered.lower_s)

    def _with_splits(self, costs: Costs, whole: PlanSolution, handover_s: float) -> PlanSolution:
        return split_plan(costs, whole, replace(self.goal, most_cells=_most_cells(self.goal)), handover_s=handover_s)

    def _split(self, trials: Trials, costs: Costs, plan_solution: PlanSolution, handover_s: float) -> Proposal | None:
        """Propose layers in shards if that promises more than the best measured plan; only if no other plan does."""
        plan = plan_solution.plan
        if plan is None or not plan.splits:
            return None
        predicted = team_costs(costs)
        latency = self.goal.objective == "latency"
        told_s = alone_s(predicted, plan, handover_s) if latency else predicted.rate(plan).bottleneck_s
        how = f", with {layers_in_words(sorted(split_spans(plan)))} in shards"
        return self._if_worth_it(trials, plan, told_s, how, plan_solution.lower_bound_s)

    def _few_enough(self, counts: Sequence[int]) -> bool:
        """Whether a step takes a fraction of a second with kinds of `counts` places."""
        *others, _ = sorted(counts)
        return math.prod(count + 1 for count in others) * (len(self.costs.legal_cuts) + 2) <= _MOST_CELLS

    def _why_none(self, believed: Learnt, solution: PlanSolution) -> str:
        kinds = len(kinds_of(believed.costs))
        if solution.is_partial:
            return f"places of {kinds} kinds are too many to look at all other plans"
        unlike = f", places taken as of {kinds} kinds though more of them differ" if believed.crowded else ""
        if self.goal.objective == "energy":
            return f"no other promises to take {100 * LEAST_GAIN:g}% less energy{unlike}"
        if not can_list(stage_costs(believed.costs), len(believed.costs.places)):
            worse = f"the best by the corrected costs does not promise to be {100 * LEAST_GAIN:g}% faster"
            return f"{worse}{unlike}; plans within the costs' errors are too many to look at"
        return f"no other promises to be {100 * LEAST_GAIN:g}% faster{unlike}"

    def _best(self, trials: Trials) -> tuple[Plan, Measurement]:
        """The best trial; a later one has to be better beyond noise."""
        return reduce(lambda a, b: b if b[1].is_better_than(a[1], self.goal.objective) else a, trials.done)

    def _final(self, trials: Trials, why: str, solution: PlanSolution) -> Proposal:
        best, count = self._best(trials)[0], len(trials.done)
        return Proposal(best, f"best of {count} plan{'s' * (count > 1)}; {why}", True, solution.lower_bound_s)


def _better_with_least_doubt(
    view: Outlook, measured: Sequence[tuple[Plan, Measurement]], objective: Objective
) -> tuple[Plan, float] | None:
    """The plan that beats all measured ones with the least of `DOUBTS`, and that doubt; None: no plan with any."""

    def value(stage_s: StageSeconds, plan: Plan, measurement: Measurement) -> float:
        told_s = view.value(stage_s, plan) if plan.is_chain else math.inf
        return told_s if told_s < math.inf else measurement.value(objective)

    @cache
    def better(doubt: float) -> Plan | None:
        stage_s = view.at_best_s(doubt)
        to_beat_s = min(value(stage_s, plan, measurement) for plan, measurement in measured)
        return view.plan_within((1 - LEAST_GAIN) * to_beat_s, stage_s)

    at = bisect_left(DOUBTS, True, key=lambda doubt: better(doubt) is not None)
    plan = better(DOUBTS[at]) if at < len(DOUBTS) else None
    return None if plan is None else (plan, DOUBTS[at])


def _handover_s(costs: Costs, done: Sequence[tuple[Plan, Measurement]]) -> float:
    """Hand-over between stages of this host: latency beyond the stages' times, for each stage, in the best plan."""
    beyond_s = [
        (measurement.alone_s - math.fsum(measurement.service_s)) / len(plan.stages)
        for plan, measurement in done
        if measurement.alone_s is not None
        and measurement.can_run
        and plan.is_chain
        and costs.far.isdisjoint(plan.places)
    ]
    return max(0.0, min(beyond_s, default=HANDOVER_S))


def _most_cells(goal: Goal) -> int:
    if goal.objective == "latency":
        return _MOST_LATENCY_CELLS
    return _MOST_CELLS if goal.replicate else _MOST_PLAIN_CELLS


def guided(
    costs: Costs,
    start: Plan | None = None,
    goal: Goal = Goal(),  # noqa: B008 (it is frozen)
    *,
    needs: tuple[frozenset[int], ...] = (),
) -> GuidedTuner:
    """Make a tuner that begins with `start`, a plan that passes `verify.py`; None: the best plan by `costs`.

    `goal`: of each step, whose search is limited further. `needs` (layers,): the earlier layers of which each layer
    reads a tensor. If they are known and copies are allowed, plans may have layers in another order, and for latency
    branches side by side. Raises ValueError if `start` is None and no plan can run by `costs`.
    """
    exact = exact_plan(costs, goal if start is None else replace(goal, most_cells=_most_cells(goal)))
    if start is None:
        exact = split_plan(costs, exact, goal)
        start = exact.plan
    if start is None:
        raise ValueError(f"costs without a plan: {exact.reason}")
    bound_s = None if costs.splits.splittables else exact.lower_bound_s
    return GuidedTuner(costs, start, bound_s, goal, needs)
