"""What no plan is below: a bound by prices, for all planners and any order of the layers.

If a second on each place has a price, a chain of bottleneck B buys at most B seconds of each place that it uses, and
needs at least what every group costs where it is cheapest. A place's price is its speed. (Better prices than speeds
take a linear program: `prices.py`.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from shisha_rt.arrays import Floats
from shisha_rt.planner.chains import TOLERANCE


def speeds(place_s: Floats) -> Floats:
    """(kinds,): one over the mean time of the groups that a kind can run; 0 where that says nothing.

    `place_s` (groups, kinds): seconds of its places that a frame takes, inf where they cannot run the group.
    """
    able = np.isfinite(place_s)
    total_s = np.where(able, place_s, 0.0).sum(axis=0)
    per_s: Floats = np.divide(able.sum(axis=0), total_s, out=np.zeros(len(total_s)), where=total_s > 0)
    return per_s


def bottleneck_bound_s(place_s: Floats, counts: Sequence[int], most_stages: int | None = None) -> float:
    """No chain over `counts` (kinds,) places has a smaller bottleneck; `place_s` as in `speeds`.

    `most_stages`: up to so many, each on one place, so that some stage has the group that takes longest where it is
    quickest; None: stages may have copies and teams, which `place_s` then has the best of.
    """
    prices = speeds(place_s)
    able = np.isfinite(place_s)
    paid = np.where(able, np.where(able, place_s, 0.0) * prices, np.inf).min(axis=1).sum()
    places = np.sort(np.repeat(prices, counts))
    worth = float((places if most_stages is None else places[-most_stages:]).sum())
    bound_s = float(paid) / worth if worth and math.isfinite(paid) else 0.0
    longest_s = 0.0 if most_stages is None else float(place_s.min(axis=1).max())
    return max(bound_s, longest_s) * (1 - TOLERANCE)
