"""One run of layers in shards on all places, whatever else these run: plans that a chain over pieces cannot express.

In such a chain a place with pieces of a layer also has the layers right before or behind them. If memory is short, a
place that has to hold a share of the largest layer then cannot give up layers before it. Here the other layers are a
chain of their own, and shards go where there is time and memory: shares start in proportion to memory, a chain is
planned around them, and shares are chosen anew for that chain (`_ROUNDS` times).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from shisha_rt.costs.costs import Costs
from shisha_rt.costs.room import held_bytes
from shisha_rt.costs.team_costs import TeamCosts, team_costs
from shisha_rt.model.split import MOST_SUMMED, Splittable
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import rate_of
from shisha_rt.planner.exact import exact_plan
from shisha_rt.planner.goal import Goal
from shisha_rt.planner.shards.integer import best_shares
from shisha_rt.planner.shards.pieces import Item, Shards, WholeRun, assembled

_ROUNDS: Final = 2
_MOST_STARTS: Final = 4
_FULLEST: Final = 0.95
"""The share of a place's memory that shards may take: other layers need some, too."""
_MOST_BLOCKS: Final = 64
"""Blocks of a layer; if it has more, several are dealt as one."""
_MOST_SINGLE: Final = 1024
"""The same where there is no room for such blocks."""


def spread(costs: Costs, splittable: Splittable, goal: Goal) -> Plan | None:
    """The fastest such plan that is found, None if there is none. Stages on one place share a pool."""
    predicted = team_costs(costs)
    plain = Goal(most_cells=goal.most_cells, should_stop=goal.should_stop)
    best, best_s = None, math.inf
    for start in _starts(costs, splittable):
        units = start
        for _ in range(_ROUNDS):
            rest = exact_plan(_without(predicted, splittable, units), plain).plan
            shares = None if rest is None else _shares(predicted, splittable, rest)
            if (
                rest is None
                or shares is None
                or (splittable.summed and sum(share > 0 for share in shares) > MOST_SUMMED)
            ):
                break
            if sum(share > 0 for share in shares) > 1:
                places = (place.name for place in costs.places)
                plan = _with_shards(rest, Shards.on_places(splittable, places, shares))
                plan_s = rate_of(plan, predicted.team_s(plan)).bottleneck_s
                if plan_s < best_s:
                    best, best_s = plan, plan_s
            if shares == units or goal.should_stop():
                break
            units = shares
    return best


def _starts(costs: Costs, splittable: Splittable) -> Iterator[tuple[int, ...]]:
    """Yield shares to start from: in proportion to memory; then what fits on one place, the rest on the others."""
    yield _by_room(costs, splittable)
    span_bytes, span_live = costs.weight_bytes(*splittable.span), costs.live_bytes(*splittable.span)
    largest_first = sorted(range(len(costs.places)), key=lambda index: -costs.places[index].room_bytes)
    for index in largest_first[:_MOST_STARTS]:
        place = costs.places[index]
        if place.memory_bytes is not None and len(costs.places) > 1:
            part = max(0, place.memory_bytes - span_live) / max(1, span_bytes)
            most = min(
                int(_FULLEST * part * splittable.units) // splittable.block * splittable.block,
                splittable.units - splittable.block,
            )
            others, last = divmod(splittable.units - most, len(costs.places) - 1)
            shares = [others] * (len(costs.places) - 1)
            shares[0] += last
            yield (*shares[:index], most, *shares[index:])


def _by_room(costs: Costs, splittable: Splittable) -> tuple[int, ...]:
    """(places,): units in proportion to memory; equal where none is limited."""
    room = np.array([place.room_bytes for place in costs.places])
    room = np.where(np.isinf(room), max(room[np.isfinite(room)], default=1.0), room)
    ends = np.rint(np.concatenate([[0], np.cumsum(room)]) / room.sum() * splittable.units).astype(int)
    return tuple(int(share) for share in np.diff(ends))


def _without(predicted: TeamCosts, splittable: Splittable, units: tuple[int, ...]) -> Costs:
    """Costs with nothing of the split layers left but their live bytes, and the memory that shards of `units` leave."""
    costs, span = predicted.costs, slice(splittable.first, splittable.last + 1)
    time_s = np.array(costs.time_s)
    time_s[span] = 0.0
    layers = (*costs.layers[: splittable.first], *(replace(layer, weight_bytes=0) for layer in costs.layers[span]))
    held = [predicted.share_bytes(splittable, count) for count in units]
    places = (
        replace(place, memory_bytes=None if place.memory_bytes is None else max(0, place.memory_bytes - size_bytes))
        for place, size_bytes in zip(costs.places, held, strict=True)
    )
    return replace(
        costs,
        layers=(*layers, *costs.layers[splittable.last + 1 :]),
        places=tuple(places),
        time_s=time_s,
        teams=(),
        batches=(),
    )


def _shares(predicted: TeamCosts, splittable: Splittable, rest: Plan) -> tuple[int, ...] | None:
    """(places,): units on each place, beside its stages of `rest`, that minimise the time of the busiest place."""
    costs = predicted.costs
    span_live = costs.live_bytes(*splittable.span)
    beside: list[tuple[str, float, float]] = []
    for place in costs.places:
        runs = [
            run
            for stage in rest.stages
            if stage.place == place.name
            for run in _apart(splittable, stage.first, stage.last)
        ]
        busy_s = math.fsum(predicted.span_s((place.name,), *run) + float(costs.entry_s[run[0]]) for run in runs)
        layers = [costs.layers[layer] for first, last in runs for layer in range(first, last + 1)]
        live_bytes = (layer.live_bytes for layer in layers)
        held = held_bytes((layer.weight_bytes for layer in layers), (span_live, *live_bytes))
        beside.append((place.name, busy_s, place.room_bytes - held))

    def seconds(units: Sequence[int]) -> list[list[float]]:
        held = [predicted.share_bytes(splittable, count) for count in units]
        return [
            [
                busy_s + predicted.share_s(splittable, count, place) if size_bytes <= room or not count else math.inf
                for count, size_bytes in zip(units, held, strict=True)
            ]
            for place, busy_s, room in beside
        ]

    best = best_shares(splittable, _MOST_BLOCKS, seconds) or best_shares(splittable, _MOST_SINGLE, seconds)
    return None if best is None else best[1]


def _apart(splittable: Splittable, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a run that lie before and behind the split layers."""
    for begin, end in ((first, min(last, splittable.first - 1)), (max(first, splittable.last + 1), last)):
        if begin <= end:
            yield begin, end


def _with_shards(rest: Plan, shards: Shards) -> Plan:
    items: list[Item] = []
    for stage in rest.stages:
        runs = list(_apart(shards.splittable, stage.first, stage.last))
        before = [run for run in runs if run[1] < shards.splittable.first]
        items += (WholeRun(*run, stage.teams) for run in before)
        if stage.last >= shards.splittable.first and shards not in items:
            items.append(shards)
        items += (WholeRun(*run, stage.teams) for run in runs if run not in before)
    return assembled(items)
