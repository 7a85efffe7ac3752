"""What no plan on very many places is faster than, by prices.

Give a second of a place of each class a price, and a second of each group of links. Then a frame costs at
least what the cheapest chain of stages for it costs, each stage on whatever class is cheapest (a shortest path over
positions), and all that there is is worth its prices. So no plan, and no mix of plans with unlike cuts either, serves
more frames a second than all is worth over what a frame costs, whatever the prices. Good prices are those of the
program whose columns are the chains met so far: the cheapest chain joins them until it costs what it brings (column
generation: Gilmore and Gomory, 1961). Whatever the simplex method rounds, the bound is worked out from its prices anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from shisha_rt.arrays import Floats
from shisha_rt.outcome import ShouldStop
from shisha_rt.planner.linear import maximize
from shisha_rt.planner.place_classes import Wide

NEAR: Final = 1e-4
"""Relative: how near the bound is brought to the program's value."""
_MOST_COLUMNS: Final = 400

Cuts = tuple[int, ...]
"""Positions, from 0 to the end of the network."""


class Route(NamedTuple):
    """A frame's way: cuts, and on which class each stage is."""

    cuts: Cuts
    classes: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Bounded:
    """No plan serves more than `most_per_s` frames a second; `routes`: those that the bound was found by."""

    most_per_s: float
    routes: tuple[Route, ...]


def bound(wide: Wide, most_stages: int | None, should_stop: ShouldStop) -> Bounded | None:
    """Bound the frames a second of all chains by pricing places; None if no chain has room for the network."""
    limit = np.array([*(float(place_class.count) for place_class in wide.classes), *wide.links.tolist()])
    classes = len(wide.classes)
    routes: dict[Route, None] = {}
    finite = np.where(np.isfinite(wide.seconds), wide.seconds, 0.0)
    speeds = 1 / np.maximum(finite.sum(axis=(1, 2)), 1e-30)
    start = np.concatenate([speeds, np.zeros(len(limit) - classes)])
    for chosen in range(classes):  # each class has a chain that would rather have it than others
        prices = start.copy()
        prices[:classes] *= 1e3
        prices[chosen] = start[chosen]
        path = cheapest(wide, prices, most_stages)
        if path is None:
            return None
        routes[path[1]] = None
    most, best = np.inf, start
    while len(routes) < _MOST_COLUMNS and not should_stop():
        use = np.stack([_use(wide, route) for route in routes], axis=1)
        scale = 1 / np.max(use / limit[:, None], axis=0)  # each column as much as one could have alone
        solved = maximize(scale, use / limit[:, None] * scale, np.ones(len(limit)))
        prices = solved.prices / limit
        added = False
        # Between the best prices and the newest: those of a program with few columns lead astray.
        for weight in (0.5, 1.0) if np.isfinite(most) else (1.0,):
            tried = weight * prices + (1 - weight) * best
            path = cheapest(wide, tried, most_stages)
            if path is None or not path[0]:
                continue
            if (worth := float(tried @ limit) / path[0]) < most:
                most, best = worth, tried / (tried @ limit)
            if path[1] not in routes:
                routes[path[1]] = None
                added = True
                break
        if most <= solved.value * (1 + NEAR) or not added:
            break
    return Bounded(float(most), tuple(routes))


def cheapest(wide: Wide, prices: Floats, most_stages: int | None) -> tuple[float, Route] | None:
    """What a frame costs at least at `prices` (classes + links,), and by which chain; None if there is none."""
    classes = len(wide.classes)
    cost = np.full((wide.positions, wide.positions), np.inf)
    chosen = np.zeros(cost.shape, np.int64)
    for number, place_class in enumerate(wide.classes):
        priced = np.full(cost.shape, np.inf)
        np.multiply(prices[number], wide.seconds[number], out=priced, where=np.isfinite(wide.seconds[number]))
        if place_class.group is not None:
            for way in (2 * place_class.group, 2 * place_class.group + 1):
                if prices[classes + way]:
                    priced = priced + prices[classes + way] * wide.link_s[way]
        chosen[priced < cost] = number
        np.minimum(cost, priced, out=cost)
    limited = most_stages is not None and most_stages < wide.positions - 1
    to = np.full(wide.positions, np.inf)
    to[0] = 0.0
    layers, came = [to], []
    for _ in range(most_stages if limited and most_stages is not None else 1):
        now = layers[-1].copy()
        begin_of = np.full(wide.positions, -1)
        for end in range(1, wide.positions):
            source = layers[-1] if limited else now
            costs_to = source[:end] + cost[:end, end]
            begin = int(costs_to.argmin())
            if costs_to[begin] < now[end]:
                now[end], begin_of[end] = costs_to[begin], begin
        layers.append(now)
        came.append(begin_of)
    if not np.isfinite(layers[-1][-1]):
        return None
    cuts, end, layer = [wide.positions - 1], wide.positions - 1, len(came) - 1
    while end:
        while came[layer][end] < 0:
            layer -= 1
        end = int(came[layer][end])
        cuts.append(end)
        layer -= limited
    cuts.reverse()
    return float(layers[-1][-1]), Route(tuple(cuts), tuple(int(chosen[span]) for span in pairwise(cuts)))


def _use(wide: Wide, route: Route) -> Floats:
    """(classes + links,) seconds a frame."""
    used = np.zeros(len(wide.classes) + len(wide.links))
    for span, number in zip(pairwise(route.cuts), route.classes, strict=True):
        used[number] += wide.seconds[number][span]
        group = wide.classes[number].group
        if group is not None:
            for way in (2 * group, 2 * group + 1):
                used[len(wide.classes) + way] += wide.link_s[way][span]
    return used
