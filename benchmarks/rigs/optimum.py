"""The plan of the least bottleneck by stored costs: by dynamic programming.

Costs are of stages, not sums of layers, so the minimised time is exactly the emulation's target for each stage with its
memory to itself. The cost of sharing a memory depends on the whole plan and is left out, so the best plans are run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from itertools import combinations

from shisha_rt.model.spans import starts_of
from shisha_rt.plan.plan import Plan, Stage

StageTime = Callable[[int, int, str], float]
"""(first layer, last layer, place) -> seconds for a frame."""

Spans = Sequence[tuple[int, int, str]]


class Optimum:
    """All plans of one model on one machine. Stages are (first, end, place), of groups of layers between legal cuts."""

    def __init__(
        self, layer_count: int, legal_cuts: Collection[int], places: Sequence[str], stage_time_s: StageTime
    ) -> None:
        self._places = tuple(places)
        self._starts = starts_of(layer_count, legal_cuts)
        self._groups = len(self._starts) - 1
        self._times_s = {
            place: {
                (first, end): stage_time_s(self._starts[first], self._starts[end] - 1, place)
                for first, end in combinations(range(self._groups + 1), 2)
            }
            for place in places
        }

    def bottleneck_s(self, plan: Plan) -> float:
        return max(map(self.stage_s, plan.stages))

    def stage_s(self, stage: Stage) -> float:
        return self._times_s[stage.place][self._starts.index(stage.first), self._starts.index(stage.last + 1)]

    # --- the places' order is given ---------------------------------------------------------------------------

    def best_in_order(self, order: Sequence[str]) -> Plan:
        """The best plan with these places in this order; some may stay unused."""
        best: list[tuple[float, tuple[tuple[int, int, str], ...]]] = [(0.0, ())]
        best += [(math.inf, ())] * self._groups
        for place in order:
            times_s = self._times_s[place]
            best = [
                min(
                    [best[end]]
                    + [
                        (max(best[first][0], times_s[first, end]), (*best[first][1], (first, end, place)))
                        for first in range(end)
                    ],
                    key=lambda found: found[0],
                )
                for end in range(self._groups + 1)
            ]
        return self._plan(best[self._groups][1])

    # --- any order --------------------------------------------------------------------------------------------

    def best_of_all(self) -> Plan:
        """The best plan over all orders and choices of places. Places with equal times for everything are one kind."""
        available = {kind: len(names) for kind, names in self._kinds.items()}
        best: list[dict[tuple[str, ...], tuple[float, tuple[tuple[int, int, str], ...]]]]
        best = [{} for _ in range(self._groups + 1)]
        best[0][()] = (0.0, ())
        for first in range(self._groups):
            for used, (before_s, spans) in best[first].items():
                for kind, count in available.items():
                    if used.count(kind) == count:
                        continue
                    now_used = tuple(sorted((*used, kind)))
                    times_s = self._times_s[self._kinds[kind][0]]
                    for end in range(first + 1, self._groups + 1):
                        found_s = max(before_s, times_s[first, end])
                        if found_s < best[end].get(now_used, (math.inf, ()))[0]:
                            best[end][now_used] = (found_s, (*spans, (first, end, kind)))
        _, spans = min(best[self._groups].values(), key=lambda found: found[0])
        names = {kind: iter(places) for kind, places in self._kinds.items()}
        return self._plan([(first, end, next(names[kind])) for first, end, kind in spans])

    @cached_property
    def _kinds(self) -> dict[str, list[str]]:
        """Kinds of places with equal times for everything, by the first of each."""
        kinds: dict[str, list[str]] = {}
        for place in self._places:
            same = (kind for kind in kinds if self._times_s[kind] == self._times_s[place])
            kinds.setdefault(next(same, place), []).append(place)
        return kinds

    def _plan(self, spans: Spans) -> Plan:
        return Plan.of((self._starts[first], self._starts[end] - 1, place) for first, end, place in spans)
