"""What trials show of splits: how much longer shards take than predicted, and which splits gain nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from shisha_rt.costs.costs import Costs
from shisha_rt.costs.team_costs import team_costs
from shisha_rt.model.spans import Span
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import Objective, stage_seconds
from shisha_rt.planner.shards.pieces import split_spans


def with_splits_tried(costs: Costs, done: Sequence[tuple[Plan, Measurement]], objective: Objective) -> Costs:
    """Correct shard times by the last plan that had shards. Layers that were split without gain are to stay whole."""
    given_up = _given_up(done, objective)
    splittables = tuple(splittable for splittable in costs.splits.splittables if splittable.span not in given_up)
    costs = replace(costs, splits=replace(costs.splits, splittables=splittables))
    for plan, measurement in reversed(done):
        if not (plan.splits and measurement.can_run):
            continue
        predicted_s = map(stage_seconds, team_costs(costs).team_s(plan))
        pairs = [
            service
            for stage, *service in zip(plan.stages, predicted_s, measurement.service_s, strict=True)
            if stage.split is not None and not stage.split.joins
        ]
        predicted_sum_s, taken_s = (math.fsum(times) for times in zip(*pairs, strict=True))
        if 0 < predicted_sum_s < math.inf and taken_s > 0:
            return replace(costs, splits=replace(costs.splits, factor=costs.splits.factor * taken_s / predicted_sum_s))
    return costs


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
