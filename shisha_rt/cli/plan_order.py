"""`shisha-rt plan` and the order of layers: the gain of an order other than the file's, and the best order's plan."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal

from shisha_rt.cli.options import refuse_given
from shisha_rt.errors import BadInput, Error
from shisha_rt.outcome import Outcome
from shisha_rt.planner.strategies import WITH_COPIES, StrategyName
from shisha_rt.show.plan_answer import OrderFound, PlanAim, PlanAnswer, PlanProblem
from shisha_rt.studies import study

if TYPE_CHECKING:
    from shisha_rt.papers.order.ordered_plan import OrderedPlan

LayerOrder = Literal["file", "best"]

_GLANCE_S: Final = 1.0
"""Time to estimate the gain of a different order, before a plan of the file's order is printed."""
_SEARCH_S: Final = 20.0
_MOST_DOWNSETS: Final = 6000
_MOST_WORK: Final = 1e9
"""Limits of a search that the user has asked for (`--order best`), higher than those of the estimate."""


def refuse_foreign_order(order: LayerOrder, strategy: StrategyName, aim: PlanAim) -> None:
    """Raises BadInput for options with which only the file's order can be planned."""
    if order == "file":
        return
    if strategy != "exact":
        raise BadInput(
            f"--order {order}: not with --strategy {strategy}, expected --strategy exact", Error.OPTIONS_CLASH
        )
    clashing = {f"--objective {aim.objective}": aim.objective != "throughput", "--split": aim.split}
    for option, is_given in clashing.items():
        refuse_given({f"--order {order}": is_given}, f"not with {option}, expected one of the two")


def check_order(order: LayerOrder, problem: PlanProblem, source: str) -> None:
    """Raises BadInput if costs of a different order are not known; `source` names the model or the costs."""
    reason = _why_unknown(problem)
    if order != "file" and reason is not None:
        raise BadInput(
            f"{source}: --order {order}: {reason}; expected costs that tell of any order", Error.WRONG_OPTION
        )


def with_order(
    plan_answer: PlanAnswer, order: LayerOrder, strategy: StrategyName, most_stages: int | None, until_s: float
) -> PlanAnswer:
    """The answer for the file's order, with the gain of a different one; or with `best`, the plan of the best order.

    Ends by `until_s` of the monotonic clock.
    """
    reason = _why_not(plan_answer, strategy)
    costs = plan_answer.problem.costs
    if reason is not None or costs is None:
        return replace(plan_answer, order=OrderFound(order, reason=reason))
    from shisha_rt.planner.goal import DEFAULT_LATENCY_STATES, Goal

    searched = order == "best"
    until_s = min(until_s, time.monotonic() + (_SEARCH_S if searched else _GLANCE_S))
    goal = Goal(
        replicate=plan_answer.aim.replicate,
        most_stages=most_stages,
        latency_states=DEFAULT_LATENCY_STATES if searched else 0,
        should_stop=lambda: time.monotonic() >= until_s,
    )
    limits = study("OrderLimits")(_MOST_DOWNSETS, _MOST_WORK) if searched else study("OrderLimits")()
    file_s = math.inf if plan_answer.rate is None else plan_answer.rate.bottleneck_s
    ordered = study("ordered_plan")(costs, plan_answer.problem.needs, file_s, goal, limits)
    order_found = _told(plan_answer, order, ordered)
    return _reordered(plan_answer, ordered, order_found) if searched else replace(plan_answer, order=order_found)


def _told(plan_answer: PlanAnswer, order: LayerOrder, ordered: OrderedPlan) -> OrderFound:
    if plan_answer.rate is None:
        none = "no plan has room for the layers in the file's order"
        return OrderFound(order, reason=none if ordered.plan is None else f"{none}, but one does in another")
    file_s = plan_answer.rate.bottleneck_s
    gain = file_s / ordered.bottleneck_s if ordered.bottleneck_s else 1.0
    most = 1.0 if ordered.is_proven and ordered.plan is None else file_s / ordered.lower_s if ordered.lower_s else None
    return OrderFound(order, gain, gain if ordered.is_proven else most)


def _reordered(plan_answer: PlanAnswer, ordered: OrderedPlan, order_found: OrderFound) -> PlanAnswer:
    """The answer with the plan of the best order found; what it proves is proven for all orders."""
    from shisha_rt.costs.costs_evaluator import CostsEvaluator

    if plan_answer.plan.stages or ordered.plan is not None:
        plan_answer = replace(
            plan_answer,
            aim=replace(plan_answer.aim, space=f"{plan_answer.aim.space}, over any order of layers"),
            outcome=Outcome.OPTIMAL if ordered.is_proven else Outcome.FEASIBLE,
            lower_bound_s=ordered.bottleneck_s if ordered.is_proven else ordered.lower_s,
            latency_proven=False,
            reason=None,
            order=order_found,
        )
    if ordered.plan is None:
        return replace(plan_answer, order=order_found)
    problem = plan_answer.problem
    assert problem.costs is not None  # the caller has seen to it
    measured = CostsEvaluator(problem.costs, problem.needs).measurement_of(ordered.plan)
    return replace(
        plan_answer, plan=ordered.plan, team_s=measured.team_s or [(taken_s,) for taken_s in measured.service_s]
    )


def _why_not(plan_answer: PlanAnswer, strategy: StrategyName) -> str | None:
    if strategy not in WITH_COPIES:
        return f"not looked for with --strategy {strategy}"
    if plan_answer.aim.objective == "latency":
        return "not looked for with --objective latency"
    if plan_answer.aim.split:
        return "not looked for with --split"
    return _why_unknown(plan_answer.problem)


def _why_unknown(problem: PlanProblem) -> str | None:
    from shisha_rt.costs.costs import why_no_other_order

    return None if problem.costs is None else why_no_other_order(problem.costs, problem.needs)
