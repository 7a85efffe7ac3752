"""Every plan there is, listed without the project's own searches."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence

from shisha_rt.plan.plan import Plan


def all_plans(
    layer_count: int, places: Sequence[str], stage_count: int, legal_cuts: Collection[int] | None = None
) -> Iterator[Plan]:
    """Of 1 to `stage_count` stages over the legal cuts (None: all), each stage on a place of its own."""
    cuts = range(layer_count - 1) if legal_cuts is None else sorted(legal_cuts)
    for count in range(1, stage_count + 1):
        for chosen in itertools.combinations(cuts, count - 1):
            edges = [-1, *chosen, layer_count - 1]
            for names in itertools.permutations(places, count):
                yield Plan.of((edges[i] + 1, edges[i + 1], name) for i, name in enumerate(names))
