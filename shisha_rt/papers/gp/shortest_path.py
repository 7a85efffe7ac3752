"""The resource-constrained shortest path in an acyclic graph, by Lagrangian relaxation and label setting.

Edges (`Stretch`) lead between points, from point 0 to the last one. Each edge has several options, with a cost and a
use of each budget. Without budgets this is the shortest path. With budgets, these get prices (Lagrange multipliers):
the least priced cost, less the price of the whole budgets, is a proven lower bound, and paths within the budgets that
occur on the way are good answers. If that is no proof yet, labels are extended from point to point; labels that are
dominated, cannot keep a budget or cannot end below the best known cost are dropped. The least label at the end is
proven to be the optimum. If there are too many labels, the answer is the best known, with its bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from shisha_rt.arrays import Floats, Ints
from shisha_rt.outcome import Outcome
from shisha_rt.papers.gp.problem import ROUNDING

MOST_WAYS: Final = 4000
"""Most labels kept at one point. If there are more, those of the least bounds are kept, and nothing is proven."""
_FIRST: Final = 16
"""A first pass keeps so many times fewer labels, for a good answer that rules out many labels of the second."""
_PRICINGS: Final = 80
_PROVEN: Final = 1e-9
_TIE: Final = 1e-12


@dataclass(frozen=True, slots=True)
class Stretch:
    """From point `source` to the later `target`: `costs` (options,), finite, and `taken` (options, budgets)."""

    source: int
    target: int
    costs: Floats
    taken: Floats


@dataclass(frozen=True, slots=True)
class Way:
    """A path. `picks`: (stretch, option) in order; None: no path was found. `lower_bound`: proven, or None."""

    picks: tuple[tuple[int, int], ...] | None
    outcome: Outcome
    lower_bound: float | None = None


@dataclass(frozen=True, slots=True)
class BudgetedGraph:
    """`stretches`: in the order of their sources. Points are numbered up to `points`, the last of which is the end."""

    stretches: Sequence[Stretch]
    points: int
    budgets: Floats

    def cost_of(self, picks: Sequence[tuple[int, int]]) -> float:
        """Cost of a path, whatever it takes of budgets."""
        return math.fsum(float(self.stretches[stretch].costs[option]) for stretch, option in picks)

    def least_taken(self, budget: int) -> float:
        """Least use of one budget over all paths; inf if there is no path."""
        return float(self.to_the_end([stretch.taken[:, budget] for stretch in self.stretches])[0])

    def to_the_end(self, costs: Sequence[Floats]) -> Floats:
        """(points,): the least cost from each point to the end, by costs (options,) of each stretch."""
        least = np.full(self.points, np.inf)
        least[-1] = 0.0
        for stretch, cost in zip(reversed(self.stretches), reversed(costs), strict=True):
            least[stretch.source] = min(least[stretch.source], float(cost.min()) + least[stretch.target])
        return least

    def scaled(self) -> BudgetedGraph:
        """Without budgets that another one implies, as no option uses a larger fraction of them; the others are 1."""
        parts = np.concatenate([stretch.taken for stretch in self.stretches]) / self.budgets
        left = list(range(len(self.budgets)))
        for b in range(len(self.budgets)):
            if any(other != b and (parts[:, b] <= parts[:, other]).all() for other in left):
                left.remove(b)
        stretches = [replace(stretch, taken=stretch.taken[:, left] / self.budgets[left]) for stretch in self.stretches]
        return BudgetedGraph(stretches, self.points, np.ones(len(left)))


def least_way(graph: BudgetedGraph, most_ways: int = MOST_WAYS) -> Way:
    """Find the least path."""
    if not len(graph.budgets):
        priced, bound = _priced(graph, graph.budgets)
        return Way(None, Outcome.INFEASIBLE) if priced is None else Way(priced, Outcome.OPTIMAL, bound)
    if any(graph.least_taken(b) > limit * (1 + ROUNDING) for b, limit in enumerate(graph.budgets)):
        return Way(None, Outcome.INFEASIBLE)
    graph = graph.scaled()
    known = _by_prices(graph)
    if known.cost <= known.bound + _PROVEN * abs(known.bound):
        return Way(known.picks, Outcome.OPTIMAL, known.bound)
    for most in (most_ways // _FIRST, most_ways):
        ways = _Lengthening(graph, known, max(1, most))
        picks = ways.run()
        if picks:
            known = replace(known, picks=picks, cost=graph.cost_of(picks))
        if ways.complete:
            if known.picks is None:
                return Way(None, Outcome.INFEASIBLE)
            return Way(known.picks, Outcome.OPTIMAL, known.cost)
    return Way(known.picks, Outcome.LIMIT if known.picks is None else Outcome.FEASIBLE, known.bound)


def undominated(costs: Floats, taken: Floats) -> Ints:
    """Indices of undominated labels, cheapest first: no other label costs no more and takes no more of every budget.

    `costs` (labels,), `taken` (labels, budgets).
    """
    order = np.lexsort((*taken.T, costs))
    if taken.shape[1] <= 1:
        total = taken[order].sum(axis=1)
        before = np.concatenate(([np.inf], np.minimum.accumulate(total)[:-1]))
        kept: Ints = order[total < before]
        return kept
    front = np.empty_like(taken)
    chosen: list[int] = []
    for i in order:
        if not (front[: len(chosen)] <= taken[i]).all(axis=1).any():
            front[len(chosen)] = taken[i]
            chosen.append(i)
    return np.array(chosen, dtype=np.int64)


def _priced(graph: BudgetedGraph, prices: Floats) -> tuple[tuple[tuple[int, int], ...] | None, float]:
    """The least path with priced budgets, and its priced cost; None without a path. Ties: the earlier stretch."""
    stretches, least = graph.stretches, np.full(graph.points, np.inf)
    least[-1] = 0.0
    picks: list[tuple[int, int] | None] = [None] * graph.points
    for index in reversed(range(len(stretches))):
        stretch = stretches[index]
        costs = stretch.costs + stretch.taken @ prices if len(prices) else stretch.costs
        option = int(np.argmin(costs))
        total_s = float(costs[option]) + least[stretch.target]
        if total_s * (1 - _TIE) <= least[stretch.source]:
            least[stretch.source], picks[stretch.source] = total_s, (index, option)
    if not math.isfinite(least[0]):
        return None, math.inf
    steps, point = [], 0
    while (pick := picks[point]) is not None:
        steps.append(pick)
        point = stretches[pick[0]].target
    return tuple(steps), float(least[0])


@dataclass(frozen=True, slots=True)
class _Known:
    """The best path so far (None) and its cost (inf), the best bound, and the prices that prove it."""

    picks: tuple[tuple[int, int], ...] | None
    cost: float
    bound: float
    prices: Floats


def _by_prices(graph: BudgetedGraph) -> _Known:
    """By subgradients, budgets being 1."""
    prices = np.zeros(len(graph.budgets))
    known = _Known(None, math.inf, -math.inf, prices)
    step, without_gain = 1.0, 0
    for _ in range(_PRICINGS):
        priced, value = _priced(graph, prices)
        assert priced is not None, "every budget by itself can be kept"
        over = sum(graph.stretches[stretch].taken[option] for stretch, option in priced) - 1.0
        value -= float(prices.sum())
        cost = graph.cost_of(priced)
        if (over <= ROUNDING).all() and cost < known.cost:
            known = replace(known, picks=priced, cost=cost)
        if value > known.bound:
            known, without_gain = replace(known, bound=value, prices=prices), 0
        else:
            without_gain += 1
            if without_gain == 5:
                step, without_gain, prices = step / 2, 0, known.prices
                continue
        if known.cost <= known.bound + _PROVEN * abs(known.bound):
            break
        # Polyak's step towards the best known cost, or towards a tenth above the bound while none is known.
        target = min(known.cost, known.bound + 0.1 * abs(known.bound)) if math.isfinite(known.bound) else cost
        size = float(over @ over)
        if not size:
            break
        prices = np.maximum(0.0, prices + step * max(target - value, _PROVEN) / size * over)
    return known


class _Lengthening:
    """Label setting: labels of paths from point 0, with their costs and uses of budgets, extended point by point."""

    def __init__(self, graph: BudgetedGraph, known: _Known, most_ways: int) -> None:
        self._stretches, self._points = graph.stretches, graph.points
        self._prices, self._most_ways = known.prices, most_ways
        self.complete = True
        self._below = known.cost * (1 - _PROVEN) + float(known.prices.sum())
        self._rest = graph.to_the_end([stretch.costs + stretch.taken @ known.prices for stretch in graph.stretches])
        uses = [[stretch.taken[:, b] for stretch in graph.stretches] for b in range(len(graph.budgets))]
        self._least = np.stack([graph.to_the_end(use) for use in uses], axis=1)

    def run(self) -> tuple[tuple[int, int], ...]:
        """The least path found below the best known cost, () if there is none. If `complete`, that is proven."""
        budgets = len(self._prices)
        arrived: list[list[_Ways]] = [[] for _ in range(self._points)]
        kept: list[_Ways] = []
        arrived[0] = [_Ways(np.zeros(1), np.zeros((1, budgets)), np.full((1, 4), -1, dtype=np.int64))]
        by_source: list[list[int]] = [[] for _ in range(self._points)]
        for index, stretch in enumerate(self._stretches):
            by_source[stretch.source].append(index)
        for point in range(self._points):
            here = self._best_prospects(_joined(arrived[point], budgets), point)
            here = here.only(undominated(here.costs, here.taken))
            kept.append(here)
            for index in by_source[point]:
                arrived[self._stretches[index].target].append(self._lengthened(here, point, index))
        return _traced(kept)

    def _best_prospects(self, ways: _Ways, point: int) -> _Ways:
        """Keep at most `most_ways` labels, those of the least bounds; if some are dropped, `complete` becomes False."""
        if len(ways.costs) <= self._most_ways:
            return ways
        self.complete = False
        prospects = ways.costs + ways.taken @ self._prices + self._rest[point]
        return ways.only(np.argpartition(prospects, self._most_ways)[: self._most_ways])

    def _lengthened(self, here: _Ways, point: int, index: int) -> _Ways:
        """Extend labels by every option of a stretch, and keep those that may still lead to the best path."""
        stretch = self._stretches[index]
        costs = (here.costs[:, None] + stretch.costs[None, :]).ravel()
        taken = (here.taken[:, None, :] + stretch.taken[None, :, :]).reshape(len(costs), len(self._prices))
        fits = (taken + self._least[stretch.target] <= 1 + ROUNDING).all(axis=1)
        may_be_best = costs + taken @ self._prices + self._rest[stretch.target] <= self._below
        chosen = np.flatnonzero(fits & may_be_best)
        way, option = np.divmod(chosen, len(stretch.costs))
        origin = np.stack([np.full(len(chosen), point), way, np.full(len(chosen), index), option], axis=1)
        return _Ways(costs[chosen], taken[chosen], origin)


@dataclass(frozen=True, slots=True)
class _Ways:
    """Labels at one point: `costs` (labels,), `taken` (labels, budgets), `origin` (labels, 4): the point before, the
    label there, the stretch and the option.
    """

    costs: Floats
    taken: Floats
    origin: Ints

    def only(self, chosen: Ints) -> _Ways:
        return _Ways(self.costs[chosen], self.taken[chosen], self.origin[chosen])


def _joined(ways: Sequence[_Ways], budgets: int) -> _Ways:
    if not ways:
        return _Ways(np.zeros(0), np.zeros((0, budgets)), np.zeros((0, 4), dtype=np.int64))
    return _Ways(
        np.concatenate([way.costs for way in ways]),
        np.concatenate([way.taken for way in ways]),
        np.concatenate([way.origin for way in ways]),
    )


def _traced(kept: Sequence[_Ways]) -> tuple[tuple[int, int], ...]:
    if not len(kept[-1].costs):
        return ()
    point, way = len(kept) - 1, int(np.argmin(kept[-1].costs))
    picks = []
    while point:
        before, previous, stretch, option = (int(n) for n in kept[point].origin[way])
        picks.append((stretch, option))
        point, way = before, previous
    return tuple(reversed(picks))
