"""Chains whose stages have teams of their own: which teams a stage can have, and its seconds a frame on them.

A stage gets a share: a number of places of each kind, which form the teams that serve the stage best. Its period
(seconds a frame at saturation) is computed beforehand for every stage and every share: t/m on m alike teams,
1 / sum(1/t) on unlike ones. Searches then need not know the teams of a share.

Times are sums from the stage's begin on, so they are right up to a few roundings. `TOLERANCE` covers these: bounds are
kept up to that relative error. `TeamCosts.rate` predicts the rate of the plan found, its load on hosts' links included.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product
from typing import Any, Final, NamedTuple

import numpy as np

from shisha_rt.arrays import Floats, Ints
from shisha_rt.costs.costs import CostBatch
from shisha_rt.costs.link_speed import OneWay
from shisha_rt.costs.links import Bytes
from shisha_rt.costs.team_costs import team_costs
from shisha_rt.plan.plan import Plan
from shisha_rt.planner.goal import Goal
from shisha_rt.planner.kinds import StageCosts, fitting
from shisha_rt.planner.solution import PLAIN_CHAINS

TOLERANCE: Final = 1e-12
MOST_PERIODS: Final = 1 << 24
"""Eight bytes each."""


class TeamKind(NamedTuple):
    """Alike teams: `size` places of a kind (its index in the model)."""

    kind: int
    size: int


class StageSeconds(NamedTuple):
    """Arrays (teams, positions, positions), by begin and end of a stage; inf where the team cannot run it.

    `busy_s`: seconds that a team is busy with a frame. `alone_s`: seconds of a frame by itself: more than `busy_s` on
    other hosts, the same on this one.
    """

    busy_s: Floats
    alone_s: Floats


class SharedStage(NamedTuple):
    """The groups from `begin` up to and without `end`, on a share (its index).

    `lead`: a kind of team that the stage must have, an index of `Chains.teams`; None: whatever teams serve it best.
    """

    share: int
    begin: int
    end: int
    lead: int | None = None


class Runs(NamedTuple):
    """Times of stages, for each frame, with batches of `frames`.

    `busy_s` (teams, positions, positions): seconds of each kind of team. `rates`: for each kind (places + 1, positions,
    positions), frames a second of up to so many places; empty without copies. `period_s`: as in `Chains`.
    """

    frames: int
    busy_s: Floats
    rates: tuple[Floats, ...]
    period_s: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Chains:
    """A space of plans. `counts` (kinds,): numbers of places.

    `seconds`: times of each kind of team without batches. `shares` (shares, kinds): numbers of places. `before`
    (shares, kinds): index of the share with one place of the kind less; the number of shares if there is none.
    `period_s` (shares, positions, positions): seconds a frame, by end and begin (last axis). `grows`: whether a longer
    stage never takes less time; not so with links. `runs`: without batches first, then for each batch size; a stage's
    period is the least of theirs.
    """

    model: StageCosts
    counts: tuple[int, ...]
    most_stages: int
    replicate: bool
    teams: tuple[TeamKind, ...]
    seconds: StageSeconds
    shares: Ints
    before: Ints
    period_s: Floats
    grows: bool
    runs: tuple[Runs, ...]

    @property
    def rates(self) -> tuple[Floats, ...]:
        """Rates without batches (see `Runs`)."""
        return self.runs[0].rates

    @property
    def is_mixed(self) -> bool:
        """Whether a stage may have places of several kinds."""
        return bool((np.count_nonzero(self.shares, axis=1) > 1).any())

    @property
    def layered(self) -> bool:
        """Whether searches have to count stages, as fewer are allowed than places and groups make possible."""
        return self.most_stages < min(sum(self.counts), self.model.groups)

    def cells(self, counts: Sequence[int]) -> int:
        """Number of cells of all tables of a search that counts places of so many kinds."""
        tables = self.most_stages + 1 if self.layered else 1
        return tables * (self.model.groups + 1) * math.prod(count + 1 for count in counts)

    @property
    def space(self) -> str:
        if not self.replicate:
            words = PLAIN_CHAINS
        elif len(self.counts) == 1 or self.is_mixed:
            words = "chains of stages, each on any teams of its own"
        else:
            words = "chains of stages, each on teams of its own, all of one kind of places"
        if not self.layered:
            return words
        few = "one stage" if self.most_stages == 1 else f"up to {self.most_stages} stages"
        return words.replace("stages", few, 1)

    def bottleneck_s(self, stages: Iterable[SharedStage]) -> float:
        """Bottleneck of stages without a lead, seconds a frame."""
        return max(float(self.period_s[stage.share, stage.end, stage.begin]) for stage in stages)

    def plan(self, stages: Iterable[SharedStage]) -> Plan:
        """Return the plan of `stages`, in pipeline order; of each kind, the places listed first are used."""
        names = [place.name for place in self.model.costs.places]
        free = [iter([names[place] for place in kind.places]) for kind in self.model.kinds]
        starts = self.model.starts
        shared = [(stage, self._runs_of(stage)) for stage in stages]
        plan = Plan.chain(
            (
                starts[stage.begin],
                starts[stage.end] - 1,
                [tuple(next(free[team.kind]) for _ in range(team.size)) for team in self._made_up(stage, runs)],
            )
            for stage, runs in shared
        )
        if len(self.runs) == 1:
            return plan
        stages_and_runs = zip(plan.stages, shared, strict=True)
        return Plan(tuple(replace(stage, batch=runs.frames) for stage, (_, runs) in stages_and_runs))

    def _runs_of(self, stage: SharedStage) -> Runs:
        """The runs with the stage's shortest period; if several, those with the smallest batch."""
        return min(self.runs, key=lambda runs: float(runs.period_s[stage.share, stage.end, stage.begin]))

    def _made_up(self, stage: SharedStage, runs: Runs) -> list[TeamKind]:
        """The teams of a stage, the quickest first."""
        left = self.shares[stage.share].tolist()
        members = [] if stage.lead is None else [stage.lead]
        for index in members:
            left[self.teams[index].kind] -= self.teams[index].size
        for kind, places in enumerate(left):
            members += self._best_teams(kind, places, stage, runs) if self.replicate else [kind] * places
        return [
            self.teams[index] for index in sorted(members, key=lambda team: runs.busy_s[team, stage.begin, stage.end])
        ]

    def _best_teams(self, kind: int, places: int, stage: SharedStage, runs: Runs) -> list[int]:
        """Trace back the best teams of `_rates`: both add the same terms, so the sums are equal to the last bit."""
        rates = runs.rates[kind][:, stage.begin, stage.end]
        seconds = runs.busy_s[:, stage.begin, stage.end]
        sizes = [(index, team.size) for index, team in enumerate(self.teams) if team.kind == kind]
        cuts: list[int] = []
        while places and rates[places]:
            if rates[places] == rates[places - 1]:
                places -= 1
                continue
            index, size = next(
                (index, size)
                for index, size in sizes
                if size <= places and rates[places - size] + _rate(float(seconds[index])) == rates[places]
            )
            cuts.append(index)
            places -= size
        return cuts


def _rate(seconds: float) -> float:
    return 1 / seconds if seconds else math.inf


def inverse(values: Floats) -> Floats:
    """One over each value; inf for 0."""
    with np.errstate(divide="ignore", over="ignore"):
        return np.asarray(1 / values)


def windows(share: Sequence[int], counts: Sequence[int]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Slices of a table's axes, places of each kind, that adding a share leads from, and to."""
    source = tuple(slice(0, count + 1 - more) for count, more in zip(counts, share, strict=True))
    return source, (*(slice(more, None) for more in share), ...)


def least_left(best: Floats) -> Floats:
    """(positions,): least sum of stages to the end (a shortest path); `best`: seconds of a stage, by begin and end."""
    left = np.zeros(len(best))
    for begin in range(len(best) - 2, -1, -1):
        left[begin] = (best[begin, begin + 1 :] + left[begin + 1 :]).min()
    return left


def least_to(best: Floats) -> Floats:
    """(positions,): as `least_left`, from the begin to there."""
    return least_left(best.T[::-1, ::-1])[::-1]


def _before(shares: Ints) -> Ints:
    """(shares, kinds): index of the share with one place of the kind less; the number of shares if there is none."""
    number_of = {tuple(share): number for number, share in enumerate(shares.tolist())}
    return np.array(
        [
            [
                number_of.get((*share[:kind], share[kind] - 1, *share[kind + 1 :]), len(shares))
                for kind in range(len(share))
            ]
            for share in shares.tolist()
        ]
    )


def can_list(model: StageCosts, places: int) -> bool:
    """Whether the periods of all stages on so many places are few enough to list."""
    return places * (model.groups + 1) ** 2 <= MOST_PERIODS


def chains(
    model: StageCosts, goal: Goal, counts: Sequence[int] | None = None, seconds: StageSeconds | None = None
) -> Chains | None:
    """Make the space of chains on up to `counts` (kinds,) places; None: on all. None if it is too large to list.

    `seconds`: used instead of `seconds_of` the costs. Without copies, each share is one place. Batches are used if the
    costs have times of them, `seconds` is None, and the goal has time for them (`run_s`).
    """
    counts = tuple(len(kind.places) for kind in model.kinds) if counts is None else tuple(counts)
    if not can_list(model, sum(counts)):
        return None
    teams = team_kinds(model, goal)
    batches = _batches(model, goal) if seconds is None else ()
    seconds = seconds_of(model, teams) if seconds is None else seconds
    if goal.replicate:
        mixed = model.costs.mixed and len(counts) == 2 and can_list(model, math.prod(count + 1 for count in counts))
        shares = _mixed_shares(counts) if mixed else _shares(counts)
    else:
        shares = np.eye(len(counts), dtype=np.int64)[[kind for kind, count in enumerate(counts) if count]]

    def runs(frames: int, busy_s: Floats) -> Runs:
        rates: tuple[Floats, ...] = ()
        if goal.replicate:
            rates = tuple(_rates(teams, busy_s, kind, count) for kind, count in enumerate(counts))
            period_s = _periods_s(rates, shares)
        else:
            period_s = busy_s[[int(share.argmax()) for share in shares]]
        return Runs(frames, busy_s, rates, np.ascontiguousarray(period_s.transpose(0, 2, 1)))

    each = (runs(1, seconds.busy_s), *(runs(batch.frames, _in_runs_s(model, teams, batch, goal)) for batch in batches))
    most = min(sum(counts), model.groups)
    return Chains(
        model=model,
        counts=counts,
        most_stages=most if goal.most_stages is None else min(most, goal.most_stages),
        replicate=goal.replicate,
        teams=teams,
        seconds=seconds,
        shares=shares,
        before=_before(shares),
        period_s=reduce(np.minimum, (run.period_s for run in each)),
        grows=seconds.alone_s is seconds.busy_s,
        runs=each,
    )


def _periods_s(rates: Sequence[Floats], shares: Ints) -> Floats:
    """(shares, positions, positions): seconds a frame on each share."""
    served = np.zeros((len(shares), *rates[0].shape[1:]))
    for kind, rate in enumerate(rates):
        served += rate[shares[:, kind]]
    return inverse(served)


def team_kinds(model: StageCosts, goal: Goal) -> tuple[TeamKind, ...]:
    """Single places first, in the order of the kinds; then, with copies, the known teams of several places."""
    predicted = team_costs(model.costs)
    number_of = {predicted.kind_of[kind.name]: number for number, kind in enumerate(model.kinds)}
    single = tuple(TeamKind(kind, 1) for kind in range(len(model.kinds)))
    if not goal.replicate:
        return single
    several = (TeamKind(number_of[kind], size) for kind, size in predicted.time_s if size > 1 and kind in number_of)
    return (*single, *sorted(several))


def seconds_of(model: StageCosts, teams: Sequence[TeamKind]) -> StageSeconds:
    """Seconds of stages by the costs, links included."""
    return over_links(model, teams, computing_s(model, teams))


def over_links(model: StageCosts, teams: Sequence[TeamKind], computing_s: Floats) -> StageSeconds:
    """Combine computing times with transfer times to and from other hosts, if any."""
    links = [model.costs.link_of.get(model.kinds[team.kind].name) for team in teams]
    if not any(links):
        return StageSeconds(computing_s, computing_s)
    there_bytes, back_bytes = model.costs.crossings.between(model.starts)
    busy_s, alone_s = computing_s.copy(), computing_s.copy()
    for number, link in enumerate(links):
        if link is not None:
            there_s, back_s = way_s(link.there, there_bytes), way_s(link.back, back_bytes)
            busy_s[number] = np.maximum(np.maximum(there_s, computing_s[number]), back_s)
            alone_s[number] += there_s + back_s
    return StageSeconds(busy_s, alone_s)


def way_s(way: OneWay, size_bytes: Bytes) -> Floats:
    return np.where(size_bytes > 0, way.latency_s + size_bytes / way.bytes_per_s, 0.0)


def computing_s(model: StageCosts, teams: Sequence[TeamKind]) -> Floats:
    """(teams, positions, positions): computing seconds by begin and end, entry cost included; inf: it cannot run."""
    return _spans_s(model, layer_seconds(model, teams), [model.kinds[kind].fits for kind, _ in teams])


def layer_seconds(model: StageCosts, teams: Sequence[TeamKind]) -> list[Floats]:
    """(layers,) for each kind of team: seconds, nan where it cannot run a layer."""
    predicted = team_costs(model.costs)
    return [predicted.time_s[predicted.kind_of[model.kinds[kind].name], size] for kind, size in teams]


def place_seconds(model: StageCosts, goal: Goal) -> Floats:
    """(groups, kinds): least place-seconds a frame, by the best teams or batches; inf: none can. Memory is ignored."""
    least_s, starts = np.full((model.groups, len(model.kinds)), np.inf), model.starts[:-1]
    teams = team_kinds(model, goal)
    for (kind, size), layers_s in zip(teams, layer_seconds(model, teams), strict=True):
        np.fmin(least_s[:, kind], size * np.add.reduceat(layers_s, starts), out=least_s[:, kind])
    for batch in _batches(model, goal):
        np.fmin(
            least_s, np.add.reduceat(batch.time_s[:, [kind.places[0] for kind in model.kinds]], starts), out=least_s
        )
    return least_s


def _batches(model: StageCosts, goal: Goal) -> tuple[CostBatch, ...]:
    return model.costs.batches if goal.run_s > 0 else ()


def _in_runs_s(model: StageCosts, teams: Sequence[TeamKind], batch: CostBatch, goal: Goal) -> Floats:
    """(teams, positions, positions): seconds of each frame of a batch, and of a single one for teams of several places,
    whose batches have no times; inf if a batch takes longer than the goal's `run_s`.
    """
    leads = [model.kinds[kind].places[0] for kind, _ in teams]
    fits = fitting(model.costs, np.array(model.starts), leads, batch.frames)
    layers_s = [
        batch.time_s[:, lead] if team.size == 1 else single_s
        for lead, team, single_s in zip(leads, teams, layer_seconds(model, teams), strict=True)
    ]
    frame_s = _spans_s(model, layers_s, fits)
    alone = np.array([size == 1 for _, size in teams])
    frame_s[alone[:, None, None] & (batch.frames * frame_s > goal.run_s)] = np.inf
    return frame_s


def _spans_s(model: StageCosts, layers_s: Sequence[Floats], fits: Iterable[Ints]) -> Floats:
    """(rows, positions, positions): seconds by begin and end, entry included, for rows of `layers_s`, or inf."""
    starts = np.array(model.starts)
    seconds = np.full((len(layers_s), len(starts), len(starts)), np.inf)
    groups_s = np.add.reduceat(np.stack(layers_s), starts[:-1], axis=1)
    for begin in range(model.groups):
        seconds[:, begin, begin + 1 :] = model.entry_s[begin] + np.cumsum(groups_s[:, begin:], axis=1)
    seconds[np.isnan(seconds)] = np.inf
    for of_row, fit in zip(seconds, fits, strict=True):
        of_row[np.arange(len(starts)) > fit[:, None]] = np.inf
    return seconds


def _rates(teams: Sequence[TeamKind], seconds: Floats, kind: int, count: int) -> Floats:
    """(places + 1, positions, positions): most frames a second of up to so many places of a kind, in the best teams."""
    own = [(team.size, inverse(seconds[index])) for index, team in enumerate(teams) if team.kind == kind]
    rates = np.zeros((count + 1, *seconds.shape[1:]))
    for places in range(1, count + 1):
        rates[places] = rates[places - 1]
        for size, rate in own:
            if size <= places:
                np.maximum(rates[places], rates[places - size] + rate, out=rates[places])
    return rates


def _mixed_shares(counts: Sequence[int]) -> Ints:
    """(shares, kinds): shares of at least one place, of any kinds, in ascending order."""
    return np.array(list(product(*(range(count + 1) for count in counts)))[1:])


def _shares(counts: Sequence[int]) -> Ints:
    """(shares, kinds): shares of at least one place, all of one kind, in ascending order."""
    alone = np.eye(len(counts), dtype=np.int64)
    return np.array([places * alone[kind] for kind, count in enumerate(counts) for places in range(1, count + 1)])
