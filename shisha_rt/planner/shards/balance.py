"""The optimal boundaries of the stages of a chain over pieces, for a given order of teams, by dynamic programming.

A stage here may begin and end within split layers: in the plan it becomes several stages, one for each shard and one
for the whole layers between, and takes the sum of their times. Among the boundaries of the least bottleneck, those that
split the fewest layers are chosen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from shisha_rt.arrays import Bools, Floats, Ints, sums_before
from shisha_rt.costs.costs import Costs
from shisha_rt.costs.room import held_up_to
from shisha_rt.costs.team_costs import team_costs
from shisha_rt.plan.plan import Plan, Team
from shisha_rt.planner.shards.pieces import Piece, is_inside, shared, unrefined, with_joins

_AS_GOOD: Final = 1 + 1e-12

Teams: TypeAlias = tuple[Team, ...]
"""All teams of a stage: alike."""


def balanced(costs: Costs, pieces: Sequence[Piece], order: Sequence[Teams]) -> tuple[float, Plan | None]:
    """Seconds a frame and plan of the best chain over pieces on these teams, in this order; (inf, None) if none.

    A join runs on the teams of the last shard or of the next whole layers. Teams that do not make the chain faster are
    left out.
    """
    predicted, pieces = team_costs(costs), with_joins(pieces)
    kinds = [(predicted.kind_of[teams[0][0]], len(teams[0]), len(teams)) for teams in order]
    positions = _Positions.of(costs, pieces)
    stages_s = {
        (kind, size, copies): positions.stages_s(costs, predicted.time_s.get((kind, size)), order[number][0][0])
        / copies
        for number, (kind, size, copies) in enumerate(kinds)
    }
    periods_s = [stages_s[key] for key in kinds]
    least_s = float(_forward(periods_s, lambda before, next_s: np.maximum(before[:, None], next_s))[-1][-1])
    if math.isinf(least_s):
        return least_s, None
    # The penalty of one more boundary within a layer exceeds the seconds of all stages.
    part_s = 2 * (least_s or 1.0) * len(order) * positions.inside[:, None]
    costing = [np.where(of_team <= least_s * _AS_GOOD, of_team + part_s, np.inf) for of_team in periods_s]
    best = _forward(costing, lambda before, next_s: before[:, None] + next_s)
    end = len(pieces)
    stages = []
    for number in range(len(order) - 1, -1, -1):
        if best[number + 1][end] < best[number][end]:
            begin = int((best[number] + costing[number][:, end]).argmin())
            stages.append((begin, end - 1, order[number]))
            end = begin
    return least_s, unrefined(pieces, Plan.chain(reversed(stages)))


def _forward(stages_s: Sequence[Floats], combine: Callable[[Floats, Floats], Floats]) -> list[Floats]:
    """(teams + 1,) of (positions,): entry n has the least value up to each position with the first n teams."""
    best = [np.full(len(stages_s[0]), np.inf)]
    best[0][0] = 0.0
    for stage_s in stages_s:
        best.append(np.minimum(best[-1], combine(best[-1], stage_s).min(axis=0)))
    return best


@dataclass(frozen=True, slots=True, eq=False)
class _Positions:
    """The positions between pieces; all arrays are (positions,).

    `inside`: whether the position is within split layers; `joins`: whether it is between their shards and the join.
    `behind`, `before`: the nearest position that is not within split layers, at or after this one, at or before it.
    """

    pieces: Sequence[Piece]
    inside: Bools
    joins: Bools
    behind: Ints
    before: Ints

    @classmethod
    def of(cls, costs: Costs, pieces: Sequence[Piece]) -> _Positions:
        positions = np.arange(len(pieces) + 1)
        inside = np.array([is_inside(pieces, position) for position in positions.tolist()])
        behind = np.minimum.accumulate(np.where(inside, len(pieces), positions)[::-1])[::-1]
        joins = np.array([*(piece.joins for piece in pieces), False])
        return cls(pieces, inside, joins, behind, np.maximum.accumulate(np.where(inside, 0, positions)))

    def stages_s(self, costs: Costs, layers_s: Floats | None, lead: str) -> Floats:
        """(positions, positions): seconds of the stage between two positions, by `layers_s`; inf if it cannot be."""
        positions = len(self.inside)
        if layers_s is None:
            return np.full((positions, positions), np.inf)
        time_s = shared(self.pieces, layers_s)
        sum_s = sums_before(np.nan_to_num(time_s))
        join_s = sums_before(np.where(self.joins[:-1], np.nan_to_num(time_s), 0.0))
        scales = [costs.splits.scale((piece.first, piece.last), lead) for piece in self.pieces]
        units_s = np.nan_to_num(time_s) * [scale.units for scale in scales]
        shards_s = sums_before(np.where(self.joins[:-1], 0.0, units_s))
        entry_s = np.array([*(_entry_s(costs, piece) for piece in self.pieces), 0.0])
        fixed = np.array([*(scale.fixed for scale in scales), 0.0])
        part_s = (fixed * (costs.splits.overhead_s + entry_s))[self.before]
        totals = self._add_up(
            head=np.where(self.joins, 0.0, part_s + shards_s[self.behind] - shards_s) + join_s[self.behind] - join_s,
            # No shard has all units of its layers but not their join.
            tail=np.where(self.joins, np.inf, part_s + shards_s - shards_s[self.before]),
            between=part_s[:, None] + shards_s - shards_s[:, None],
            entry=entry_s,
            sums=sum_s,
        )
        unable = sums_before(np.isnan(time_s).astype(np.float64))
        able = np.triu(np.ones_like(totals, dtype=bool), 1) & (unable[:, None] == unable)
        room_bytes = costs.places[costs.place_index(lead)].room_bytes
        if math.isfinite(room_bytes):
            able &= self._bytes(costs) <= room_bytes
        return np.where(able, totals, np.inf)

    def _bytes(self, costs: Costs) -> Floats:
        """(positions, positions): bytes that a stage holds; a shard along "rows" holds all weights of its layers."""
        whole = np.array([*(costs.weight_bytes(piece.first, piece.last) for piece in self.pieces), 0.0])
        rows = np.array(
            [*(piece.splittable is not None and piece.splittable.axis == "rows" for piece in self.pieces), False]
        )
        sums = sums_before(whole[:-1] * [piece.part for piece in self.pieces])
        rows, whole = rows[self.before], whole[self.before]
        held = self._add_up(
            head=np.where(rows & ~self.joins, whole, _whole_bytes(sums[self.behind] - sums)),
            tail=np.where(rows, whole, _whole_bytes(sums - sums[self.before])),
            between=np.where(rows[:, None], whole[:, None], _whole_bytes(sums - sums[:, None])),
            entry=np.zeros(len(whole)),
            sums=sums,
        )
        held = np.rint(held)
        live = np.array([float(costs.live_bytes(piece.first, piece.last)) for piece in self.pieces])
        for begin in range(len(live)):
            held[begin, begin + 1 :] = held_up_to(held[begin, begin + 1 :], live[begin:])
        return held

    def _add_up(self, *, head: Floats, tail: Floats, between: Floats, entry: Floats, sums: Floats) -> Floats:
        """(positions, positions): the sum of a shard at the begin, whole layers with their entry, a shard at the end.

        `between` where both positions are within the same split layers.
        """
        first, last = self.behind[:, None], self.before
        middle = np.where(first < last, entry[first] + sums[last] - sums[first], 0.0)
        ends = np.where(self.inside, head, 0.0)[:, None] + np.where(self.inside, tail, 0.0)
        return np.where(first <= last, ends + middle, between)


def _whole_bytes(shares: Floats) -> Floats:
    """Round up, but ignore rounding errors."""
    return np.asarray(np.ceil(shares - 1e-6))


def _entry_s(costs: Costs, piece: Piece) -> float:
    """Entry cost of a piece; inf where no cut is legal."""
    entry_s = float(costs.entry_s[piece.first])
    return math.inf if math.isnan(entry_s) else entry_s
