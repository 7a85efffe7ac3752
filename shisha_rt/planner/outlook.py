"""Plans that could still turn out to be good, if stages are as far below their predicted times as the doubt allows.

Errors of stages on different places are independent, but those of one place's layers are not: a stage's deviation is
no sum over its layers. So costs of layers cannot express such times. The searches of `exact` still find these plans if
given the times of whole stages, as they do not ask for those of layers. Transfer times of links count as known.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shisha_rt.arrays import Floats
from shisha_rt.costs.team_costs import team_costs
from shisha_rt.plan.plan import Plan, Stage, Team
from shisha_rt.plan.rate import latency_s, rate_of
from shisha_rt.planner.belief import Belief
from shisha_rt.planner.chains import TOLERANCE, StageSeconds, TeamKind, chains, computing_s, over_links, team_kinds
from shisha_rt.planner.goal import Goal
from shisha_rt.planner.kinds import StageCosts, stage_costs
from shisha_rt.planner.learning import Learnt
from shisha_rt.planner.need import need
from shisha_rt.planner.over_hosts import over_hosts
from shisha_rt.planner.quickest import quickest


@dataclass(frozen=True, slots=True, eq=False)
class Outlook:
    """Which plans of a space could still turn out to be good.

    `predicted_s` (teams, positions, positions): seconds that the stage from begin to end computes, inf where no such
    stage can run. `deviation` is relative to `predicted_s`.
    """

    model: StageCosts
    teams: tuple[TeamKind, ...]
    predicted_s: Floats
    deviation: Floats
    goal: Goal

    def at_best_s(self, doubt: float) -> StageSeconds:
        """Stage times with computing `doubt` deviations below the prediction, on a logarithmic scale.

        On that scale no time becomes negative; for small deviations it makes no difference. A longer stage computes no
        less.
        """
        ends = np.triu(np.ones(self.predicted_s.shape[1:], bool), 1)
        at_best_s = np.where(ends, self.predicted_s * np.exp(-doubt * self.deviation), 0.0)
        computing_s = np.where(ends, np.maximum.accumulate(at_best_s, axis=2), np.inf)
        return over_links(self.model, self.teams, computing_s)

    def value(self, seconds: StageSeconds, plan: Plan) -> float:
        """Value of a chain for the objective, if stages take `seconds`."""
        starts = {layer: position for position, layer in enumerate(self.model.starts)}
        number_of = {team: number for number, team in enumerate(self.teams)}
        kind_of = {self.model.costs.places[at].name: k for k, kind in enumerate(self.model.kinds) for at in kind.places}

        def time_s(floats: Floats, stage: Stage, team: Team) -> float:
            number = number_of.get(TeamKind(kind_of[team[0]], len(team)))
            return math.inf if number is None else float(floats[number, starts[stage.first], starts[stage.last + 1]])

        busy_s, alone_s = (
            [[time_s(drawn_s, stage, team) for team in stage.teams] for stage in plan.stages] for drawn_s in seconds
        )
        if self.goal.objective == "latency":
            return latency_s(plan, alone_s)
        loads = team_costs(self.model.costs).link_loads(plan, busy_s)
        return max(rate_of(plan, busy_s).bottleneck_s, max(loads.values(), default=0.0))

    def plan_within(self, bound_s: float, seconds: StageSeconds) -> Plan | None:
        """Find a plan of at most `bound_s` >= 0, if stages take `seconds`.

        None: there is none, or the one found is slower, as its places share a link, or the space is too large to list.
        """
        space = chains(self.model, self.goal, seconds=seconds)
        if space is None:
            return None
        if self.goal.objective == "latency":
            quick = quickest(space, math.inf, bound_s, lambda: False)
            return space.plan(quick.stages) if quick is not None and quick.stages else None
        table = need(space, bound_s, lambda: False)
        if table is None or not table.is_whole:
            return None
        plan = over_hosts(self.model.costs, space.plan(table.trace()))
        is_shared = bool(self.model.costs.link_of)
        return plan if not is_shared or self.value(seconds, plan) <= bound_s * (1 + TOLERANCE) else None


def outlook(learnt: Learnt, goal: Goal) -> Outlook:
    """Build the outlook for costs that `exact_plan` finds a proven plan for."""
    model = stage_costs(learnt.costs)
    teams = team_kinds(model, goal)
    predicted_s = computing_s(model, teams)
    starts = np.array(model.starts)
    deviation_s = np.stack([_belief(learnt, model, team).deviation_s(starts) for team in teams])
    known = np.isfinite(predicted_s) & (predicted_s > 0)
    return Outlook(
        model=model,
        teams=teams,
        predicted_s=predicted_s,
        deviation=np.divide(deviation_s, predicted_s, out=np.zeros_like(predicted_s), where=known),
        goal=goal,
    )


def _belief(learnt: Learnt, model: StageCosts, team: TeamKind) -> Belief:
    """The belief about such teams of the first places of the kind for which there is one."""
    leads = ((place, team.size) for place in model.kinds[team.kind].places)
    return next(learnt.beliefs[lead] for lead in leads if lead in learnt.beliefs)
