"""Every chain over places whose layers may be shared between neighbours, priced from the definitions; drawn costs."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations, product

import msgspec
import numpy as np

from shisha_rt.costs.alike import kinds_of
from shisha_rt.costs.costs import CostLayer, Costs
from shisha_rt.costs.split_costs import ShardScale, SplitCosts
from shisha_rt.model.spans import Span
from shisha_rt.model.split import Axis, Splittable
from tests.planner.evaluators import costs_of

Cut = tuple[int, int]
"""Before some unit of a layer; unit 0 of a layer is its begin, and behind all units is its join, if that takes time."""


def drawn_costs(rng: random.Random, layers: int, places: int) -> Costs:
    """Alike and unlike places, some short of memory; layers of few blocks, the last one odd; some cannot be split."""
    speeds = [rng.choice([1, 1, 2.5]) for _ in range(places)]
    layers_s = [rng.uniform(4, 20) for _ in range(layers)]
    costs = costs_of([[seconds * by * rng.choice([1, 1, 1.3]) for by in speeds] for seconds in layers_s], [1] * places)
    axes: tuple[Axis, ...] = ("channels", "groups", "rows", "columns")
    splittables = [
        Splittable(layer, layer, rng.choice(axes), rng.randint(3, 9), rng.choice([1, 2]), ())
        for layer in range(layers)
        if rng.random() < 0.8
    ]
    whole = 10 * layers
    limits = [rng.choice([None, None, rng.randint(whole // 3, whole)]) for _ in range(places)]
    return replace(
        costs,
        layers=tuple(CostLayer(str(layer), 1.0, rng.randint(2, 16), rng.randint(0, 3)) for layer in range(layers)),
        places=tuple(replace(place, memory_bytes=limit) for place, limit in zip(costs.places, limits, strict=True)),
        transfer_s=np.array([rng.choice([0.0, 0.0, 1.5]) for _ in range(layers - 1)]),
        splits=SplitCosts(tuple(splittables), rng.choice([0.0, 0.7]), random_scales(rng, costs)),
    )


def random_scales(rng: random.Random, costs: Costs) -> dict[tuple[Span, str], ShardScale]:
    """None, or some of each layer on each kind of places."""
    if rng.random() < 0.5:
        return {}
    return {
        ((layer, layer), costs.places[place].name): scale
        for layer in range(len(costs.layers))
        for kind in kinds_of(costs)
        for scale in [ShardScale(*(rng.choice([1.0, 1.3, 0.8]) for _ in range(2)))]
        for place in kind
    }


def with_joins(rng: random.Random, costs: Costs) -> Costs:
    """The same costs, but most ways have a join, of which some take most of the layer's time."""
    splittables = tuple(
        msgspec.structs.replace(splittable, joined=True, join_part=rng.uniform(0.02, 0.9))
        if rng.random() < 0.8
        else splittable
        for splittable in costs.splits.splittables
    )
    return replace(costs, splits=replace(costs.splits, splittables=splittables))


def with_more_axes(rng: random.Random, costs: Costs) -> Costs:
    """The same costs, but most layers can be split along other axes too, some with a join."""
    more: list[Splittable] = []
    for splittable in costs.splits.splittables:
        axes: tuple[Axis, ...] = ("channels", "groups", "rows", "columns")
        for axis in axes:
            if axis != splittable.axis and rng.random() < 0.4:
                part = rng.choice([0.0, rng.uniform(0.02, 0.9)])
                units, block = rng.randint(2, 9), rng.choice([1, 2])
                more.append(Splittable(*splittable.span, axis, units, block, (), joined=part > 0, join_part=part))
    return replace(costs, splits=replace(costs.splits, splittables=(*costs.splits.splittables, *more)))


def each_axis(costs: Costs) -> Iterator[Costs]:
    """The same costs with one axis for each layer, for all choices of axes."""
    by_layer: dict[int, list[Splittable]] = {}
    for splittable in costs.splits.splittables:
        by_layer.setdefault(splittable.first, []).append(splittable)
    for chosen in product(*by_layer.values()):
        yield replace(costs, splits=replace(costs.splits, splittables=chosen))


def least_period_s(costs: Costs) -> float:
    """Of all chains over some of the places in any order, a layer in any shares, a join with the last share or with
    what is behind; inf: there is none.
    """
    splittables = {splittable.first: splittable for splittable in costs.splits.splittables}
    cuts: list[Cut] = []
    for layer in range(len(costs.layers)):
        splittable = splittables.get(layer)
        cuts += [(layer, unit) for unit in (range(0, splittable.units, splittable.block) if splittable else (0,))]
        cuts += [(layer, splittable.units)] if splittable and splittable.join_part else []
    cuts.append((len(costs.layers), 0))
    stages_s = [
        [[_stage_s(costs, splittables, place, *span) for span in ((begin, end) for end in cuts)] for begin in cuts]
        for place in range(len(costs.places))
    ]
    least_s = math.inf
    for count in range(1, len(costs.places) + 1):
        for order in permutations(range(len(costs.places)), count):
            to = [0.0] + [math.inf] * (len(cuts) - 1)
            for place in order:
                to = [
                    min((max(to[begin], stages_s[place][begin][end]) for begin in range(end)), default=math.inf)
                    for end in range(len(cuts))
                ]
            least_s = min(least_s, to[-1])
    return least_s


def _stage_s(costs: Costs, splittables: dict[int, Splittable], place: int, begin: Cut, end: Cut) -> float:
    """What a place takes for the layers from one cut to the other: each shard a stage, whole layers between one."""
    seconds, held, live, entered = 0.0, 0.0, 0, False
    for layer in range(begin[0], min(end[0] + 1, len(costs.layers))):
        splittable, joins = splittables.get(layer), layer < end[0]
        units, join_part = (splittable.units, splittable.join_part) if splittable else (1, 0.0)
        first = begin[1] if layer == begin[0] else 0
        last = units if joins else end[1]
        if first >= last and not joins:
            continue
        cost_layer, entry_s = costs.layers[layer], float(costs.transfer_s[layer - 1]) if layer else 0.0
        layer_s = float(costs.time_s[layer, place])
        live = max(live, cost_layer.live_bytes)
        if last - first == units:
            if not joins:  # all units are no shard
                return math.inf
            seconds += layer_s + (0.0 if entered else entry_s)
            held, entered = held + cost_layer.weight_bytes, True
            continue
        entered = False
        seconds += join_part * layer_s if joins else 0.0
        if first < last:
            share_s = layer_s * (1 - join_part) * (last - first) / units
            scale = costs.splits.scale((layer, layer), costs.places[place].name)
            seconds += scale.at(costs.splits.overhead_s + entry_s, share_s)
            held += (
                cost_layer.weight_bytes
                if splittables[layer].axis == "rows"
                else -(-cost_layer.weight_bytes * (last - first) // units)
            )
    limit = costs.places[place].memory_bytes
    return math.inf if limit is not None and held + live > limit else seconds
