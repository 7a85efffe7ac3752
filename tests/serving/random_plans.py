"""Plans of all kinds that a model and alike places allow: chains, copies, teams, pools of several stages, branches."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from shisha_rt.model.spans import Span, groups_of
from shisha_rt.model.split import MOST_SUMMED, Split, Splittable
from shisha_rt.plan.plan import Plan, Stage, Team


@dataclass(frozen=True)
class Cuttable:
    """What is needed to cut a model: see `PlanRules`."""

    layer_count: int
    legal_cuts: frozenset[int]
    needs: Sequence[frozenset[int]]
    splits: Sequence[Splittable] = ()

    def random_split_plan(self, rng: random.Random, places: Sequence[str]) -> Plan:
        """A chain on single places, with one or two of its runs of layers in shards on different ones."""
        chosen: list[Splittable] = []
        for split in rng.sample(self.splits, len(self.splits)):
            if len(chosen) < 2 and all(split.last < other.first or other.last < split.first for other in chosen):
                chosen.append(split)
        stages: list[Stage] = []
        ends: tuple[int, ...] = ()
        begin, join = 0, None  # of the stage that is still to be added

        def add_whole(last: int) -> None:
            nonlocal ends, join
            if last >= begin or join is not None:
                stages.append(Stage(((begin, last),), ((rng.choice(places),),), ends, split=join))
                ends, join = (len(stages) - 1,), None

        for splittable in sorted(chosen[: rng.randint(1, 2)], key=lambda splittable: splittable.first):
            add_whole(splittable.first - 1)
            span, shares = (
                (splittable.first, splittable.last),
                random_shares(splittable, rng.randint(2, len(places)), rng),
            )
            on = rng.sample(list(places), len(shares))
            stages += (
                Stage((span,), ((place,),), ends, split=Split(span, splittable.axis, shares, part))
                for part, place in enumerate(on)
            )
            ends, begin = tuple(range(len(stages) - len(shares), len(stages))), splittable.last + 1
            if splittable.joined or splittable.summed:
                begin, join = splittable.first, Split(span, splittable.axis, shares, len(shares))
                add_whole(splittable.last)
                begin = splittable.last + 1
        add_whole(self.layer_count - 1)
        return Plan(tuple(stages))

    def random_plan(self, rng: random.Random, places: Sequence[str]) -> Plan:
        """Any cutting into an acyclic graph of stages, on any pools of teams of `places`, which are all alike."""
        if rng.random() < 0.2:
            return self._plain_chain(rng, places)
        works, after = self._random_graph(rng, rng.randint(1, 5))
        pools = _random_pools(rng, places)
        return Plan(tuple(Stage(work, rng.choice(pools), before) for work, before in zip(works, after, strict=True)))

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
        works = [_runs([layer for layer, of_layer in label_of.items() if of_layer == label]) for label in used]
        after = []
        for label in used:
            makers = {m for layer, of_layer in label_of.items() if of_layer == label for m in self.needs[layer]}
            after.append(tuple(sorted({used.index(label_of[maker]) for maker in makers} - {used.index(label)})))
        return works, after


def random_shares(splittable: Splittable, parts: int, rng: random.Random) -> tuple[int, ...]:
    """As many shares as there may be, up to `parts`, of random sizes."""
    blocks = -(-splittable.units // splittable.block)
    ends = sorted(rng.sample(range(1, blocks), min(parts, blocks, MOST_SUMMED) - 1))
    counts = [(end - begin) * splittable.block for begin, end in zip([0, *ends], [*ends, blocks], strict=True)]
    counts[-1] -= sum(counts) - splittable.units
    return tuple(counts)


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
