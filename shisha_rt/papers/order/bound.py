"""What no chain over any order of the layers is below: it knows of groups and places, and of no order at all.

If a second on each place has a price, a chain of bottleneck B buys at most B seconds of each place that it uses, and
needs at least what every group costs where it is cheapest. A place's price is its speed. Without copies some stage has
the group that takes longest where it is quickest, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from shisha_rt.arrays import Floats
from shisha_rt.costs.costs import Costs
from shisha_rt.model.spans import Span
from shisha_rt.papers.order.group_costs import GroupCosts

_ROUNDED_DOWN: Final = 1 - 1e-9


def least_bottleneck_s(groups: GroupCosts, most_stages: int) -> float:
    """Lower bound for chains of up to `most_stages` stages, each on a place of its own."""
    prices = _prices(groups.time_s)
    bought = float(np.sort(np.repeat(prices, groups.counts))[-most_stages:].sum())
    longest_s = float(groups.time_s.min(axis=1).max())
    cheapest = float(_paid(groups.time_s, prices).min(axis=1).sum())
    return max(longest_s, cheapest / bought if bought else 0.0) * _ROUNDED_DOWN


def least_shared_s(groups: GroupCosts, costs: Costs, spans: Sequence[Span]) -> float:
    """Lower bound for chains whose stages may have copies and teams."""
    prices = _prices(groups.time_s)
    bought = float(np.repeat(prices, groups.counts).sum())
    cheapest = _paid(groups.time_s, prices).min(axis=1)
    kind_of = {place: kind for kind, places in enumerate(groups.places) for place in places}
    for team in costs.teams:
        team_s = np.add.reduceat(team.time_s, [first for first, _ in spans])[:, None]
        price = prices[[kind_of[team.places[0]]]] * len(team.places)
        cheapest = np.minimum(cheapest, _paid(np.where(np.isnan(team_s), np.inf, team_s), price)[:, 0])
    return float(cheapest.sum()) / bought * _ROUNDED_DOWN if bought else 0.0


def _prices(time_s: Floats) -> Floats:
    """(kinds,): one over the mean time of the groups that the places can run; 0 where that says nothing."""
    able = np.isfinite(time_s)
    sum_s = np.where(able, time_s, 0.0).sum(axis=0)
    prices: Floats = np.divide(able.sum(axis=0), sum_s, out=np.zeros(len(sum_s)), where=sum_s > 0)
    return prices


def _paid(time_s: Floats, prices: Floats) -> Floats:
    """(groups, kinds): what each costs; inf where it cannot run."""
    able = np.isfinite(time_s)
    paid: Floats = np.where(able, np.where(able, time_s, 0.0) * prices, np.inf)
    return paid
