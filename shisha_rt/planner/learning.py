"""How trials correct costs: beliefs about layers' times, shared by alike places as long as measurements agree.

Places of a kind share a belief: a measurement on one of them counts for all. If measurements show that some differ from
the others, these get a belief of their own. The evidence is a ratio of likelihoods, and has to outweigh the number of
ways to choose such a subset. Teams of several places have a belief for each kind and size.

Without copies, places need not be alike. Each measured place then has a belief of its own at once, as far as plans can
be made for so many kinds: so errors of single places are found sooner.

On another host, a stage's time is that of its layers only if these take longer than either transfer, there or back. If
they do not, the time says only that about them.

Interference between stages is not learnt: if copies slow each other down, their kind looks slower. Trials decide in the
end, as the best measured plan is kept.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from shisha_rt.arrays import Floats
from shisha_rt.costs.alike import kinds_of
from shisha_rt.costs.costs import CostBatch, Costs, CostTeam
from shisha_rt.costs.team_costs import TeamCosts, team_costs
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan, Team
from shisha_rt.plan.rate import stage_seconds
from shisha_rt.planner.belief import Belief, Sighting, likeliest, log_likelihoods

Group = tuple[int, ...]
"""Places (indices) that share a belief."""

_BAND_OF_ERROR: Final = 1.96 * math.sqrt(2)
"""Standard errors by which two measurements of one plan differ at most, in 95 of 100 cases."""
_LEAST_ERROR: Final = 0.005
"""Relative: the least error of a measurement, as costs are only a model."""
_LEAST_SHARE: Final = 0.02
"""A layer takes at least this share of its predicted time: a Gaussian does not know that times are positive."""
_LINK_ERROR: Final = 0.1
"""Relative: how far the predicted transfer times of links may be off."""
_EVIDENCE: Final = 2.0
"""Nats of evidence needed to treat places as unlike, on top of what the choice of the subset costs."""
_MOST_TIMES: Final = 1e3
"""Batches that take longer than predicted by more than this factor are corrected by this factor."""
_MOST_SIGHTINGS: Final = 200
"""The most sightings of one belief. The work grows with their third power."""


@dataclass(frozen=True, slots=True, eq=False)
class Learnt:
    """`costs`: as corrected. `beliefs`: by a place (its index) and the size of the teams that it may lead.

    `crowded`: more places differ than could get beliefs of their own, as there would be too many kinds.
    """

    costs: Costs
    beliefs: Mapping[tuple[int, int], Belief]
    crowded: bool


class _Seen(NamedTuple):
    """Measured time of a stage of layers `first` up to and without `end`; `error`: relative, a standard deviation."""

    first: int
    end: int
    service_s: float
    error: float


def learnt(
    told_costs: Costs,
    trials: Sequence[tuple[Plan, Measurement]],
    few_enough: Callable[[Sequence[int]], bool],
    *,
    copies: bool = False,
) -> Learnt:
    """Learn from all trials. `few_enough`: whether plans can be made for kinds of so many (kinds,) places."""
    by_costs = team_costs(told_costs)
    of_place: dict[str, list[_Seen]] = {place.name: [] for place in told_costs.places}
    of_team: dict[tuple[int, int], list[_Seen]] = {kind: [] for kind in by_costs.time_s if kind[1] > 1}
    for team, seen_once in _seen(by_costs, trials):
        if len(team) == 1:
            of_place[team[0]].append(seen_once)
        elif (which := (by_costs.kind_of[team[0]], len(team))) in of_team:
            of_team[which].append(seen_once)
    time_s = np.stack([_able(told_costs.time_s[:, at], able) for at, able in enumerate(of_place.values())], axis=1)
    told_costs = told_costs.with_times(time_s)
    team_s = {kind: _able(by_costs.time_s[kind], able) for kind, able in of_team.items()}
    alone = [_sightings(told_costs, time_s[:, at], seen, place) for at, (place, seen) in enumerate(of_place.items())]
    groups, crowded = _each_seen(kinds_of(told_costs), alone), False
    if copies or not few_enough([len(group) for group in groups]):
        groups, crowded = _groups(time_s, kinds_of(told_costs), alone, few_enough, 0.0 if copies else -math.inf)
    together = [_sightings(told_costs, team_time_s, of_team[kind]) for kind, team_time_s in team_s.items()]
    sightings = [*([sighting for place in group for sighting in alone[place]] for group in groups), *together]
    beliefs = likeliest(
        [np.nan_to_num(kind_s) for kind_s in (*(time_s[:, group[0]] for group in groups), *team_s.values())],
        [_merged(sighting).sightings for sighting in sightings],
    )
    of_group, of_kind = beliefs[: len(groups)], dict(zip(team_s, beliefs[len(groups) :], strict=True))
    by_place = {(place, 1): belief for group, belief in zip(groups, of_group, strict=True) for place in group}
    names = [place.name for place in told_costs.places]
    mean_s = np.stack([_mean_s(by_place[at, 1], time_s[:, at]) for at in range(len(names))], axis=1)
    teams: list[CostTeam] = []
    for group, ((kind, size), belief) in itertools.product(groups, of_kind.items()):
        if kind == by_costs.kind_of[names[group[0]]] and size <= len(group):
            teams.append(CostTeam(tuple(names[place] for place in group[:size]), _mean_s(belief, team_s[kind, size])))
            by_place[group[0], size] = belief
    costs = _with_runs_seen(replace(told_costs.with_times(mean_s), teams=tuple(teams)), kinds_of(told_costs), trials)
    return Learnt(costs, by_place, crowded)


def _with_runs_seen(costs: Costs, kinds: Sequence[Group], trials: Sequence[tuple[Plan, Measurement]]) -> Costs:
    """Scale the batch times of each measured stage's layers so that its predicted time is the measured one.

    This holds for all places that are alike by the costs as predicted; times without batches stay.
    """
    group_of = {costs.places[place].name: list(group) for group in kinds for place in group}
    for plan, measurement in trials:
        predicted_s = [min(of_stage) for of_stage in team_costs(costs).team_s(plan)] if costs.batches else ()
        for stage, told_s, service_s in zip(plan.stages, predicted_s, measurement.service_s, strict=False):
            seen = costs.batch_of(stage.batch)
            if seen is None or len(stage.work) > 1 or not (measurement.frames and 0 < told_s < math.inf):
                continue
            time_s = seen.time_s.copy()
            time_s[stage.first : stage.last + 1, group_of[stage.place]] *= min(service_s / told_s, _MOST_TIMES)
            corrected = CostBatch(seen.frames, time_s)
            costs = replace(costs, batches=tuple(corrected if batch is seen else batch for batch in costs.batches))
    return costs


def _mean_s(belief: Belief, told_s: Floats) -> Floats:
    """(layers,): believed seconds; nan where a layer cannot run."""
    return np.where(np.isnan(told_s), math.nan, np.maximum(belief.mean_s, _LEAST_SHARE * belief.told_s))


def _seen(by_costs: TeamCosts, trials: Sequence[tuple[Plan, Measurement]]) -> Iterator[tuple[Team, _Seen]]:
    """Yield teams with their measured times, for stages that are one run of whole layers without batches.

    If teams were not measured each by itself, a stage's time is divided by their predicted times.

    Of a plan that never ran, only the stage that failed counts, if it is known. A team without frames, whose stage had
    frames on other teams, does not count: too few may have come.
    """
    for plan, measurement in trials:
        error = max(measurement.band / _BAND_OF_ERROR, _LEAST_ERROR)
        team_s = measurement.team_s or _shared_out(plan, measurement, by_costs)
        for index, (stage, times_s) in enumerate(zip(plan.stages, team_s, strict=True)):
            if not measurement.frames and index != measurement.failed_stage:
                continue
            # Teams that were measured together count as one measurement.
            once = 1.0 if measurement.team_s else math.sqrt(len(times_s))
            for team, service_s in zip(stage.teams, times_s, strict=True):
                if math.isinf(service_s) and math.isfinite(min(times_s)):
                    continue
                if len(stage.work) == 1 and stage.split is None and stage.batch == 1:
                    yield team, _Seen(stage.first, stage.last + 1, service_s, once * error)


def _shared_out(plan: Plan, measurement: Measurement, by_costs: TeamCosts) -> Iterator[tuple[float, ...]]:
    """Yield (teams,) seconds for each stage: its measured time, divided in proportion to the teams' predicted times."""
    if plan.is_plain:
        yield from ((service_s,) for service_s in measurement.service_s)
        return
    for told_s, service_s in zip(by_costs.team_s(plan), measurement.service_s, strict=True):
        alike_s = stage_seconds(told_s)
        if 0 < alike_s < math.inf and math.isfinite(service_s):
            yield tuple(time_s * service_s / alike_s for time_s in told_s)
        else:
            yield (service_s,) * len(told_s)


def _able(told_s: Floats, seen: Sequence[_Seen]) -> Floats:
    """(layers,): predicted seconds, nan for layers that cannot run.

    It is not known which layer kept a stage from running. So all its layers count as unable to run, except those that
    ran in another stage.
    """
    time_s, ran = told_s.copy(), np.zeros(len(told_s), bool)
    for first, end, service_s, _ in seen:
        ran[first:end] |= math.isfinite(service_s)
    for first, end, service_s, _ in seen:
        if math.isinf(service_s):
            time_s[first:end] = np.where(ran[first:end], time_s[first:end], math.nan)
    return time_s


def _sightings(costs: Costs, layers_s: Floats, seen: Sequence[_Seen], place: str = "") -> list[Sighting]:
    """Measured times of stages, less their entry costs. Stages without a predicted time cannot be corrected.

    `place`: where they ran; empty for teams of several places, which are on this host.
    """
    sightings: list[Sighting] = []
    for first, end, service_s, error in seen:
        told_s = float(np.nansum(layers_s[first:end]))
        if math.isfinite(service_s) and told_s:
            entry_s = float(costs.entry_s[first])
            hidden = service_s <= (1 + _LINK_ERROR + error) * _ways_s(costs, place, first, end)
            if hidden and entry_s + told_s <= service_s:
                continue
            sightings.append(Sighting(first, end, service_s - entry_s, error * max(service_s, told_s)))
    return sightings


def _ways_s(costs: Costs, place: str, first: int, end: int) -> float:
    """The longer of the transfers there and back, of a stage on a place with a link; else 0."""
    link = costs.link_of.get(place)
    if link is None:
        return 0.0
    there_bytes, back_bytes = costs.crossings.of(((first, end - 1),))
    return max(link.there.seconds(there_bytes), link.back.seconds(back_bytes))


class _Merged(NamedTuple):
    """One sighting for each run of layers. `scatter`: the part of the log likelihood that merging leaves out."""

    sightings: list[Sighting]
    scatter: float


def _merged(sightings: Sequence[Sighting]) -> _Merged:
    """Merge sightings of the same layers into means weighted by 1 / variance; keep the last `_MOST_SIGHTINGS`."""
    by_span: dict[tuple[int, int], list[Sighting]] = {}
    for sighting in sightings:
        by_span.setdefault((sighting.first, sighting.end), []).append(sighting)
    merged: list[Sighting] = []
    scatter = 0.0
    for (first, end), sighted in by_span.items():
        if len(sighted) == 1:
            merged += sighted
            continue
        time_s, error_s = np.array([(sighting.time_s, sighting.error_s) for sighting in sighted]).T
        weights = 1 / error_s**2
        mean_s, merged_error_s = float(weights @ time_s / weights.sum()), float(weights.sum() ** -0.5)
        scatter += math.log(merged_error_s) - float(np.log(error_s).sum() + weights @ (time_s - mean_s) ** 2 / 2)
        merged.append(Sighting(first, end, mean_s, merged_error_s))
    return _Merged(merged[-_MOST_SIGHTINGS:], scatter)


def _each_seen(kinds: Sequence[Group], alone: Sequence[Sequence[Sighting]]) -> list[Group]:
    """Group places: each measured place by itself, the other places of a kind together."""
    seen = [(place,) for kind in kinds for place in kind if alone[place]]
    return [*seen, *filter(None, (tuple(place for place in kind if not alone[place]) for kind in kinds))]


def _groups(
    time_s: Floats,
    kinds: Sequence[Group],
    alone: Sequence[Sequence[Sighting]],
    few_enough: Callable[[Sequence[int]], bool],
    least_evidence: float,
) -> tuple[list[Group], bool]:
    """Part kinds where the evidence exceeds the least, the clearest case first, while there are few enough groups.

    Also return whether evidence for more parts is left, which would make too many groups.
    """
    parts = [(_parted(time_s[:, kind[0]], kind, alone), kind) for kind in kinds]
    while True:
        parts.sort(key=lambda part: -part[0].evidence)
        clearest, group = parts[0]
        groups = [part for _, part in parts]
        if not clearest.first or clearest.evidence <= least_evidence:
            return sorted(groups), False
        two = (clearest.first, clearest.other)
        if not few_enough([len(members) for members in (*groups[1:], *two)]):
            return sorted(groups), clearest.evidence > 0
        parts = [*parts[1:], *((_parted(time_s[:, group[0]], members, alone), members) for members in two)]


class _Parted(NamedTuple):
    """Two parts of a group. `evidence`: in nats; above 0, the two are unlike."""

    evidence: float
    first: Group = ()
    other: Group = ()


def _parted(told_s: Floats, group: Group, alone: Sequence[Sequence[Sighting]]) -> _Parted:
    """Part a group into slower and quicker places; places without measurements go with the larger part."""
    seen = [place for place in group if alone[place]]
    if len(seen) < 2:
        return _Parted(-math.inf)
    layers_s = np.nan_to_num(told_s)

    def slower(place: int) -> float:
        taken_s = sum(sighting.time_s for sighting in alone[place])
        return taken_s / float(sum(layers_s[sighting.first : sighting.end].sum() for sighting in alone[place]))

    order = sorted(seen, key=slower)
    ratios = np.array([slower(place) for place in order])
    # Choose the two parts that vary least within themselves.
    varying = [at * ratios[:at].var() + (len(order) - at) * ratios[at:].var() for at in range(1, len(order))]
    at = 1 + int(np.argmin(varying))
    whole, first, other = (_likelihood(layers_s, members, alone) for members in (order, order[:at], order[at:]))
    choice = math.log(math.comb(len(order), at))
    parts = [set(order[:at]), set(order[at:])]
    max(parts, key=len).update(set(group) - set(seen))
    evidence = first + other - whole - choice - _EVIDENCE
    return _Parted(evidence, *(tuple(sorted(part)) for part in parts))


def _likelihood(layers_s: Floats, places: Sequence[int], alone: Sequence[Sequence[Sighting]]) -> float:
    """Log likelihood of all sightings of places that share a belief, with the likeliest scales."""
    merged = _merged([sighting for place in places for sighting in alone[place]])
    return float(log_likelihoods(layers_s, merged.sightings).max()) + merged.scatter
