"""Spread stages over hosts: places of hosts with equal links are alike, but those of one host share its link.

The plan says which kind of place each stage is on. Here the host is chosen, so that the busiest link carries as little
as possible: places that transfer most come first, each to the host whose link stays least busy; then pairs are swapped.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from shisha_rt.arrays import Floats
from shisha_rt.costs.alike import among, kinds_of
from shisha_rt.costs.costs import Costs
from shisha_rt.costs.team_costs import TeamCosts, team_costs
from shisha_rt.plan.plan import Plan

_MOST_EXCHANGES: Final = 100
_NOTHING: Final = np.zeros(2)


def over_hosts(costs: Costs, plan: Plan) -> Plan:
    """Return the plan, moved to other places of the same kinds if that lowers the load of the busiest link."""
    if not any(place in costs.link_of for place in plan.places):
        return plan
    predicted = team_costs(costs)
    loads = _loads(predicted, plan)
    spread = _Spread(predicted, {}, {link.host: np.zeros(2) for link in costs.links})
    for place in sorted(loads, key=lambda place: -float(loads[place].max())):
        able = [candidate for candidate in spread.alike(place) if candidate not in spread.holds]
        new = min(able, key=lambda candidate: spread.slowest_with(candidate, loads[place]))
        spread.put(new, place, loads[place])
    _exchange(spread, loads)
    on = {old: new for new, old in spread.holds.items() if old}
    teams = (tuple(tuple(on.get(place, place) for place in team) for team in stage.teams) for stage in plan.stages)
    moved = Plan(tuple(replace(stage, teams=team) for stage, team in zip(plan.stages, teams, strict=True)))
    return moved if predicted.rate(moved).link_s < predicted.rate(plan).link_s else plan


@dataclass(frozen=True, slots=True, eq=False)
class _Spread:
    """`holds`: the place of the plan that each place stands for, "" none. `carried` (2,): seconds a frame that each
    host's link is busy, there and back.
    """

    by_costs: TeamCosts
    holds: dict[str, str]
    carried: dict[str, Floats]

    def alike(self, place: str) -> list[str]:
        kind_of, costs = self.by_costs.kind_of, self.by_costs.costs
        return [other.name for other in costs.places if kind_of[other.name] == kind_of[place]]

    def host(self, place: str) -> str:
        return self.by_costs.costs.link_of[place].host

    def slowest_with(self, place: str, more: Floats) -> float:
        return float((self.carried[self.host(place)] + more).max())

    def put(self, place: str, old: str, more: Floats) -> None:
        self.holds[place] = old
        self.carried[self.host(place)] = self.carried[self.host(place)] + more


def _loads(predicted: TeamCosts, plan: Plan) -> dict[str, Floats]:
    """(2,): link seconds a frame, there and back, of each place in use that has a link."""
    loads: defaultdict[str, Floats] = defaultdict(lambda: _NOTHING)
    for place, there_s, back_s in predicted.place_loads(plan, predicted.team_s(plan)):
        loads[place] = loads[place] + (there_s, back_s)
    return dict(loads)


def _exchange(spread: _Spread, loads: dict[str, Floats]) -> None:
    """Swap what a place on the busiest link and an alike place on another stand for, while the busier link gains."""
    holds = spread.holds
    for _ in range(_MOST_EXCHANGES):
        slowest = max(spread.carried, key=lambda host: float(spread.carried[host].max()))
        best_s, best = float(spread.carried[slowest].max()), ("", "", _NOTHING)
        for candidate in [place for place in holds if spread.host(place) == slowest]:
            for other in spread.alike(candidate):
                if spread.host(other) != slowest:
                    less = loads.get(holds[candidate], _NOTHING) - loads.get(holds.get(other, ""), _NOTHING)
                    both_s = max(spread.slowest_with(candidate, -less), spread.slowest_with(other, less))
                    if both_s < best_s:
                        best_s, best = both_s, (candidate, other, less)
        candidate, other, less = best
        if not candidate:
            return
        own, others = holds[candidate], holds.get(other, "")
        spread.put(candidate, others, -less)
        spread.put(other, own, less)


def with_parts_of_links(costs: Costs) -> Iterator[Costs]:
    """Yield costs with fewer and fewer places on each host (all, half, ..., one), each with an equal part of its link.

    `costs` have places with links. Chains without copies are no slower with the link shared.
    """
    mixed = costs.mixed and len(kinds_of(costs)) <= 2  # decided for all places: those kept may be of fewer kinds
    seconds = {place.name: _seconds(costs, at) for at, place in enumerate(costs.places)}
    far = sorted(costs.link_of, key=seconds.__getitem__)
    most = max(Counter(costs.link_of[place].host for place in far).values())
    while most:
        used: Counter[str] = Counter()
        left_out = set()
        for place in far:
            host = costs.link_of[place].host
            if used[host] < most:
                used[host] += 1
            else:
                left_out.add(place)
        kept = [place.name for place in costs.places if place.name not in left_out]
        fewer = among(costs, kept, [1.0] * len(kept))
        links = tuple(
            replace(
                link,
                there=replace(link.there, bytes_per_s=link.there.bytes_per_s / used[link.host]),
                back=replace(link.back, bytes_per_s=link.back.bytes_per_s / used[link.host]),
            )
            for link in fewer.links
        )
        yield replace(fewer, links=links, mixed=mixed)
        most //= 2


def _seconds(costs: Costs, place: int) -> float:
    """Seconds of all layers on a place; inf if it cannot run them all."""
    whole_s = float(costs.time_s[:, place].sum())
    return math.inf if math.isnan(whole_s) else whole_s
