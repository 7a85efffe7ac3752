"""Kinds of interchangeable places: what is computed for a place holds for all places of its kind."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from shisha_rt.costs.costs import CostBatch, CostPlace, Costs, CostTeam, stage_bytes
from shisha_rt.costs.operator_costs import OperatorCosts


@lru_cache(maxsize=8)
def kinds_of(costs: Costs) -> tuple[tuple[int, ...], ...]:
    """Kinds of places (indices): those of equal times, power, memory size and link, in the order of their first places.

    A memory that holds the whole model counts as one without a limit. Hosts with equal links are alike.
    """
    frames = max((batch.frames for batch in costs.batches), default=1)
    whole_bytes = stage_bytes(costs, 0, len(costs.layers) - 1, frames)

    tables = [costs.time_s, *(batch.time_s for batch in costs.batches)]

    def link_of(place: CostPlace) -> Hashable:
        link = costs.link_of.get(place.name)
        return bool(place.host), None if link is None else (link.there, link.back)

    def entry(index: int) -> Hashable:
        memory_bytes = costs.places[index].memory_bytes
        limited = memory_bytes is not None and memory_bytes < whole_bytes
        # + 0.0: a time of -0.0 is one of 0.0.
        times = tuple((time_s[:, index] + 0.0).tobytes() for time_s in tables)
        return times, memory_bytes if limited else None, link_of(costs.places[index]), costs.places[index].power_w

    return _together([entry(index) for index in range(len(costs.places))])


def among(costs: Costs, places: Sequence[str], slower: Sequence[float]) -> Costs:
    """The costs of some places, slowed down `slower` (places,) times; links stay as they are.

    A place that is slowed down is in no team of several; any other alike places can be one.
    """
    columns = [costs.place_index(place) for place in places]
    times_of = dict(zip(places, slower, strict=True))
    alike_shares = {
        (span, axis, place): shares.stretched(times_of[place])
        for (span, axis, place), shares in costs.splits.shard_times.items()
        if place in times_of
    }
    unslowed = {column for column, times in zip(columns, slower, strict=True) if times == 1}
    kind_of = {costs.places[index].name: kind for kind in kinds_of(costs) for index in kind}
    members = [[index for index in kind_of[team.places[0]] if index in unslowed] for team in costs.teams]
    return replace(
        costs,
        places=tuple(costs.places[column] for column in columns),
        time_s=costs.time_s[:, columns] * np.array(slower),
        batches=tuple(CostBatch(batch.frames, batch.time_s[:, columns] * np.array(slower)) for batch in costs.batches),
        teams=tuple(
            CostTeam(tuple(costs.places[index].name for index in alike[: len(team.places)]), team.time_s)
            for team, alike in zip(costs.teams, members, strict=True)
            if len(alike) >= len(team.places)
        ),
        splits=replace(costs.splits, shard_times=alike_shares),
        links=tuple(link for link in costs.links if any(costs.places[at].host == link.host for at in columns)),
    )


def first_alike(costs: Mapping[str, OperatorCosts]) -> Mapping[str, str]:
    """Map each place to the first place that has the same devices, with the same cost of every operator."""
    places = list(costs)
    kinds = _together([(own.devices, own.time_s.tobytes(), own.groups) for own in costs.values()])
    first = {place: kind[0] for kind in kinds for place in kind}
    return {name: places[first[index]] for index, name in enumerate(places)}


def _together(entries: Sequence[Hashable]) -> tuple[tuple[int, ...], ...]:
    """Indices of equal entries."""
    indices_of: dict[Hashable, list[int]] = {}
    for index, entry in enumerate(entries):
        indices_of.setdefault(entry, []).append(index)
    return tuple(map(tuple, indices_of.values()))
