"""Among plans of one bottleneck, one of low latency, which is the sum of its stages' service times.

The difficulty is that the places of each kind are limited. With unlimited places at a price each (a Lagrange
multiplier), the least latency is a shortest path over positions; less the price of all places that may be used, it is a
lower bound. Subgradient steps look for prices that make the bound high. With each set of prices, a dive from the
network's end takes the cheapest stage again and again, among those that begin at a state of `Reach`: that makes a plan.
If bound and plan differ, a best-first search closes the gap, within a limit of states.

Sums are rounded, so "least" means up to a relative error of 1e-12.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from typing import Final, NamedTuple

import numpy as np

from shisha_rt.arrays import Floats, Ints
from shisha_rt.planner.goal import Goal
from shisha_rt.planner.kinds import KindedStage, StageCosts
from shisha_rt.planner.reach import Counts, Reach

_PRICINGS_PER_KIND: Final = 4
_AS_GOOD: Final = 1 - 1e-12


@dataclass(frozen=True, slots=True)
class Latency:
    """`stages` in pipeline order. `bound_s`: a lower bound of the latency; `states`: how many the search expanded."""

    stages: Sequence[KindedStage]
    latency_s: float
    bound_s: float
    states: int

    @property
    def is_least(self) -> bool:
        return self.bound_s >= _AS_GOOD * self.latency_s


class _Tail(NamedTuple):
    """The stages from a position to the network's end: the first stage, and the tail that follows it."""

    latency_s: float
    first: KindedStage
    rest: _Tail | None

    def stages(self) -> Iterator[KindedStage]:
        tail: _Tail | None = self
        while tail is not None:
            yield tail.first
            tail = tail.rest


class _Ending(NamedTuple):
    """All stages that end at one position: (stages,) each."""

    kind: Ints
    begin: Ints
    service_s: Floats


class _Relaxed(NamedTuple):
    """The solution with unlimited places at `prices` (kinds,).

    `to_s` (positions,): the least latency up to there, prices included. `used` (kinds,): the places on the shortest
    path to the end. `start`: of the states to begin with, the one of the highest price. `bound_s`: a lower bound of the
    latency.
    """

    prices: Floats
    to_s: Floats
    used: Ints
    start: Counts
    bound_s: float


def low_latency(model: StageCosts, table: Reach, goal: Goal) -> Latency:
    """Find a plan of low latency with stages within R_k of `table`, which is whole and was computed `to_the_end`.

    The search expands at most `goal.latency_states`.
    """
    search = _Search(table, _endings(model, table.stages), np.array(list(table.furthest_states())))
    relaxed = tightest = search.relax(np.zeros(len(model.kinds)))
    best = search.dive(relaxed)
    for _ in range(_PRICINGS_PER_KIND * len(model.kinds)):
        latency = Latency(tuple(best.stages()), best.latency_s, tightest.bound_s, states=0)
        if latency.is_least or goal.should_stop():
            return latency
        relaxed = search.relax(_repriced(relaxed, best.latency_s))
        tightest = max(tightest, relaxed, key=lambda bounds: bounds.bound_s)
        best = min(best, search.dive(relaxed), key=lambda tried: tried.latency_s)
    return search.best_first(tightest, best, goal)


@dataclass(frozen=True, slots=True, eq=False)
class _Search:
    """`ending` (positions,): stages by their ends; `starts` (states, kinds): those that reach the network's end."""

    table: Reach
    ending: Sequence[_Ending]
    starts: Ints

    def relax(self, prices: Floats) -> _Relaxed:
        ending, starts = self.ending, self.starts
        to_s = np.zeros(len(ending))
        last = [0] * len(ending)
        for end in range(1, len(ending)):
            through_s = _through_s(ending[end], to_s, prices)
            if through_s.size:
                last[end] = int(through_s.argmin())
                to_s[end] = through_s[last[end]]
            else:
                to_s[end] = math.inf
        used = np.zeros(len(prices), np.int64)
        end = len(ending) - 1
        while end:
            used[ending[end].kind[last[end]]] += 1
            end = int(ending[end].begin[last[end]])
        start = starts[int((starts @ prices).argmax())]
        return _Relaxed(prices, to_s, used, tuple(start.tolist()), float(to_s[-1] - start @ prices))

    def begins_met(self, used: Counts) -> tuple[Ints, dict[int, Counts]]:
        """(kinds,): the last begin of a last stage on the kind, -1 if no place is left; the states before, by kind."""
        before = dict(self.table.before(used))
        return np.array([self.table[before[kind]] if kind in before else -1 for kind in range(len(used))]), before

    def dive(self, relaxed: _Relaxed) -> _Tail:
        used, end = relaxed.start, len(self.ending) - 1
        tail: _Tail | None = None
        while end or tail is None:
            stages = self.ending[end]
            met, before = self.begins_met(used)
            through_s = np.where(
                stages.begin <= met[stages.kind], _through_s(stages, relaxed.to_s, relaxed.prices), math.inf
            )
            tail = _longer(tail, stages, int(through_s.argmin()), end)
            kind, end, _ = tail.first
            used = before[kind]
        return tail

    def best_first(self, relaxed: _Relaxed, best: _Tail, goal: Goal) -> Latency:
        """Expand states (used, end) in order of their lower bounds, until a bound is no lower than the best plan."""
        prices, to_s, ending = relaxed.prices, relaxed.to_s, self.ending
        number = count()
        least_s: dict[tuple[Counts, int], float] = {}
        waiting: list[tuple[float, int, Counts, int, _Tail | None]] = []
        for start in self.table.furthest_states():
            heapq.heappush(waiting, (float(to_s[-1] - prices @ start), next(number), start, len(ending) - 1, None))
        states = 0
        while waiting:
            bound_s, _, used, end, tail = heapq.heappop(waiting)
            if bound_s >= _AS_GOOD * best.latency_s:
                break
            after_s = tail.latency_s if tail else 0.0
            if least_s.get((used, end), math.inf) < after_s:
                continue
            if states == goal.latency_states or goal.should_stop():
                return Latency(tuple(best.stages()), best.latency_s, bound_s, states)
            states += 1
            stages = ending[end]
            met, before = self.begins_met(used)
            bounds_s = after_s + _through_s(stages, to_s, prices) - prices @ used
            open_ = (stages.begin <= met[stages.kind]) & (bounds_s < _AS_GOOD * best.latency_s)
            for at in np.flatnonzero(open_).tolist():
                longer = _longer(tail, stages, at, end)
                kind, begin, _ = longer.first
                state = before[kind], begin
                if begin == 0:
                    best = min(best, longer, key=lambda tried: tried.latency_s)
                elif longer.latency_s < least_s.get(state, math.inf):
                    least_s[state] = longer.latency_s
                    heapq.heappush(waiting, (float(bounds_s[at]), next(number), *state, longer))
        return Latency(tuple(best.stages()), best.latency_s, best.latency_s, states)


def _endings(model: StageCosts, stages: Ints) -> list[_Ending]:
    """(positions,): all stages within R_k, `stages` (kinds, positions), by their ends."""
    lengths = stages - np.arange(model.groups + 1)
    kind, begin = (np.repeat(index.ravel(), lengths.ravel()) for index in np.indices(stages.shape))
    shorter = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths.ravel(), lengths.ravel())
    end = begin + 1 + shorter
    prefix_s = np.stack([place_kind.prefix_s for place_kind in model.kinds])
    service_s = prefix_s[kind, end] - prefix_s[kind, begin] + model.entry_s[begin]
    order = np.argsort(end, kind="stable")
    bounds = np.searchsorted(end[order], np.arange(model.groups + 2)).tolist()
    parts = (order[first:last] for first, last in pairwise(bounds))
    return [_Ending(kind[part], begin[part], service_s[part]) for part in parts]


def _through_s(stages: _Ending, to_s: Floats, prices: Floats) -> Floats:
    """(stages,): the least latency up to the end of each stage, if it is the last, prices included."""
    return to_s[stages.begin] + stages.service_s + prices[stages.kind]


def _repriced(relaxed: _Relaxed, best_s: float) -> Floats:
    """Polyak's step: prices rise for kinds of which more places are used than exist."""
    slope = (relaxed.used - np.array(relaxed.start)).astype(np.float64)
    slope[(slope < 0) & (relaxed.prices == 0)] = 0
    steepness = float(slope @ slope)
    step_s = (best_s - relaxed.bound_s) / steepness if steepness else 0.0
    prices: Floats = np.maximum(0.0, relaxed.prices + step_s * slope)
    return prices


def _longer(tail: _Tail | None, stages: _Ending, at: int, end: int) -> _Tail:
    stage = int(stages.kind[at]), int(stages.begin[at]), end
    return _Tail(float(stages.service_s[at]) + (tail.latency_s if tail else 0.0), stage, tail)
