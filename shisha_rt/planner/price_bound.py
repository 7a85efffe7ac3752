"""A lower bound of any plan's bottleneck, by prices: for all planners and any order of the layers.

Give a second on each place a price. A chain of bottleneck B uses at most B seconds of each of its places, and every
group costs at least as much as on its cheapest kind. So B is at least the sum of these costs over the price of a second
on all places. A place's price is its speed. (Better prices need a linear program: `prices.py`.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from shisha_rt.arrays import Floats
from shisha_rt.planner.chains import TOLERANCE


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
