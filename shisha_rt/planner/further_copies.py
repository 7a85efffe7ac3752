"""Use places that a search has left out: each in turn becomes a further copy of the slowest stage."""

from __future__ import annotations

import heapq
import math
from dataclasses import replace
from functools import cache

from shisha_rt.costs.costs import Costs
from shisha_rt.costs.team_costs import team_costs
from shisha_rt.plan.plan import Plan, Team


def with_further_copies(costs: Costs, plan: Plan) -> Plan:
    """Add copies to `plan`, a chain whose stages have teams of their own, until no place left is of use."""
    predicted = team_costs(costs)
    used = set(plan.places)
    free: dict[int, list[str]] = {}
    for place in reversed(costs.places):
        if place.name not in used:
            free.setdefault(predicted.kind_of[place.name], []).append(place.name)

    @cache
    def seconds(index: int, kind: int) -> float:
        """Seconds of the stage on a free place of the kind."""
        alone = replace(plan.stages[index], teams=((free[kind][-1],),))
        return predicted.team_s(Plan((alone,)))[0][0]

    teams: list[list[tuple[float, Team]]] = [
        list(zip(times_s, stage.teams, strict=True))
        for stage, times_s in zip(plan.stages, predicted.team_s(plan), strict=True)
    ]
    alike = [predicted.kind_of[stage.place] for stage in plan.stages]
    rates = [sum(1 / time_s if time_s else math.inf for time_s, _ in team) for team in teams]
    slowest = [(rate, index) for index, rate in enumerate(rates)]
    heapq.heapify(slowest)
    while slowest:
        rate, index = heapq.heappop(slowest)
        kinds = [kind for kind, names in free.items() if names and (costs.mixed or alike[index] == kind)]
        kind = min(kinds, key=lambda kind: seconds(index, kind), default=None)
        if kind is None or not 0 < seconds(index, kind) < math.inf:
            break
        time_s = seconds(index, kind)
        teams[index].append((time_s, (free[kind].pop(),)))
        heapq.heappush(slowest, (rate + 1 / time_s, index))
    stages = [
        replace(stage, teams=tuple(team for _, team in sorted(of_teams, key=lambda of_team: of_team[0])))
        for stage, of_teams in zip(plan.stages, teams, strict=True)
    ]
    return Plan(tuple(stages))
