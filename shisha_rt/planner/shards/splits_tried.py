"""What trials show of splits: how much longer shards take than predicted, and which splits gain nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from shisha_rt.costs.alike import kinds_of
from shisha_rt.costs.costs import Costs
from shisha_rt.costs.split_costs import ShardScale
from shisha_rt.costs.team_costs import team_costs
from shisha_rt.model.spans import Span
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import Objective
from shisha_rt.planner.shards.pieces import split_spans

_ERROR: Final = 0.05
"""Relative: how far shards of various layers are from what a fit says."""
_FIXED_DOUBT: Final = 1.0
_UNITS_DOUBT: Final = 0.3
"""Relative: how far each coefficient may be from one factor for both. Shards of one size cannot tell them apart."""
_LEAST_SHARE: Final = 0.02
"""Neither coefficient is below this share of that factor."""
_ALIKE: Final = 0.1
"""Shards that would have to be as predicted for layers to be drawn half way to others: most of what one took counts."""


class _Seen(NamedTuple):
    """A shard that ran: where and of which layers; its predicted terms (`SplitCosts.terms_s`), and what it took."""

    kind: int
    span: Span
    fixed_s: float
    units_s: float
    taken_s: float

    @property
    def predicted_s(self) -> float:
        return self.fixed_s + self.units_s


def with_splits_tried(costs: Costs, done: Sequence[tuple[Plan, Measurement]], objective: Objective) -> Costs:
    """Correct shard times by all shards that ran. Layers that were split without gain are to stay whole.

    On each kind of places a posynomial of a shard's units is fitted: how far its two coefficients are from predicted
    ones. Layers that were split there have a ratio besides. Kinds without shards are as far off as all others are.
    """
    given_up = _given_up(done, objective)
    splittables = tuple(splittable for splittable in costs.splits.splittables if splittable.span not in given_up)
    kinds = kinds_of(costs)
    seen = list(_seen(costs, kinds, done))
    scales: dict[tuple[Span, str], ShardScale] = {}
    for kind, places in enumerate(kinds) if seen else ():
        there = [shard for shard in seen if shard.kind == kind]
        fitted = _fitted(there) if there else ShardScale(_factor(seen), _factor(seen))
        for span in {splittable.span for splittable in costs.splits.splittables}:
            ratio = _ratio(fitted, [shard for shard in there if shard.span == span])
            scale = ShardScale(ratio * fitted.fixed, ratio * fitted.units)
            scales |= {(span, costs.places[place].name): scale for place in places}
    return replace(costs, splits=replace(costs.splits, splittables=splittables, scales=scales))


def _seen(costs: Costs, kinds: Sequence[Sequence[int]], done: Sequence[tuple[Plan, Measurement]]) -> Iterator[_Seen]:
    """Yield the shards that ran. What stages on several teams took counts only if each team was measured by itself."""
    by_costs = team_costs(costs)
    kind_of = {costs.places[place].name: kind for kind, places in enumerate(kinds) for place in places}
    for plan, measurement in done:
        team_s = measurement.team_s or [(service_s,) for service_s in measurement.service_s]
        for stage, times_s in zip(plan.stages, team_s, strict=True) if measurement.can_run else ():
            if stage.split is None or stage.split.joins or len(times_s) != len(stage.teams):
                continue
            for team, taken_s in zip(stage.teams, times_s, strict=True):
                shard = _Seen(kind_of[team[0]], stage.split.span, *by_costs.shard_terms_s(stage.split, team), taken_s)
                if 0 < shard.predicted_s < math.inf and 0 < taken_s < math.inf:
                    yield shard


def _factor(seen: Sequence[_Seen]) -> float:
    return math.fsum(shard.taken_s for shard in seen) / math.fsum(shard.predicted_s for shard in seen)


def _fitted(seen: Sequence[_Seen]) -> ShardScale:
    """Fit both coefficients near one factor for both, by least squares relative to the mean of predicted and taken."""
    factor = _factor(seen)
    terms_s = factor * np.array([(shard.fixed_s, shard.units_s) for shard in seen])
    taken_s = np.array([shard.taken_s for shard in seen])
    weights = 1 / (_ERROR * np.sqrt(terms_s.sum(axis=1) * taken_s))
    doubts = np.array([1 / _FIXED_DOUBT, 1 / _UNITS_DOUBT])
    rows = np.concatenate([terms_s * weights[:, None], np.diag(doubts)])
    solution, *_ = np.linalg.lstsq(rows, np.concatenate([taken_s * weights, doubts]), rcond=None)
    fixed, units = (factor * np.maximum(solution, _LEAST_SHARE)).tolist()
    return ShardScale(fixed, units)


def _ratio(fitted: ShardScale, own: Sequence[_Seen]) -> float:
    """How much more shards of some layers take than the fit says: a mean of logarithms, drawn a little to 1."""
    logs = (math.log(shard.taken_s / fitted.at(shard.fixed_s, shard.units_s)) for shard in own)
    return math.exp(math.fsum(logs) / (len(own) + _ALIKE))


def with_longest_alone(costs: Costs, plan: Plan | None, done: Sequence[tuple[Plan, Measurement]]) -> Costs | None:
    """Of the layers that a plan would split for the first time, allow to split only the longest.

    The times of its shards then correct the predictions for all others. None: the plan splits at most one such layer.
    """
    tried = {span for tried_plan, _ in done for span in split_spans(tried_plan)}
    first = set() if plan is None else split_spans(plan) - tried
    if len(first) < 2:
        return None
    longest = max(first, key=lambda span: float(np.nanmin(costs.time_s[span[0] : span[1] + 1].sum(axis=0))))
    kept = tried | {longest}
    splittables = tuple(splittable for splittable in costs.splits.splittables if splittable.span in kept)
    return replace(costs, splits=replace(costs.splits, splittables=splittables))


def _given_up(done: Sequence[tuple[Plan, Measurement]], objective: Objective) -> set[Span]:
    """Layers that were split in some plan, but in no plan that was better than all before it."""
    best: Measurement | None = None
    paid: set[Span] = set()
    tried: set[Span] = set()
    for plan, measurement in done:
        spans = split_spans(plan)
        tried |= spans
        if best is None or measurement.is_better_than(best, objective):
            best = measurement
            paid |= spans
    return tried - paid
