"""Every chain with copies and teams, worked out from the definitions; and drawn costs that are small enough for it."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from functools import cache

import numpy as np

from shisha_rt.costs.alike import kinds_of
from shisha_rt.costs.costs import CostLayer, CostPlace, Costs, CostTeam

Served = tuple[float, float]
"""Seconds a frame at saturation, and what the quickest team takes."""
ROUNDING = 1e-9


def random_costs(rng: random.Random, layers: int, places: int, unit_s: float | None, *, most_kinds: int = 3) -> Costs:
    """Places of a few kinds, some short of memory or unable to run a layer; teams; dear and illegal cuts.

    Times are small multiples of a unit, so that many sums are equal, or (None) drawn from a continuum.
    """

    def seconds(most: int) -> float:
        return most * rng.random() ** 3 if unit_s is None else rng.randint(0, most) * unit_s

    def column(unable: float) -> list[float]:
        return [math.nan if rng.random() < unable else seconds(20) for _ in range(layers)]

    kinds = [
        (column(0.1), rng.choice([None, None, rng.randint(8, 8 * layers)])) for _ in range(rng.randint(1, most_kinds))
    ]
    chosen = sorted(rng.randrange(len(kinds)) for _ in range(places))
    free = rng.random() < 0.3
    cuts = [math.nan if rng.random() < 0.15 else 0.0 if free else seconds(15) for _ in range(layers - 1)]
    teams = []
    for kind in set(chosen):
        own = [f"p{place}" for place, drawn in enumerate(chosen) if drawn == kind]
        for size in range(2, len(own) + 1):
            if rng.random() < 0.5:
                gain = rng.choice([1, size / 2, size, 2 * size])
                teams.append(CostTeam(tuple(own[:size]), np.array(column(0.05)) / gain))
    return Costs(
        layers=tuple(CostLayer(f"l{i}", 1.0, rng.randint(0, 8), rng.randint(0, 8)) for i in range(layers)),
        places=tuple(CostPlace(f"p{i}", 1, kinds[kind][1]) for i, kind in enumerate(chosen)),
        time_s=np.array([kinds[kind][0] for kind in chosen]).T,
        transfer_s=np.array(cuts),
        teams=tuple(teams),
    )


def every_chain(costs: Costs, most_stages: int) -> Iterator[Served]:
    """Bottleneck and latency of each chain that can run; its stages have teams of any kinds, or (three kinds) of one.

    Places of a kind are as good as each other, so it is enough to count them.
    """
    layers = len(costs.layers)
    kinds = kinds_of(costs)
    teams = _teams(costs)

    @cache
    def team_s(team: tuple[int, int], frames: int, first: int, last: int) -> float:
        rows, capacity = range(first, last + 1), costs.places[kinds[team[0]][0]].memory_bytes
        live = max(costs.layers[i].live_bytes for i in rows)
        if capacity is not None and sum(costs.layers[i].weight_bytes for i in rows) + frames * live > capacity:
            return math.nan
        layers_s = teams[team]
        if frames > 1 and team[1] == 1:  # a team of several places computes them one by one
            (batch,) = (batch for batch in costs.batches if batch.frames == frames)
            layers_s = batch.time_s[:, kinds[team[0]][0]].tolist()
        return float(sum(layers_s[i] for i in rows) + (costs.transfer_s[first - 1] if first else 0.0))

    @cache
    def stage(first: int, last: int, free: tuple[int, ...]) -> list[tuple[tuple[int, ...], Served]]:
        """The places left, and what becomes of it, for each choice of teams, and of frames that share a run."""
        return [run for frames in (1, *(b.frames for b in costs.batches)) for run in runs(frames, first, last, free)]

    def runs(frames: int, first: int, last: int, free: tuple[int, ...]) -> list[tuple[tuple[int, ...], Served]]:
        able = [team for team in teams if not math.isnan(team_s(team, frames, first, last))]
        choices: list[tuple[tuple[int, ...], Served]] = []

        def choose(at: int, left: tuple[int, ...], times: tuple[float, ...]) -> None:
            if times:
                rate = sum(1 / time if time else math.inf for time in times)
                choices.append((left, (1 / rate, min(times))))
            for index in range(at, len(able)):
                kind, size = able[index]
                alone = all(left[other] == free[other] for other in range(len(free)) if other != kind)
                if size <= left[kind] and (len(kinds) < 3 or alone):
                    fewer = (*left[:kind], left[kind] - size, *left[kind + 1 :])
                    choose(index, fewer, (*times, team_s(able[index], frames, first, last)))

        choose(0, free, ())
        return choices

    def extend(first: int, free: tuple[int, ...], served: tuple[Served, ...]) -> Iterator[Served]:
        if first == layers:
            yield max(period_s for period_s, _ in served), sum(quickest_s for _, quickest_s in served)
        elif len(served) < most_stages:
            for last in range(first, layers):
                for left, stage_served in stage(first, last, free):
                    yield from extend(last + 1, left, (*served, stage_served))

    return extend(0, tuple(map(len, kinds)), ())


def _teams(costs: Costs) -> dict[tuple[int, int], list[float]]:
    """What layers take on so many places of a kind together."""
    kinds = kinds_of(costs)
    kind_of = {f"p{place}": kind for kind, places in enumerate(kinds) for place in places}
    alone = {(kind, 1): costs.time_s[:, places[0]].tolist() for kind, places in enumerate(kinds)}
    return alone | {(kind_of[team.places[0]], len(team.places)): team.time_s.tolist() for team in costs.teams}


def best(chains: Iterator[Served], *, latency: bool) -> Served | None:
    """Of the smallest bottlenecks the least latency, or the other way round."""
    main, other = (1, 0) if latency else (0, 1)
    rates = list(chains)
    least = min((served[main] for served in rates), default=None)
    if least is None:
        return None
    return min((served for served in rates if served[main] <= least * (1 + ROUNDING)), key=lambda served: served[other])
