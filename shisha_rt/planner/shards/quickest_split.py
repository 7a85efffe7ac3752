"""Layers split over places for a lower latency: shards run side by side, in the shares of the least maximum.

The split's own hand-overs and transfers count, so a split that does not gain more than these cost is refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from shisha_rt.costs.team_costs import TeamCosts
from shisha_rt.model.split import MOST_SUMMED, Splittable
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import latency_s
from shisha_rt.planner.shards.integer import best_shares
from shisha_rt.planner.shards.pieces import Item, Shards, WholeRun, assembled

_MOST_TRIED: Final = 64
"""Splittable layers that are tried. Finding the shares of one takes up to 10 ms."""
_MOST_BLOCKS: Final = 256
"""Blocks of a layer; if it has more, several are dealt as one."""


class _Path(NamedTuple):
    """A path through the first layers: its seconds and its stages."""

    seconds: float
    items: tuple[Item, ...]


_NO_PATH: Final = _Path(math.inf, ())


def quickest_split(team_costs: TeamCosts, start: Plan, handover_s: float) -> Plan:
    """Split layers of `start`, a chain whose stages are on single places, where that gains; `start` itself if nowhere.

    `handover_s`: from one stage to the next, beyond the stages' times. The split is a shortest path through the layers;
    whole layers keep their places. If it does not fit the places' memories, all layers stay whole.
    """
    splits: dict[int, list[tuple[float, Shards]]] = {}
    for splittable in _worth_a_look(team_costs, start):
        shares = _least(team_costs, splittable)
        if shares is not None:
            splits.setdefault(splittable.first, []).append(shares)
    whole = _Path(-handover_s, ())
    for stage in start.stages:
        runs = {stage.first: _NO_PATH}
        apart = {stage.first: whole}
        for layer in range(stage.first, stage.last + 1):
            run, behind = runs[layer], apart.get(layer, _NO_PATH)
            took_s = team_costs.span_s(stage.teams[0], layer, layer)
            entry_s = float(team_costs.costs.entry_s[layer])
            onwards = _longer(run, layer, took_s)
            if not math.isnan(entry_s):
                begun = _Path(behind.seconds + handover_s + entry_s + took_s, behind.items)
                onwards = min(onwards, _with(begun, WholeRun(layer, layer, stage.teams)), key=_seconds)
            runs[layer + 1] = onwards
            for seconds, shards in splits.get(layer, ()):
                end = shards.splittable.last + 1
                if end <= stage.last + 1:
                    before = min(run, _joined(behind, handover_s), key=_seconds)
                    split = _with(_Path(before.seconds + handover_s + seconds, before.items), shards)
                    others = apart.get(end, _NO_PATH)
                    apart[end] = min(others, split, key=lambda path: _joined(path, handover_s).seconds)
        whole = min(runs[stage.last + 1], _joined(apart.get(stage.last + 1, _NO_PATH), handover_s), key=_seconds)
    if not whole.items:
        return start
    plan = assembled(whole.items)
    return plan if alone_s(team_costs, plan, handover_s) < alone_s(team_costs, start, handover_s) else start


def _worth_a_look(team_costs: TeamCosts, start: Plan) -> list[Splittable]:
    """The splittable layers that take longest, and longer than the overhead of two shards."""
    whole_s = {
        layer: team_costs.span_s(stage.teams[0], layer, layer) for stage in start.stages for layer in stage.layers
    }
    splits = team_costs.costs.splits
    timed = [(sum(whole_s[layer] for layer in range(each.first, each.last + 1)), each) for each in splits.splittables]
    timed.sort(key=lambda pair: -pair[0])
    return [splittable for seconds, splittable in timed[:_MOST_TRIED] if seconds > 2 * splits.overhead_s]


def _seconds(path: _Path) -> float:
    return path.seconds


def _with(path: _Path, item: Item) -> _Path:
    return _Path(path.seconds, (*path.items, item))


def _joined(path: _Path, handover_s: float) -> _Path:
    """The path at its end: if it ends in shards to be joined, with a hand-over to a stage that joins them."""
    last = path.items[-1] if path.items else None
    is_left = isinstance(last, Shards) and (last.splittable.joined or last.splittable.summed)
    return _Path(path.seconds + handover_s, path.items) if is_left else path


def _longer(path: _Path, layer: int, took_s: float) -> _Path:
    """The path with one layer more in its last run."""
    if not path.items:
        return _NO_PATH
    *others, run = path.items
    assert isinstance(run, WholeRun)  # paths in `runs` end with one
    return _Path(path.seconds + took_s, (*others, WholeRun(run.first, layer, run.teams)))


def alone_s(team_costs: TeamCosts, plan: Plan, handover_s: float) -> float:
    """Latency of a frame, hand-overs between stages included."""
    stages_s = team_costs.alone_s(plan)
    return latency_s(plan, [[seconds + handover_s for seconds in stage_s] for stage_s in stages_s]) - handover_s


def _least(team_costs: TeamCosts, splittable: Splittable) -> tuple[float, Shards] | None:
    """The shards of least latency on places of this host, and their seconds with the join.

    Partial sums can have at most `MOST_SUMMED` shards: then the quickest places. None: the layers are better whole.
    """
    places = [place.name for place in team_costs.costs.places if not place.host]
    if splittable.summed:
        places = sorted(places, key=lambda place: team_costs.span_s((place,), *splittable.span))[:MOST_SUMMED]
    best = best_shares(splittable, _MOST_BLOCKS, lambda units: _table(team_costs, splittable, places, units))
    if best is None or sum(units > 0 for units in best[1]) < 2:
        return None
    seconds, shares = best
    join_s = {
        place: team_costs.costs.splits.join_s(*splittable.along, team_costs.span_s((place,), *splittable.span), place)
        if splittable.joined or splittable.summed
        else 0.0
        for place in places
    }
    joiner = min(places, key=join_s.__getitem__)
    joiners = ((joiner,),) if join_s[joiner] else ()
    return seconds + join_s[joiner], Shards.on_places(splittable, places, shares, joiners)


def _table(
    team_costs: TeamCosts, splittable: Splittable, places: Sequence[str], units: Sequence[int]
) -> list[list[float]]:
    """(places, units): seconds of so many units; alike for places of a kind, unless shard times are known."""
    same = {place: place if team_costs.costs.splits.shard_times else team_costs.kind_of[place] for place in places}
    seconds = {of: [team_costs.share_s(splittable, count, place) for count in units] for place, of in same.items()}
    return [seconds[of] for of in same.values()]
