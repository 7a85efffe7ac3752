"""Predicted seconds of a plan's stages on each of their teams, from the costs of layers.

Known times of a team hold for every team of the same number of places of the same kind. A team without known times
counts as unable to run anything. A team's memory is its lead's, which holds the weights of all the team's stages.

A place on another host is a team of one, and has no shards. It receives, computes and sends at the same time: it is
busy for the longest of the three, and a frame by itself takes their sum (`links.py`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from shisha_rt.arrays import Floats
from shisha_rt.costs.alike import kinds_of
from shisha_rt.costs.costs import Costs
from shisha_rt.costs.room import held_bytes
from shisha_rt.costs.split_costs import shard_bytes
from shisha_rt.model.spans import Span
from shisha_rt.model.split import Split, Splittable
from shisha_rt.plan.energy import frame_joules
from shisha_rt.plan.plan import Plan, Stage, Team
from shisha_rt.plan.rate import Rate, TeamSeconds, rate_of, team_shares


@dataclass(frozen=True, slots=True, eq=False)
class TeamCosts:
    """Made by `team_costs`. `kind_of`: the number of each place's kind; places of a kind are interchangeable.

    `time_s`: (layers,) seconds for each (kind, number of places) that can be a team; nan: it cannot run the layer.
    `batch_s`: (layers,) seconds for each frame of a batch, for each (kind, batch size) that is known.
    """

    costs: Costs
    kind_of: Mapping[str, int]
    time_s: Mapping[tuple[int, int], Floats]
    batch_s: Mapping[tuple[int, int], Floats]

    def rate(self, plan: Plan, team_s: TeamSeconds | None = None) -> Rate:
        """Predict the rate of a plan.

        `team_s`: measured times, used instead of predicted ones; unloaded latencies are scaled by the same ratios.
        """
        predicted_s = self.team_s(plan)
        taken_s = predicted_s if team_s is None else team_s
        rate = rate_of(plan, taken_s)
        # A frame by itself does not take its share of a batch's time.
        if self.costs.link_of or any(stage.batch > 1 for stage in plan.stages):
            alone_s = [_scaled(*of_stage) for of_stage in zip(self.alone_s(plan), taken_s, predicted_s, strict=True)]
            loads_s = self.link_loads(plan, taken_s)
            busiest = max(loads_s, key=loads_s.__getitem__, default="")
            rate = replace(rate_of(plan, taken_s, alone_s=alone_s), link_s=loads_s.get(busiest, 0.0), link=busiest)
        power_w = self.costs.power_w
        return replace(rate, energy_j=frame_joules(plan, taken_s, power_w)) if power_w else rate

    def link_loads(self, plan: Plan, team_s: TeamSeconds) -> Mapping[str, float]:
        """Seconds per frame that each direction of each link in use ("to far0", "from far0") is busy.

        `team_s`: (stages, teams) seconds a frame, from which the teams' shares of the frames follow.
        """
        loads_s: defaultdict[str, float] = defaultdict(float)
        for place, there_s, back_s in self.place_loads(plan, team_s):
            host = self.costs.link_of[place].host
            loads_s[f"to {host}"] += there_s
            loads_s[f"from {host}"] += back_s
        return loads_s

    def place_loads(self, plan: Plan, team_s: TeamSeconds) -> Iterator[tuple[str, float, float]]:
        """Yield (place, seconds there, seconds back) per frame, for each stage on each place behind a link."""
        costs = self.costs
        for stage, times_s in zip(plan.stages, team_s, strict=True) if costs.link_of else ():
            for (lead, *_), share in zip(stage.teams, team_shares(times_s), strict=True):
                link = costs.link_of.get(lead)
                if link is not None:
                    there_bytes, back_bytes = costs.crossings.of(stage.work)
                    there_s, back_s = there_bytes / link.there.bytes_per_s, back_bytes / link.back.bytes_per_s
                    yield lead, share * there_s, share * back_s

    def team_s(self, plan: Plan) -> tuple[tuple[float, ...], ...]:
        """(stages, teams): seconds that a team is busy with a frame, including entry costs.

        inf: the team cannot run the stage, or lacks the memory.
        """
        return self._over_links(plan, self._computing_s(plan, [stage.batch for stage in plan.stages]), max)

    def alone_s(self, plan: Plan) -> tuple[tuple[float, ...], ...]:
        """(stages, teams): seconds of a frame with no other in flight."""
        return self._over_links(plan, self._computing_s(plan, [1] * len(plan.stages)), math.fsum)

    def _over_links(
        self,
        plan: Plan,
        computing_s: tuple[tuple[float, ...], ...],
        combine: Callable[[Iterable[float]], float],
    ) -> tuple[tuple[float, ...], ...]:
        """`computing_s`, where `combine` adds the transfers of places behind a link."""
        costs = self.costs
        if not costs.link_of:
            return computing_s

        def seconds(stage: Stage, team: Team, own_s: float) -> float:
            link = costs.link_of.get(team[0])
            if link is None:
                return own_s
            there_bytes, back_bytes = costs.crossings.of(stage.work)
            return combine((link.there.seconds(there_bytes), own_s, link.back.seconds(back_bytes)))

        return tuple(
            tuple(seconds(stage, team, own_s) for team, own_s in zip(stage.teams, of_team, strict=True))
            for stage, of_team in zip(plan.stages, computing_s, strict=True)
        )

    def _computing_s(self, plan: Plan, frames: Sequence[int]) -> tuple[tuple[float, ...], ...]:
        """(stages, teams): seconds a frame, without transfers. `frames` (stages,): each stage's batch size."""
        full = self._full(plan)
        far = self.costs.far
        known: dict[tuple[tuple[Span, ...], Split | None, int, int, int], float] = {}

        def seconds(stage: Stage, team: Team, frames: int) -> float:
            if team[0] in full or (team[0] in far and (len(team) > 1 or stage.split is not None)):
                return math.inf
            if stage.split is not None and not stage.split.joins:
                return self.shard_s(stage.split, team)
            key = stage.work, stage.split, self.kind_of[team[0]], len(team), frames
            if key not in known:
                known[key] = self._stage_s(*key)
            if stage.split is not None:
                span_s = self.span_s(team, *stage.split.span)
                return known[key] + self.costs.splits.join_s(stage.split.span, stage.split.axis, span_s, team[0])
            return known[key]

        return tuple(
            tuple(seconds(stage, team, batch) for team in stage.teams)
            for stage, batch in zip(plan.stages, frames, strict=True)
        )

    def span_s(self, team: Team, first: int, last: int) -> float:
        """Seconds of layers `first` to `last` (inclusive) on a team, without entry cost; inf if it cannot run them."""
        time_s = self.time_s.get((self.kind_of[team[0]], len(team)))
        total_s = math.nan if time_s is None else math.fsum(time_s[first : last + 1].tolist())
        return math.inf if math.isnan(total_s) else total_s

    def shard_s(self, split: Split, team: Team) -> float:
        """Seconds of a shard, including its entry cost; inf if the team cannot run its layers or is on another host."""
        if team[0] in self.costs.far:
            return math.inf
        shard_s = self.costs.splits.scale(split.span, team[0]).at(*self.shard_terms_s(split, team))
        return math.inf if math.isnan(shard_s) else shard_s

    def shard_terms_s(self, split: Split, team: Team) -> tuple[float, float]:
        """Seconds of a shard before correction: the fixed ones, and those for its units (`SplitCosts.terms_s`)."""
        first, last = split.span
        entry_s = float(self.costs.entry_s[first])
        return self.costs.splits.terms_s(split, self.span_s(team, first, last), entry_s, team[0])

    def share_s(self, splittable: Splittable, units: int, place: str) -> float:
        """Seconds of `units` units of a splittable on a place. All its units are the unsplit layers, not a shard."""
        if 0 < units < splittable.units:
            return self.shard_s(splittable.shard(units), (place,))
        return self.span_s((place,), *splittable.span) if units else 0.0

    def share_bytes(self, splittable: Splittable, units: int) -> int:
        """Bytes of weights that a place holds for `units` units of a splittable."""
        span_bytes = self.costs.weight_bytes(*splittable.span)
        if 0 < units < splittable.units:
            return shard_bytes(splittable.shard(units), span_bytes)
        return span_bytes if units else 0

    def _stage_s(self, work: tuple[Span, ...], split: Split | None, kind: int, size: int, frames: int) -> float:
        """Seconds a frame of a stage. The split layers with which the work of a join begins do not count.

        A run of layers has its entry cost unless the stage has the layer before the run, too. No times are known for
        batches of a team of several places: their frames count as single frames.
        """
        batch = self.costs.batch_of(frames) if size == 1 and split is None else None
        time_s = self.time_s.get((kind, size)) if batch is None else self.batch_s[kind, batch.frames]
        if time_s is None:
            return math.inf
        if split is not None:
            (_, last), *further = work
            work = (((split.span[1] + 1, last),) if last > split.span[1] else ()) + tuple(further)
        ended = {last for _, last in work}
        entries = [float(self.costs.entry_s[first]) for first, _ in work if first - 1 not in ended]
        # fsum: independent of the order of summing, so that equal stages have equal times to the last bit.
        layers_s = (time_s[first : last + 1].tolist() for first, last in work)
        total_s = math.fsum([*entries, *(time for run in layers_s for time in run)])
        return math.inf if math.isnan(total_s) else total_s

    def _full(self, plan: Plan) -> set[str]:
        """The leads that lack memory for all their stages. Bytes are summed per pool: there may be 10,000 leads."""
        stages_of: dict[str, list[int]] = {}
        for index, stage in enumerate(plan.stages):
            for lead in stage.leads:
                stages_of.setdefault(lead, []).append(index)
        need_bytes = {
            same_stages: self._need_bytes(plan, same_stages) for same_stages in set(map(tuple, stages_of.values()))
        }
        place_of = self.costs.place_index
        return {
            lead
            for lead, indices in stages_of.items()
            if need_bytes[tuple(indices)] > self.costs.places[place_of(lead)].room_bytes
        }

    def _need_bytes(self, plan: Plan, indices: tuple[int, ...]) -> int:
        stages = [plan.stages[index] for index in indices]
        live_bytes = (
            stage.batch * self.costs.live_bytes(first, last) for stage in stages for first, last in stage.work
        )
        return held_bytes(map(self._weight_bytes, stages), live_bytes)

    def _weight_bytes(self, stage: Stage) -> int:
        whole = sum(self.costs.weight_bytes(first, last) for first, last in stage.work)
        if stage.split is None:
            return whole
        first, last = stage.split.span
        span_bytes = self.costs.weight_bytes(first, last)
        return whole - span_bytes + shard_bytes(stage.split, span_bytes)


def _scaled(alone_s: Iterable[float], taken_s: Iterable[float], predicted_s: Iterable[float]) -> tuple[float, ...]:
    """(teams,): unloaded latencies, scaled by measured over predicted times."""

    def seconds(alone: float, taken: float, predicted: float) -> float:
        if taken == predicted:
            return alone
        return alone * taken / predicted if 0 < predicted < math.inf else taken

    return tuple(map(seconds, alone_s, taken_s, predicted_s))


def plan_period_s(costs: Costs, plan: Plan | None) -> float:
    """Predicted seconds a frame of a plan at saturation; inf for None."""
    return math.inf if plan is None else team_costs(costs).rate(plan).bottleneck_s


@lru_cache(maxsize=8)
def team_costs(costs: Costs) -> TeamCosts:
    """Collect all that can be a team by `costs`: each place by itself, and the teams whose times are known."""
    kinds = kinds_of(costs)
    kind_of = {costs.places[index].name: kind for kind, indices in enumerate(kinds) for index in indices}
    time_s = {(kind, 1): np.asarray(costs.time_s[:, indices[0]]) for kind, indices in enumerate(kinds)}
    for team in costs.teams:
        if len({kind_of[place] for place in team.places}) == 1:
            time_s.setdefault((kind_of[team.places[0]], len(team.places)), team.time_s)
    batch_s = {
        (kind, batch.frames): np.asarray(batch.time_s[:, indices[0]])
        for batch in costs.batches
        for kind, indices in enumerate(kinds)
    }
    return TeamCosts(costs, kind_of, time_s, batch_s)
