"""Layers split over places so that a frame by itself is done sooner: side by side in the shares of the least maximum.

Further hand-overs and transfers are counted, so that a split whose gain they eat is refused.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from shisha_rt.costs.team_costs import TeamCosts
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import latency_s
from shisha_rt.plan.split import MOST_SUMMED, Split, Splittable
from shisha_rt.split.pieces import Item, Shards, WholeRun, assembled


class _Way(NamedTuple):
    """Seconds so far, and by what stages."""

    seconds: float
    items: tuple[Item, ...]


_NO_WAY: Final = _Way(math.inf, ())


def quickest_split(told: TeamCosts, start: Plan, handover_s: float) -> Plan:
    """`start`, a chain whose stages are on single places, with layers split where that gains; itself if nowhere.

    `handover_s`: from one stage to the next, beyond what stages take. The shortest way through the layers, the places
    of those that are whole being as they are; where it does not fit in the places' memories, all stays whole.
    """
    splits: dict[int, list[tuple[float, Shards]]] = {}
    for way in told.costs.splits.ways:
        its = _least(told, way)
        if its is not None:
            splits.setdefault(way.first, []).append(its)
    whole = _Way(-handover_s, ())
    for stage in start.stages:
        runs = {stage.first: _NO_WAY}
        apart = {stage.first: whole}
        for layer in range(stage.first, stage.last + 1):
            run, behind = runs[layer], apart.get(layer, _NO_WAY)
            took_s = told.span_s(stage.teams[0], layer, layer)
            entry_s = float(told.costs.transfer_s[layer - 1]) if layer else 0.0
            onwards = _longer(run, layer, took_s)
            if not math.isnan(entry_s):
                begun = _Way(behind.seconds + handover_s + entry_s + took_s, behind.items)
                onwards = min(onwards, _with(begun, WholeRun(layer, layer, stage.teams)), key=_seconds)
            runs[layer + 1] = onwards
            for seconds, shards in splits.get(layer, ()):
                end = shards.way.last + 1
                if end <= stage.last + 1:
                    before = min(run, behind, key=_seconds)
                    split = _with(_Way(before.seconds + handover_s + seconds, before.items), shards)
                    apart[end] = min(apart.get(end, _NO_WAY), split, key=_seconds)
        whole = min(runs[stage.last + 1], apart.get(stage.last + 1, _NO_WAY), key=_seconds)
    if not whole.items:
        return start
    plan = assembled(whole.items)
    return plan if alone_s(told, plan, handover_s) < alone_s(told, start, handover_s) else start


def _seconds(way: _Way) -> float:
    return way.seconds


def _with(way: _Way, item: Item) -> _Way:
    return _Way(way.seconds, (*way.items, item))


def _longer(way: _Way, layer: int, took_s: float) -> _Way:
    """With a layer more in its last run."""
    if not way.items:
        return _NO_WAY
    *others, run = way.items
    assert isinstance(run, WholeRun)  # it is a way that ends with one
    return _Way(way.seconds + took_s, (*others, WholeRun(run.first, layer, run.teams)))


def alone_s(told: TeamCosts, plan: Plan, handover_s: float) -> float:
    """A frame by itself, hand-overs between stages included."""
    stages_s = told.team_s(plan)
    return latency_s(plan, [[seconds + handover_s for seconds in its] for its in stages_s]) - handover_s


def _least(told: TeamCosts, way: Splittable) -> tuple[float, Shards] | None:
    """Over all places, or as many as have rooms for sums: what the slowest shard takes. None: it is better whole."""
    places = [place.name for place in told.costs.places]
    if way.summed:
        places = sorted(places, key=lambda place: told.span_s((place,), way.first, way.last))[:MOST_SUMMED]
    tables: dict[int, list[float]] = {}
    for place in places:
        kind = told.kind_of[place]
        if kind not in tables or told.costs.splits.told_s:
            tables[kind] = list(_table(told, way, place))
    its_tables = [tables[told.kind_of[place]] for place in places]
    shares = least_maximum(its_tables)
    used = [(place, blocks) for place, blocks in zip(places, shares or (), strict=False) if blocks]
    if shares is None or len(used) < 2:
        return None
    units = [way.block * blocks for _, blocks in used[:-1]]
    units.append(way.units - sum(units))
    slowest_s = max(its[blocks] for its, blocks in zip(its_tables, shares, strict=True))
    return slowest_s, Shards(way, tuple((its, ((place,),)) for (place, _), its in zip(used, units, strict=True)))


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
