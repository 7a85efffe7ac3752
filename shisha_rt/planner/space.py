"""How many plans there are: what a search leaves unexplored."""

from __future__ import annotations

import math


def plan_count(legal_cut_count: int, place_count: int, stage_count: int) -> int:
    """Plans of 1 to `stage_count` stages over the legal cuts, each stage on a place of its own, in any order."""
    return sum(math.comb(legal_cut_count, n - 1) * math.perm(place_count, n) for n in range(1, stage_count + 1))


def explored_fraction(trials: int, layer_count: int, stage_count: int) -> float:
    """Shisha (2022), section 6: trials over C(L-1, N-1), the ways to cut L layers with the places fixed."""
    return trials / math.comb(layer_count - 1, stage_count - 1)
