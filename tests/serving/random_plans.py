"""Plans of all kinds that a model and alike places allow: chains, copies, teams, pools of several stages, branches."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from shisha_rt.graph.spans import Span, groups_of
from shisha_rt.plan.plan import Plan, Stage, Team


@dataclass(frozen=True)
class Cuttable:
    """What is needed to cut a model: see `PlanRules`."""

    layer_count: int
    legal_cuts: frozenset[int]
    needs: Sequence[frozenset[int]]

    def random_plan(self, rng: random.Random, places: Sequence[str]) -> Plan:
        """Any cutting into an acyclic graph of stages, on any pools of teams of `places`, which are all alike."""
        if rng.random() < 0.2:
            return self._plain_chain(rng, places)
        works, after = self._random_graph(rng, rng.randint(1, 5))
        pools = _random_pools(rng, places)
        return Plan(tuple(Stage(work, rng.choice(pools), its) for work, its in zip(works, after, strict=True)))

    def _plain_chain(self, rng: random.Random, places: Sequence[str]) -> Plan:
        cuts = sorted(rng.sample(sorted(self.legal_cuts), rng.randint(0, min(len(places) - 1, len(self.legal_cuts)))))
        firsts, lasts = [0, *(cut + 1 for cut in cuts)], [*cuts, self.layer_count - 1]
        return Plan.of(zip(firsts, lasts, rng.sample(places, len(cuts) + 1), strict=True))

    def _random_graph(self, rng: random.Random, most: int) -> tuple[list[tuple[Span, ...]], list[tuple[int, ...]]]:
        """Each group of layers is in no earlier stage than what it needs: so stages wait for earlier ones only."""
        groups = groups_of(self.layer_count, self.legal_cuts)
        label_of: dict[int, int] = {}
        for first, last in groups:
            needed = {maker for layer in range(first, last + 1) for maker in self.needs[layer] if maker < first}
            least = max((label_of[maker] for maker in needed), default=0)
            label = min(most - 1, least + (rng.random() < 0.5) * rng.randint(1, 2))
            label_of |= dict.fromkeys(range(first, last + 1), label)
        used = sorted(set(label_of.values()))
        works = [_runs([layer for layer, its in label_of.items() if its == label]) for label in used]
        after = []
        for label in used:
            makers = {m for layer, its in label_of.items() if its == label for m in self.needs[layer]}
            after.append(tuple(sorted({used.index(label_of[maker]) for maker in makers} - {used.index(label)})))
        return works, after


def _runs(layers: Sequence[int]) -> tuple[Span, ...]:
    """Ascending layers as first and last of each run."""
    starts = [layer for layer in layers if layer - 1 not in layers]
    ends = [layer for layer in layers if layer + 1 not in layers]
    return tuple(zip(starts, ends, strict=True))


def _random_pools(rng: random.Random, places: Sequence[str]) -> list[tuple[Team, ...]]:
    """Places in teams of one size within a pool, teams in pools."""
    left = rng.sample(list(places), len(places))
    pools: list[tuple[Team, ...]] = []
    while left and (not pools or rng.random() < 0.7):
        size = rng.choice([1, 1, 2])
        teams = rng.randint(1, max(1, len(left) // size))
        if size * teams > len(left):
            size = teams = 1
        taken, left = left[: size * teams], left[size * teams :]
        pools.append(tuple(tuple(taken[i : i + size]) for i in range(0, len(taken), size)))
    return pools
