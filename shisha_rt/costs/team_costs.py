"""What the stages of any plan take on each of their teams, by the costs of layers.

What is told of a team holds for as many other places of the same kind; of no other team is it known what it takes, so
it runs nothing. A team's memory is its lead's, which holds the weights of all its stages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from shisha_rt.arrays import Floats
from shisha_rt.costs.alike import kinds_of
from shisha_rt.costs.costs import Costs
from shisha_rt.costs.split_costs import shard_bytes
from shisha_rt.graph.spans import Span
from shisha_rt.plan.plan import Plan, Stage, Team
from shisha_rt.plan.split import Split


@dataclass(frozen=True, slots=True, eq=False)
class TeamCosts:
    """Made by `team_costs`. `kind_of` each place: the number of those that nothing tells apart.

    `time_s` (layers,) seconds for each (kind, number of places) that can be a team, nan where it cannot run a layer.
    """

    costs: Costs
    kind_of: Mapping[str, int]
    time_s: Mapping[tuple[int, int], Floats]

    def team_s(self, plan: Plan) -> tuple[tuple[float, ...], ...]:
        """(stages, teams) seconds, entries included; inf where a team cannot run its stage or has not the room."""
        full = {lead for lead in plan.leads if not self._fits(plan, lead)}
        known: dict[tuple[tuple[Span, ...], Split | None, int, int], float] = {}

        def seconds(stage: Stage, team: Team) -> float:
            if team[0] in full:
                return math.inf
            if stage.split is not None and not stage.split.joins:
                return self.shard_s(stage.split, team)
            key = stage.work, stage.split, self.kind_of[team[0]], len(team)
            if key not in known:
                known[key] = self._stage_s(*key)
            if stage.split is not None:
                span_s = self.span_s(team, *stage.split.span)
                return known[key] + self.costs.splits.join_s(stage.split.span, stage.split.axis, span_s, team[0])
            return known[key]

        return tuple(tuple(seconds(stage, team) for team in stage.teams) for stage in plan.stages)

    def span_s(self, team: Team, first: int, last: int) -> float:
        """What layers `first` to `last` (inclusive) take by themselves, without an entry; inf where it cannot."""
        time_s = self.time_s.get((self.kind_of[team[0]], len(team)))
        total_s = math.nan if time_s is None else math.fsum(time_s[first : last + 1].tolist())
        return math.inf if math.isnan(total_s) else total_s

    def shard_s(self, split: Split, team: Team) -> float:
        """What a shard takes, its entry included; inf where the team cannot run its layers."""
        first, last = split.span
        entry_s = float(self.costs.transfer_s[first - 1]) if first else 0.0
        shard_s = self.costs.splits.shard_s(split, self.span_s(team, first, last), entry_s, team[0])
        return math.inf if math.isnan(shard_s) else shard_s

    def _stage_s(self, work: tuple[Span, ...], split: Split | None, kind: int, size: int) -> float:
        """A run pays for its entry unless the layer before it is of the same stage. A join begins behind the split."""
        time_s = self.time_s.get((kind, size))
        if time_s is None:
            return math.inf
        if split is not None:
            (_, last), *further = work
            work = (((split.span[1] + 1, last),) if last > split.span[1] else ()) + tuple(further)
        ended = {last for _, last in work}
        entries = [float(self.costs.transfer_s[first - 1]) for first, _ in work if first and first - 1 not in ended]
        # fsum: independent of the order of summing, so that equal stages have equal times to the last bit.
        layers_s = (time_s[first : last + 1].tolist() for first, last in work)
        total_s = math.fsum([*entries, *(time for run in layers_s for time in run)])
        return math.inf if math.isnan(total_s) else total_s

    def _fits(self, plan: Plan, lead: str) -> bool:
        memory_bytes = self.costs.places[self.costs.place_index(lead)].memory_bytes
        if memory_bytes is None:
            return True
        stages = [stage for stage in plan.stages if lead in stage.leads]
        live_bytes = max(self.costs.layers[layer].live_bytes for stage in stages for layer in stage.layers)
        return sum(map(self._weight_bytes, stages)) + live_bytes <= memory_bytes

    def _weight_bytes(self, stage: Stage) -> int:
        layers = self.costs.layers
        whole = sum(layers[layer].weight_bytes for layer in stage.layers)
        if stage.split is None:
            return whole
        first, last = stage.split.span
        span_bytes = sum(layer.weight_bytes for layer in layers[first : last + 1])
        return whole - span_bytes + shard_bytes(stage.split, span_bytes)


def team_costs(costs: Costs) -> TeamCosts:
    """What can be a team by `costs`: each place by itself, and what is told of several."""
    kinds = kinds_of(costs)
    kind_of = {costs.places[index].name: kind for kind, indices in enumerate(kinds) for index in indices}
    time_s = {(kind, 1): np.asarray(costs.time_s[:, indices[0]]) for kind, indices in enumerate(kinds)}
    for team in costs.teams:
        if len({kind_of[place] for place in team.places}) == 1:
            time_s.setdefault((kind_of[team.places[0]], len(team.places)), team.time_s)
    return TeamCosts(costs, kind_of, time_s)
