"""Drawn networks of few groups, and what the best chain over any order of their layers takes: by trying them all."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations

import numpy as np

from shisha_rt.costs.costs import Costs
from shisha_rt.costs.link_speed import OneWay
from shisha_rt.costs.links import CostTensor, HostLink
from shisha_rt.costs.team_costs import team_costs
from shisha_rt.model.spans import groups_of
from shisha_rt.plan.plan import Plan, Stage
from tests.planner.every_chain import random_costs

Needs = tuple[frozenset[int], ...]


def random_network(rng: random.Random, layers: int, places: int) -> tuple[Costs, Needs]:
    """Cuts cost nothing, some are not legal; places as in `random_costs`. Most layers need one or two others."""
    costs = random_costs(rng, layers, places, rng.choice((None, 0.5)))
    cuts = np.where(np.isnan(costs.transfer_s), math.nan, 0.0)
    often = rng.choice((0.2, 0.4, 0.7))
    needs = [{need for need in range(layer) if rng.random() < often / (layer - need)} for layer in range(layers)]
    return replace(costs, transfer_s=cuts), tuple(map(frozenset, needs))


def with_links(rng: random.Random, costs: Costs, needs: Needs, hosts: int) -> Costs:
    """Each layer makes a tensor of its own; all places but the first are on other hosts."""
    layers = len(costs.layers)
    readers = [[reader for reader in range(layers) if made in needs[reader]] for made in range(layers)]
    tensors = [CostTensor("input", rng.randint(0, 9), -1, tuple(layer for layer in range(layers) if not needs[layer]))]
    tensors += [
        CostTensor(f"t{made}", rng.randint(0, 9), made, tuple(later) or (layers,)) for made, later in enumerate(readers)
    ]
    ways = [OneWay(rng.choice((0.0, 0.5)), rng.choice((1.0, 3.0, 10.0))) for _ in range(2 * hosts)]
    places = [replace(place, host=f"h{at % hosts}" if at else None) for at, place in enumerate(costs.places)]
    used = {place.host for place in places}
    links = [HostLink(f"h{at}", ways[2 * at], ways[2 * at + 1]) for at in range(hosts) if f"h{at}" in used]
    return replace(costs, places=tuple(places), tensors=tuple(tensors), links=tuple(links), teams=())


def least_of_every_order_s(costs: Costs, needs: Needs, most_stages: int) -> float:
    """Of all plain chains whose stages, one behind the other, have what they need by then."""
    spans = groups_of(len(costs.layers), costs.legal_cuts)
    group_of = {layer: group for group, (first, last) in enumerate(spans) for layer in range(first, last + 1)}
    before = [
        {group_of[need] for layer in range(first, last + 1) for need in needs[layer]} - {group}
        for group, (first, last) in enumerate(spans)
    ]
    teams = team_costs(costs)
    places = [place.name for place in costs.places]
    return min(
        (
            teams.rate(_chain(stages, spans, chosen)).bottleneck_s
            for stages in _every_row(before, frozenset(), most_stages)
            for chosen in permutations(places, len(stages))
        ),
        default=math.inf,
    )


def _every_row(before: list[set[int]], done: frozenset[int], most: int) -> Iterator[tuple[frozenset[int], ...]]:
    """All rows of up to `most` sets of groups, each needing only what is in it or before it."""
    left = [group for group in range(len(before)) if group not in done]
    if not left:
        yield ()
    elif most:
        for chosen in range(1, 1 << len(left)):
            stage = frozenset(group for at, group in enumerate(left) if chosen >> at & 1)
            if all(before[group] <= done | stage for group in stage):
                yield from ((stage, *rest) for rest in _every_row(before, done | stage, most - 1))


def _chain(stages: tuple[frozenset[int], ...], spans: tuple[tuple[int, int], ...], places: tuple[str, ...]) -> Plan:
    """As it is, its runs not even joined."""
    return Plan(
        tuple(
            Stage(tuple(spans[group] for group in sorted(stage)), ((place,),), (index - 1,) if index else ())
            for index, (stage, place) in enumerate(zip(stages, places, strict=True))
        )
    )
