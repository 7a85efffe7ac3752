"""Bounds by prices: an upper bound of the frames a second of any plan on very many places, and a simpler lower bound of
the bottleneck on few (`bottleneck_bound_s`), for all planners and any order of the layers.

Give each class a price for a second of one of its places, and each group of links a price for a second of one of its
links. Then a frame costs at least as much as the cheapest chain of stages, each stage on its cheapest class (a shortest
path over positions). Whatever the prices, no plan, nor any mix of plans with different cuts, serves more frames a
second than the price of a second of all places and links, divided by the cost of a frame. Good prices are the dual
prices of the linear program whose columns are the chains found so far: the cheapest chain is added, until it costs as
much as it gains (column generation: Gilmore and Gomory, 1961). The bound is computed from the prices themselves, so the
simplex method's rounding does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from shisha_rt.arrays import Floats
from shisha_rt.outcome import ShouldStop
from shisha_rt.planner.chains import TOLERANCE
from shisha_rt.planner.linear import maximize
from shisha_rt.planner.place_classes import ClassCosts

NEAR: Final = 1e-4
"""Relative gap between the bound and the program's value at which the search ends."""
_MOST_COLUMNS: Final = 400

Cuts = tuple[int, ...]
"""Positions, from 0 to the end of the network."""


class Route(NamedTuple):
    """A chain that a frame can take: cuts, and the class of each stage."""

    cuts: Cuts
    classes: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Bounded:
    """No plan serves more than `most_per_s` frames a second; `routes`: the chains that led to this bound."""

    most_per_s: float
    routes: tuple[Route, ...]


def bound(space: ClassCosts, most_stages: int | None, should_stop: ShouldStop) -> Bounded | None:
    """Bound the frames a second of all chains by pricing places; None if no chain can run the network."""
    limit = np.array([*(float(place_class.count) for place_class in space.classes), *space.links.tolist()])
    classes = len(space.classes)
    routes: dict[Route, Floats] = {}
    finite = np.where(np.isfinite(space.seconds), space.seconds, 0.0)
    per_s = 1 / np.maximum(finite.sum(axis=(1, 2)), 1e-30)
    start = np.concatenate([per_s, np.zeros(len(limit) - classes)])
    for chosen in range(classes):  # begin with a chain for each class that prefers this class
        prices = start.copy()
        prices[:classes] *= 1e3
        prices[chosen] = start[chosen]
        path = cheapest(space, prices, most_stages)
        if path is None:
            return None
        routes[path[1]] = _use(space, path[1])
    most, best = np.inf, start
    while len(routes) < _MOST_COLUMNS and not should_stop():
        use = np.stack(list(routes.values()), axis=1)
        scale = 1 / np.max(use / limit[:, None], axis=0)  # the frames a second of each route alone
        solved = maximize(scale, use / limit[:, None] * scale, np.ones(len(limit)))
        prices = solved.prices / limit
        added = False
        # First halfway between the best prices and the newest, as those of a program with few columns mislead.
        for weight in (0.5, 1.0) if np.isfinite(most) else (1.0,):
            tried = weight * prices + (1 - weight) * best
            path = cheapest(space, tried, most_stages)
            if path is None or not path[0]:
                continue
            if (worth := float(tried @ limit) / path[0]) < most:
                most, best = worth, tried / (tried @ limit)
            if path[1] not in routes:
                routes[path[1]] = _use(space, path[1])
                added = True
                break
        if most <= solved.value * (1 + NEAR) or not added:
            break
    return Bounded(float(most), tuple(routes))


def cheapest(space: ClassCosts, prices: Floats, most_stages: int | None) -> tuple[float, Route] | None:
    """The least cost of a frame at `prices` (classes + links,), and its chain; None if there is no chain."""
    classes = len(space.classes)
    cost = np.full((space.positions, space.positions), np.inf)
    chosen = np.zeros(cost.shape, np.int64)
    for number, place_class in enumerate(space.classes):
        priced = np.full(cost.shape, np.inf)
        np.multiply(prices[number], space.seconds[number], out=priced, where=np.isfinite(space.seconds[number]))
        for way in place_class.link_rows:
            if prices[classes + way]:
                priced = priced + prices[classes + way] * space.link_s[way]
        chosen[priced < cost] = number
        np.minimum(cost, priced, out=cost)
    limited = most_stages is not None and most_stages < space.positions - 1
    to = np.full(space.positions, np.inf)
    to[0] = 0.0
    layers, came = [to], []
    for _ in range(most_stages if limited and most_stages is not None else 1):
        now = layers[-1].copy()
        begin_of = np.full(space.positions, -1)
        for end in range(1, space.positions):
            source = layers[-1] if limited else now
            costs_to = source[:end] + cost[:end, end]
            begin = int(costs_to.argmin())
            if costs_to[begin] < now[end]:
                now[end], begin_of[end] = costs_to[begin], begin
        layers.append(now)
        came.append(begin_of)
    if not np.isfinite(layers[-1][-1]):
        return None
    cuts, end, layer = [space.positions - 1], space.positions - 1, len(came) - 1
    while end:
        while came[layer][end] < 0:
            layer -= 1
        end = int(came[layer][end])
        cuts.append(end)
        layer -= limited
    cuts.reverse()
    return float(layers[-1][-1]), Route(tuple(cuts), tuple(int(chosen[span]) for span in pairwise(cuts)))


def _use(space: ClassCosts, route: Route) -> Floats:
    """(classes + links,): seconds of places and links that a frame uses on a route."""
    used = np.zeros(len(space.classes) + len(space.links))
    for span, number in zip(pairwise(route.cuts), route.classes, strict=True):
        used[number] += space.counted_s[number][span]
        for way in space.classes[number].link_rows:
            used[len(space.classes) + way] += space.link_s[way][span]
    return used


def speeds(place_s: Floats) -> Floats:
    """(kinds,): one over the mean time of the groups that a kind can run; 0 if there are none, or they take no time.

    `place_s` (groups, kinds): place-seconds a frame, inf where the kind cannot run the group.
    """
    able = np.isfinite(place_s)
    total_s = np.where(able, place_s, 0.0).sum(axis=0)
    per_s: Floats = np.divide(able.sum(axis=0), total_s, out=np.zeros(len(total_s)), where=total_s > 0)
    return per_s


def bottleneck_bound_s(place_s: Floats, counts: Sequence[int], most_stages: int | None = None) -> float:
    """A lower bound of the bottleneck of all chains over `counts` (kinds,) places; `place_s` as in `speeds`.

    Give a second on each place a price, its speed. A chain of bottleneck B uses at most B seconds of each of its
    places, and every group costs at least as much as on its cheapest kind. So B is at least the sum of these costs over
    the price of a second on all places.

    `most_stages`: the most stages, each on one place, so that the bottleneck is also at least the time of any group on
    its quickest kind. None: stages may have copies and teams; `place_s` is then for the best of these.
    """
    prices = speeds(place_s)
    able = np.isfinite(place_s)
    paid = np.where(able, np.where(able, place_s, 0.0) * prices, np.inf).min(axis=1).sum()
    places = np.sort(np.repeat(prices, counts))
    worth = float((places if most_stages is None else places[-most_stages:]).sum())
    bound_s = float(paid) / worth if worth and math.isfinite(paid) else 0.0
    longest_s = 0.0 if most_stages is None else float(place_s.min(axis=1).max())
    return max(bound_s, longest_s) * (1 - TOLERANCE)
