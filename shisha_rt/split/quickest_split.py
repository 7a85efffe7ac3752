"""Layers split over places so that a frame by itself is done sooner: side by side in the shares of the least maximum.

Layer by layer, those first that promise most: a split stays where the plan with it is quicker, the further hand-overs
counted, so that one whose transfers or hand-overs eat its gain is refused.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final, TypeAlias

from shisha_rt.costs.team_costs import TeamCosts
from shisha_rt.plan.plan import Plan, Team
from shisha_rt.plan.rate import latency_s
from shisha_rt.plan.split import MOST_SUMMED, Split, Splittable
from shisha_rt.split.pieces import Item, Run, Shards, assembled

_MOST_TRIED: Final = 64
"""Ways to split layers, those of the layers that take longest."""

_Parts: TypeAlias = tuple[tuple[int, tuple[Team, ...]], ...]
"""Of a split: units and teams."""


def quickest_split(told: TeamCosts, start: Plan, handover_s: float) -> Plan:
    """`start`, a chain whose stages are on single places, with layers split where that gains; itself if nowhere.

    `handover_s`: from one stage to the next, beyond what stages take.
    """
    stage_of = {layer: stage for stage in start.stages for layer in stage.layers}
    apart = [
        (told.span_s(stage.teams[0], way.first, way.last), way)
        for way in told.costs.splits.ways
        if way.last in (stage := stage_of[way.first]).layers
    ]
    apart.sort(key=lambda one: -one[0])
    promising: list[tuple[float, Splittable, _Parts]] = []
    for whole_s, way in apart[:_MOST_TRIED]:
        parts = _least_parts(told, way)
        if len(parts) > 1:
            slowest_s = max(seconds for (seconds,) in told.team_s(assembled([Shards(way, parts)]))[: len(parts)])
            promising.append((whole_s - slowest_s, way, parts))
    best, best_s = start, alone_s(told, start, handover_s)
    chosen: dict[Splittable, _Parts] = {}
    for gain_s, way, parts in sorted(promising, key=lambda one: -one[0]):
        if gain_s <= 0 or any(way.first <= its.last and its.first <= way.last for its in chosen):
            continue
        plan = _with(start, {**chosen, way: parts})
        quicker_s = alone_s(told, plan, handover_s)
        if quicker_s < best_s:
            best, best_s = plan, quicker_s
            chosen[way] = parts
    return best


def alone_s(told: TeamCosts, plan: Plan, handover_s: float) -> float:
    """A frame by itself, hand-overs between stages included."""
    stages_s = told.team_s(plan)
    return latency_s(plan, [[seconds + handover_s for seconds in its] for its in stages_s]) - handover_s


def _least_parts(told: TeamCosts, way: Splittable) -> _Parts:
    """Over all places; where sums are to be made, over as few as have rooms. None or one: it is better whole."""
    places = [place.name for place in told.costs.places]
    if way.summed:
        places = sorted(places, key=lambda place: told.span_s((place,), way.first, way.last))[:MOST_SUMMED]
    tables: dict[int, list[float]] = {}
    for place in places:
        kind = told.kind_of[place]
        if kind not in tables or told.costs.splits.told_s:
            tables[kind] = list(_table(told, way, place))
    shares = least_maximum([tables[told.kind_of[place]] for place in places])
    used = [(place, blocks) for place, blocks in zip(places, shares or (), strict=False) if blocks]
    units = [way.block * blocks for _, blocks in used]
    units[-1:] = [way.units - sum(units[:-1])] if units else []
    return tuple((its, ((place,),)) for (place, _), its in zip(used, units, strict=True))


def _table(told: TeamCosts, way: Splittable, place: str) -> Iterator[float]:
    """Seconds for 0, 1, ... blocks of it on a place, never less for more."""
    units = (min(way.units, way.block * blocks) for blocks in range(1, -(-way.units // way.block) + 1))
    shards = (Split((way.first, way.last), way.axis, (its, way.units - its), 0) for its in units)
    return accumulate((0.0, *(told.shard_s(shard, (place,)) for shard in shards)), max)


def least_maximum(tables: Sequence[Sequence[float]]) -> list[int] | None:
    """Shares of blocks, (devices,), of which none takes longer than need be; None if there is no way.

    `tables` (devices, blocks + 1): what each takes for so many, never less for more; inf where it cannot. What is to
    spare is taken from the smallest shares, so that few devices are used.
    """
    blocks = len(tables[0]) - 1

    def within(most: float) -> list[int]:
        return [bisect_right(its, most) - 1 for its in tables]

    bounds = sorted({cost for its in tables for cost in its if math.isfinite(cost)})
    at = bisect_right(bounds, False, key=lambda bound: sum(within(bound)) >= blocks)
    if at == len(bounds):
        return None
    shares = within(bounds[at])
    for device in sorted(range(len(shares)), key=shares.__getitem__):
        shares[device] -= min(shares[device], sum(shares) - blocks)
    return shares


def _with(start: Plan, splits: Mapping[Splittable, _Parts]) -> Plan:
    """The chain with these layers split, each within one of its stages."""
    items: list[Item] = []
    for stage in start.stages:
        first = stage.first
        for way in sorted(splits, key=lambda way: way.first):
            if stage.first <= way.first <= stage.last:
                items += [Run(first, way.first - 1, stage.teams)] if first < way.first else []
                items.append(Shards(way, splits[way]))
                first = way.last + 1
        items += [Run(first, stage.last, stage.teams)] if first <= stage.last else []
    return assembled(items)
