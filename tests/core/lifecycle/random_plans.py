"""Random networks of a few layers, and random plans of them: chains, forks, joins, copies, teams, shared pools."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Final

from shisha_rt.model.spans import Span
from shisha_rt.plan.plan import Plan, Stage, Team

LAYERS: Final = 5

Needs = tuple[frozenset[int], ...]
"""(layers,): the earlier layers of which each one reads the output; none: it reads the network's input."""

CHAIN: Final[Needs] = (frozenset(), *(frozenset({layer}) for layer in range(LAYERS - 1)))


def random_needs(rng: random.Random) -> Needs:
    if rng.random() < 0.4:
        return CHAIN
    return tuple(
        frozenset(rng.sample(range(layer), 0 if rng.random() < 0.25 else min(layer, rng.choice((1, 1, 2)))))
        for layer in range(LAYERS)
    )


def plain_plan(rng: random.Random, places: Sequence[str]) -> Plan:
    chosen = rng.sample(places, rng.randint(1, min(len(places), LAYERS)))
    cuts = _cuts(rng, len(chosen))
    return Plan.of((cuts[i], cuts[i + 1] - 1, place) for i, place in enumerate(chosen))


def random_plan(rng: random.Random, places: Sequence[str], needs: Needs, most_batch: int = 1) -> Plan:
    """Any plan that the gate lets pass, on some of the places."""
    groups = _groups(rng, needs)
    pools = _pools(rng, places, len(groups))
    stages = []
    for index, group in enumerate(groups):
        makers = {maker for layer in group for maker in needs[layer]} - group
        after = {earlier for earlier in range(index) if groups[earlier] & makers or rng.random() < 0.1}
        teams = rng.choice(pools)
        batch = rng.randint(1, most_batch) if most_batch > 1 else 1
        stages.append(Stage(_runs(group), tuple(rng.sample(teams, len(teams))), tuple(sorted(after)), batch=batch))
    return Plan(tuple(stages))


def _cuts(rng: random.Random, count: int) -> list[int]:
    return [0, *sorted(rng.sample(range(1, LAYERS), count - 1)), LAYERS]


def _groups(rng: random.Random, needs: Needs) -> list[set[int]]:
    """Layers by stage, each behind those that it needs: any such, or runs if none is found."""
    for _ in range(3):
        of = [rng.randrange(rng.randint(1, LAYERS)) for _ in range(LAYERS)]
        left = {group: {layer for layer in range(LAYERS) if of[layer] == group} for group in set(of)}
        ordered: list[set[int]] = []
        done: set[int] = set()
        while ready := [
            members for members in left.values() if all(needs[layer] <= done | members for layer in members)
        ]:
            group = rng.choice(ready)
            ordered.append(group)
            done |= group
            del left[of[min(group)]]
        if not left:
            return ordered
    cuts = _cuts(rng, rng.randint(1, LAYERS))
    return [set(range(cuts[i], cuts[i + 1])) for i in range(len(cuts) - 1)]


def _runs(layers: Iterable[int]) -> tuple[Span, ...]:
    runs: list[Span] = []
    for layer in sorted(layers):
        if runs and runs[-1][1] == layer - 1:
            runs[-1] = (runs[-1][0], layer)
        else:
            runs.append((layer, layer))
    return tuple(runs)


def _pools(rng: random.Random, places: Sequence[str], most: int) -> list[list[Team]]:
    """Teams of one or two places, each in one pool."""
    left = rng.sample(places, rng.randint(1, len(places)))
    teams: list[Team] = []
    while left:
        size = 2 if len(left) > 1 and rng.random() < 0.2 else 1
        teams.append(tuple(left[:size]))
        left = left[size:]
    pools: list[list[Team]] = [[] for _ in range(rng.randint(1, min(len(teams), most)))]
    for index, team in enumerate(teams):
        (pools[index] if index < len(pools) else rng.choice(pools)).append(team)
    return pools
