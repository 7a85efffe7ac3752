"""The chain of the least bottleneck over all orders and choices of places, for any times of stages.

Times are of stages, not sums of layers, so that a place may cost something to enter, which `exact` does not know. What
sharing a memory costs depends on the whole plan and is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from itertools import combinations

from shisha_rt.model.spans import starts_of
from shisha_rt.plan.plan import Plan

StageTime = Callable[[int, int, str], float]
"""(first layer, last layer, place) -> seconds for a frame."""

Stages = tuple[tuple[int, int, str], ...]
"""(first group, end, kind): of groups of layers between legal cuts."""


def best_chain(layer_count: int, legal_cuts: Collection[int], places: Sequence[str], stage_time_s: StageTime) -> Plan:
    """Places with equal times for everything are one kind, named by the first of them."""
    starts = starts_of(layer_count, legal_cuts)
    groups = len(starts) - 1
    times_s = {
        place: {
            (first, end): stage_time_s(starts[first], starts[end] - 1, place)
            for first, end in combinations(range(groups + 1), 2)
        }
        for place in places
    }
    kinds: dict[str, list[str]] = {}
    for place in places:
        same = (kind for kind in kinds if times_s[kind] == times_s[place])
        kinds.setdefault(next(same, place), []).append(place)
    # By the end: kinds used (ascending) -> the least bottleneck, and its stages.
    best: list[dict[tuple[str, ...], tuple[float, Stages]]] = [{} for _ in range(groups + 1)]
    best[0][()] = (0.0, ())
    for first in range(groups):
        for used, (before_s, stages) in best[first].items():
            for kind in (kind for kind, alike in kinds.items() if used.count(kind) < len(alike)):
                now_used = tuple(sorted((*used, kind)))
                for end in range(first + 1, groups + 1):
                    bottleneck_s = max(before_s, times_s[kind][first, end])
                    if bottleneck_s < best[end].get(now_used, (math.inf, ()))[0]:
                        best[end][now_used] = (bottleneck_s, (*stages, (first, end, kind)))
    _, stages = min(best[groups].values(), key=lambda reached: reached[0])
    names = {kind: iter(alike) for kind, alike in kinds.items()}
    return Plan.of((starts[first], starts[end] - 1, next(names[kind])) for first, end, kind in stages)
