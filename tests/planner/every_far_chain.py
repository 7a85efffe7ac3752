"""Every chain over hosts, worked out from what links are said to cost; and drawn costs that are small enough for it.

Written apart from the planners and from the costs' own sums: bytes are counted tensor by tensor.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from itertools import combinations, permutations
from typing import NamedTuple

import numpy as np

from shisha_rt.costs.costs import CostLayer, CostPlace, Costs
from shisha_rt.costs.link_speed import OneWay
from shisha_rt.costs.links import AS_INPUT, CostTensor, HostLink


class Served(NamedTuple):
    """Of a chain: seconds a frame of its slowest stage, of the slowest link, and of a frame by itself."""

    stages_s: float
    links_s: float
    latency_s: float

    @property
    def period_s(self) -> float:
        return max(self.stages_s, self.links_s)


def random_far_costs(rng: random.Random, layers: int, places: int) -> Costs:
    """Places here and on one to three hosts with alike and unlike links; tensors that skip layers and have readers."""
    scale = rng.choice([1.0, 0.1])

    def seconds(most: int) -> float:
        return rng.randint(0, most) * scale

    columns = [[math.nan if rng.random() < 0.02 else seconds(20) for _ in range(layers)] for _ in range(2)]
    memories = [rng.choice([None, None, None, rng.randint(8, 8 * layers)]) for _ in range(2)]
    hosts = ["", *(f"h{number}" for number in range(rng.randint(1, 3)))]
    ways = [OneWay(seconds(3), rng.choice([1.0, 3.0, 10.0, 50.0]) / scale) for _ in range(3)]
    links = tuple(HostLink(host, rng.choice(ways), rng.choice(ways)) for host in hosts[1:] if rng.random() < 0.9)
    chosen = [(rng.randrange(2) if rng.random() < 0.4 else 0, rng.choice(hosts)) for _ in range(places)]
    tensors = [CostTensor("image", rng.randint(0, 40), AS_INPUT, _readers(rng, AS_INPUT, layers))]
    for made in range(layers):
        for number in range(rng.choice([0, 1, 1, 1, 2])):
            tensors.append(CostTensor(f"t{made}.{number}", rng.randint(0, 40), made, _readers(rng, made, layers)))
    cuts = [math.nan if rng.random() < 0.1 else rng.choice([0.0, seconds(3)]) for _ in range(layers - 1)]
    return Costs(
        layers=tuple(CostLayer(f"l{i}", 1.0, rng.randint(0, 8), rng.randint(0, 8)) for i in range(layers)),
        places=tuple(CostPlace(f"p{i}", 1, memories[kind], host or None) for i, (kind, host) in enumerate(chosen)),
        time_s=np.array([columns[kind] for kind, _ in chosen]).T,
        transfer_s=np.array(cuts),
        tensors=tuple(tensors),
        links=links,
    )


def _readers(rng: random.Random, made: int, layers: int) -> tuple[int, ...]:
    later = range(made + 1, layers + 1)
    if rng.random() < 0.5:
        return (later[0],)
    return tuple(sorted(rng.sample(later, min(len(later), rng.randint(1, 3)))))


def every_far_chain(costs: Costs, most_stages: int, *, copies: bool) -> Iterator[Served]:
    """Each chain that can run. With copies a stage is on several places; of three kinds and more, on alike ones."""
    layers, places = len(costs.layers), range(len(costs.places))
    alike = [_kind(costs, place) for place in places]
    sets: list[tuple[int, ...]] = [(place,) for place in places]
    if copies:
        sets = [group for size in range(1, len(places) + 1) for group in combinations(places, size)]
        if len(set(alike)) > 2:
            sets = [group for group in sets if len({alike[place] for place in group}) == 1]
    known: dict[tuple[int, int, tuple[int, ...]], _Stage | None] = {}
    for count in range(1, min(layers, len(places), most_stages) + 1):
        apart = [
            row for row in permutations(sets, count) if len({p for group in row for p in group}) == sum(map(len, row))
        ]
        for inner in combinations(range(1, layers), count - 1):
            starts = (0, *inner, layers)
            for chosen in apart:
                stages = []
                for first, end, on in zip(starts[:-1], starts[1:], chosen, strict=True):
                    key = first, end, on
                    if key not in known:
                        known[key] = _stage(costs, *key)
                    stages.append(known[key])
                if None not in stages:
                    yield _served([stage for stage in stages if stage is not None])


class _Stage(NamedTuple):
    """`loads`: of each host's link, there and back, the seconds a frame."""

    period_s: float
    latency_s: float
    loads: dict[tuple[str, str], float]


def _served(stages: list[_Stage]) -> Served:
    loads: dict[tuple[str, str], float] = {}
    for stage in stages:
        for link, seconds in stage.loads.items():
            loads[link] = loads.get(link, 0.0) + seconds
    return Served(
        max(stage.period_s for stage in stages),
        max(loads.values(), default=0.0),
        math.fsum(stage.latency_s for stage in stages),
    )


def _stage(costs: Costs, first: int, end: int, places: tuple[int, ...]) -> _Stage | None:
    """None where one of its places cannot run it."""
    there_bytes = sum(
        tensor.size_bytes
        for tensor in costs.tensors
        if tensor.made < first and any(first <= r < end for r in tensor.readers)
    )
    back_bytes = sum(
        tensor.size_bytes
        for tensor in costs.tensors
        if first <= tensor.made < end and any(r >= end for r in tensor.readers)
    )
    weights = sum(layer.weight_bytes for layer in costs.layers[first:end])
    live = max(layer.live_bytes for layer in costs.layers[first:end])
    links = {link.host: link for link in costs.links}
    busy, alone = [], []
    for place in places:
        cost_place = costs.places[place]
        own_s = sum(costs.time_s[first:end, place].tolist()) + (float(costs.transfer_s[first - 1]) if first else 0.0)
        if math.isnan(own_s) or (cost_place.memory_bytes is not None and weights + live > cost_place.memory_bytes):
            return None
        link = links.get(cost_place.host or "")
        there_s = back_s = 0.0
        if link is not None and there_bytes:
            there_s = link.there.latency_s + there_bytes / link.there.bytes_per_s
        if link is not None and back_bytes:
            back_s = link.back.latency_s + back_bytes / link.back.bytes_per_s
        busy.append(max(there_s, own_s, back_s))
        alone.append(there_s + own_s + back_s)
    if 0 in busy:
        shares = [float(seconds == 0) / busy.count(0) for seconds in busy]
        period_s = 0.0
    else:
        period_s = 1 / math.fsum(1 / seconds for seconds in busy)
        shares = [period_s / seconds for seconds in busy]
    loads: dict[tuple[str, str], float] = {}
    for place, share in zip(places, shares, strict=True):
        link = links.get(costs.places[place].host or "")
        if link is not None:
            for way, seconds in (
                ("there", there_bytes / link.there.bytes_per_s),
                ("back", back_bytes / link.back.bytes_per_s),
            ):
                loads[link.host, way] = loads.get((link.host, way), 0.0) + share * seconds
    return _Stage(period_s, min(alone), loads)


def _kind(costs: Costs, place: int) -> object:
    cost_place = costs.places[place]
    link = next((link for link in costs.links if link.host == cost_place.host), None)
    whole = sum(layer.weight_bytes for layer in costs.layers) + max(layer.live_bytes for layer in costs.layers)
    memory = (
        cost_place.memory_bytes if cost_place.memory_bytes is not None and cost_place.memory_bytes < whole else None
    )
    way = None if link is None else (link.there, link.back)
    return str(costs.time_s[:, place].tolist()), memory, bool(cost_place.host), way
