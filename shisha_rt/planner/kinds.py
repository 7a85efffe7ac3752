"""All possible stages and their times: layers in groups, places in kinds.

Layers that no legal cut parts are one group; places of equal costs and capacity are one kind. Positions 0 to `groups`
lie between groups: a stage is the groups between two positions, its begin and its end. On a kind, a stage with a given
begin takes no less time and no less memory the later its end: all ends up to that of the longest stage within a bound
keep the bound, too.

Prefix sums are quick, but their rounding differs from the `fsum` of a stage. So they only narrow down the choice: what
they leave in doubt is decided by `stage_service_s`, and every answer here is exact to the last bit.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from shisha_rt.arrays import Floats, Ints
from shisha_rt.costs.alike import kinds_of
from shisha_rt.costs.costs import Costs, stage_service_s
from shisha_rt.costs.room import held_up_to
from shisha_rt.model.spans import starts_of
from shisha_rt.plan.plan import Plan

KindedStage = tuple[int, int, int]
"""(kind, begin, end): the groups from position `begin` up to and without `end`, on a place of the kind."""

_ROUNDING: Final = 4 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """Places (indices, as listed) that nothing tells apart; `name`: of the first.

    `prefix_s` (positions,): seconds of all groups before the position, 0 for a layer that cannot run here. `longest`
    (positions,): end of the longest stage that begins there, whatever time it takes; the position itself if there is
    none. `fits`: the same by memory alone.
    """

    name: str
    places: tuple[int, ...]
    prefix_s: Floats
    longest: Ints
    fits: Ints


@dataclass(frozen=True, slots=True, eq=False)
class StageCosts:
    """`starts` (positions,): the first layer of each group, then the number of layers. `entry_s` (positions,): seconds
    that a stage pays to begin there. `kinds`: the one with the most places comes last.
    """

    costs: Costs
    starts: tuple[int, ...]
    entry_s: Floats
    kinds: tuple[Kind, ...]

    @property
    def groups(self) -> int:
        return len(self.starts) - 1

    def service_s(self, stage: KindedStage) -> float:
        kind, begin, end = stage
        place = self.kinds[kind].places[0]
        return stage_service_s(self.costs, self.starts[begin], self.starts[end] - 1, place)

    def bottleneck_s(self, stages: Iterable[KindedStage]) -> float:
        return max(map(self.service_s, stages))

    def furthest(self, bound_s: float) -> Ints:
        """(kinds, positions): end of the longest stage of at most `bound_s` seconds; R_k of the recursion (`reach`)."""
        return np.stack([self._furthest(index, bound_s) for index in range(len(self.kinds))])

    def _furthest(self, index: int, bound_s: float) -> Ints:
        kind = self.kinds[index]
        if math.isinf(bound_s):
            return kind.longest
        room_s = bound_s - self.entry_s + kind.prefix_s
        doubt_s = self._doubt_s(kind, bound_s)
        begins = np.arange(self.groups + 1)
        surely, perhaps = (
            np.clip(np.searchsorted(kind.prefix_s, room_s + by_s, side="right") - 1, begins, kind.longest)
            for by_s in (-doubt_s, doubt_s)
        )
        for begin in np.flatnonzero(surely < perhaps).tolist():
            in_doubt = [(index, begin, end) for end in range(surely[begin] + 1, perhaps[begin] + 1)]
            surely[begin] += bisect_right(in_doubt, bound_s, key=self.service_s)
        return surely

    def next_s(self, furthest: Ints) -> float:
        """Least seconds among the stages that are one group longer than those of `furthest`; inf if there is none."""
        return min((self._next_s(index, ends) for index, ends in enumerate(furthest)), default=math.inf)

    def _next_s(self, index: int, furthest: Ints) -> float:
        kind = self.kinds[index]
        begins = np.flatnonzero(furthest < kind.longest)
        if not begins.size:
            return math.inf
        ends = furthest[begins] + 1
        about_s = kind.prefix_s[ends] - kind.prefix_s[begins] + self.entry_s[begins]
        near = about_s <= about_s.min() + 2 * self._doubt_s(kind, float(about_s.min()))
        pairs = zip(begins[near].tolist(), ends[near].tolist(), strict=True)
        return min(self.service_s((index, begin, end)) for begin, end in pairs)

    def _doubt_s(self, kind: Kind, bound_s: float) -> float:
        """Bound on the rounding error of sums of up to `bound_s` seconds that are made from prefix sums."""
        largest_s = float(kind.prefix_s[-1]) + float(self.entry_s.max()) + bound_s
        return _ROUNDING * (len(self.costs.layers) + 4) * largest_s

    def why_no_room(self, most_stages: int, position: int) -> str:
        """Why there is no plan, if plans get no further than a position: places lack memory, or times for layers."""
        layer = self.starts[position]
        name = self.costs.layers[layer].name
        return f"no plan of up to {most_stages} stages has places for layers 0-{layer} ({name})"

    def with_some(self, counts: Sequence[int]) -> tuple[StageCosts, tuple[int, ...]]:
        """Leave out kinds of which there are to be no places; also return the others.

        Arrays have an axis for each kind, and there may be more than numpy allows.
        """
        kept = tuple(kind for kind, count in enumerate(counts) if count)
        return replace(self, kinds=tuple(self.kinds[kind] for kind in kept)), kept

    def with_fewer_cuts(self, most_groups: int) -> StageCosts:
        """Keep evenly spread cuts, for at most so many groups, but at least one."""
        if self.groups <= most_groups:
            return self
        most = max(most_groups, 1)
        cuts = [self.starts[round(at * self.groups / most)] - 1 for at in range(1, most)]
        transfer_s = np.full_like(self.costs.transfer_s, np.nan)
        transfer_s[cuts] = self.costs.transfer_s[cuts]
        return stage_costs(replace(self.costs, transfer_s=transfer_s))

    def plan(self, stages: Iterable[KindedStage]) -> Plan:
        """Return the plan of `stages`, in pipeline order; of each kind, the places listed first are used."""
        free = [iter(kind.places) for kind in self.kinds]
        return Plan.of(
            (self.starts[begin], self.starts[end] - 1, self.costs.places[next(free[kind])].name)
            for kind, begin, end in stages
        )


def stage_costs(costs: Costs) -> StageCosts:
    """The stages that `costs` allow."""
    starts = starts_of(len(costs.layers), costs.legal_cuts)
    entry_s = np.append(costs.entry_s[list(starts[:-1])], 0.0)
    return StageCosts(costs, starts, entry_s, tuple(sorted(_kinds(costs, starts), key=lambda kind: len(kind.places))))


def _kinds(costs: Costs, starts: Sequence[int]) -> Iterator[Kind]:
    at = np.array(starts)
    kinds = kinds_of(costs)
    for places, fits in zip(kinds, fitting(costs, at, [first for first, *_ in kinds]), strict=True):
        time_s = costs.time_s[:, places[0]]
        prefix_s = np.concatenate([[0.0], np.nancumsum(time_s)])[at]
        yield Kind(costs.places[places[0]].name, places, prefix_s, np.minimum(_runnable(time_s, at), fits), fits)


def _runnable(time_s: Floats, starts: Ints) -> Ints:
    """(positions,): the last end of a stage that begins there and has only layers that the place can run."""
    cannot = np.append(np.flatnonzero(np.isnan(time_s)), len(time_s))
    next_cannot = cannot[np.minimum(np.searchsorted(cannot, starts), len(cannot) - 1)]
    return np.searchsorted(starts, next_cannot, side="right") - 1


def fitting(costs: Costs, starts: Ints, places: Sequence[int], frames: int = 1) -> Ints:
    """(places, positions): the last end of a stage that begins there, with batches of `frames`, and fits the memory."""
    groups = len(starts) - 1
    room_bytes = np.array([costs.places[place].room_bytes for place in places])
    furthest = np.full((len(room_bytes), groups + 1), groups)
    if np.isinf(room_bytes).all():
        return furthest
    weight_bytes = np.add.reduceat([float(layer.weight_bytes) for layer in costs.layers], starts[:-1])
    live_bytes = np.maximum.reduceat([float(frames * layer.live_bytes) for layer in costs.layers], starts[:-1])
    for begin in range(groups):
        held = held_up_to(np.cumsum(weight_bytes[begin:]), live_bytes[begin:])
        furthest[:, begin] = begin + np.searchsorted(held, room_bytes, side="right")
    return furthest
