"""Layers cut into pieces, so that a chain over pieces is a plan with splits: a cut inside a layer makes shards of it.

A place that has layers and then some pieces of the next one has two stages: these layers, and its shard. The place with
the layer's last pieces and the layers after it has two as well: its shard, and the rest. Stages on one place are a
pool, whose times add up as the pieces' do. The overhead of each shard but the first is charged at the shard's entry;
the first shard's is left out. So, by its costs, a chain over pieces never takes longer than the plan that it stands
for, except for a join's part of the time: pieces share it, and in the plan one place has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import TypeAlias

import numpy as np

from shisha_rt.arrays import Floats
from shisha_rt.costs.costs import CostLayer, Costs, CostTeam
from shisha_rt.costs.split_costs import SplitCosts
from shisha_rt.model.spans import Span
from shisha_rt.model.split import Split, Splittable
from shisha_rt.plan.plan import Plan, Stage, Team


@dataclass(frozen=True, slots=True)
class Piece:
    """A whole layer; or units `begin` to `end` (exclusive) of the layers of `splittable`; without units it is the join.

    `join_part`: the part of the layers' time that is in a piece for the join; 0 if there is none.
    """

    first: int
    last: int
    splittable: Splittable | None = None
    begin: int = 0
    end: int = 0
    join_part: float = 0.0

    @property
    def joins(self) -> bool:
        return self.splittable is not None and self.begin == self.end

    @property
    def part(self) -> float:
        """Part of its layers' units, and so of their weights."""
        return 1.0 if self.splittable is None else (self.end - self.begin) / self.splittable.units

    @property
    def share(self) -> float:
        """Share of the piece in the time of its layers."""
        return self.join_part if self.joins else (1 - self.join_part) * self.part


@dataclass(frozen=True, slots=True)
class WholeRun:
    """Whole layers on teams."""

    first: int
    last: int
    teams: tuple[Team, ...]


@dataclass(frozen=True, slots=True)
class Shards:
    """Shards of layers, as (units, teams). `joiners`: teams of the join; empty: those of the last shard.

    A run that follows begins with the join, on the run's own teams; if `joins_there`, only a run on `joiners` does.
    """

    splittable: Splittable
    parts: tuple[tuple[int, tuple[Team, ...]], ...]
    joiners: tuple[Team, ...] = ()
    joins_there: bool = False

    @classmethod
    def on_places(
        cls, splittable: Splittable, places: Iterable[str], units: Iterable[int], joiners: tuple[Team, ...] = ()
    ) -> Shards:
        """Shards of `units` (places,), except where that is 0. The shard that is no multiple of a block comes last."""
        shares = sorted(zip(units, places, strict=True), key=lambda share: share[0] % splittable.block)
        return cls(splittable, tuple((count, ((place,),)) for count, place in shares if count), joiners)


Item: TypeAlias = WholeRun | Shards


def split_spans(plan: Plan) -> set[Span]:
    return {stage.split.span for stage in plan.stages if stage.split is not None}


def pieces_of(layer_count: int, counts: Mapping[Splittable, int]) -> tuple[Piece, ...]:
    """All layers; those of a splittable in `counts` (none overlap) in that many pieces, at most one for each block."""
    splittables = {splittable.first: splittable for splittable in counts}
    pieces: list[Piece] = []
    layer = 0
    while layer < layer_count:
        splittable = splittables.get(layer)
        if splittable is None:
            pieces.append(Piece(layer, layer))
            layer += 1
            continue
        blocks = splittable.blocks
        count = min(counts[splittable], blocks)
        ends = [min(splittable.units, splittable.block * (blocks * i // count)) for i in range(count + 1)]
        pieces += [Piece(*splittable.span, splittable, *span) for span in pairwise(ends)]
        layer = splittable.last + 1
    return tuple(pieces)


def with_joins(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """The pieces, and one more behind those of each splittable whose join takes time: no other piece has that time."""
    apart: list[Piece] = []
    for piece in pieces:
        splittable = piece.splittable
        if splittable is None or not splittable.join_part:
            apart.append(piece)
            continue
        apart.append(replace(piece, join_part=splittable.join_part))
        if piece.end == splittable.units:
            apart.append(Piece(*splittable.span, splittable, splittable.units, splittable.units, splittable.join_part))
    return tuple(apart)


def is_inside(pieces: Sequence[Piece], position: int) -> bool:
    """Whether the position before the piece of that index is within split layers."""
    return 0 < position < len(pieces) and pieces[position].begin > 0


def refined(costs: Costs, pieces: Sequence[Piece]) -> Costs:
    """Costs of chains over pieces, which cannot be split further. Pieces of rows have a share of the weights, too."""
    splits = costs.splits

    def cut_s(piece: Piece) -> float:
        entry_s = float(costs.entry_s[piece.first])
        if not piece.begin:
            return entry_s
        span = piece.first, piece.last
        return min(splits.scale(span, place.name).fixed for place in costs.places) * (splits.overhead_s + entry_s)

    return replace(
        costs,
        layers=tuple(_layer(costs, piece) for piece in pieces),
        time_s=np.stack([shared(pieces, place_s) for place_s in costs.time_s.T], axis=1),
        transfer_s=np.array([cut_s(piece) for piece in pieces[1:]]),
        teams=tuple(CostTeam(team.places, shared(pieces, team.time_s)) for team in costs.teams),
        mixed=False,  # stages that share teams need alike teams
        splits=SplitCosts(),
        batches=(),
    )


def shared(pieces: Sequence[Piece], layers: Floats) -> Floats:
    """(pieces,): each piece's share of the sum of `layers` (layers,) over its layers."""
    firsts = [piece.first for piece in pieces]
    starts = sorted(set(firsts))
    of = np.searchsorted(starts, firsts)
    return np.asarray(np.add.reduceat(layers, starts)[of] * [piece.share for piece in pieces])


def _layer(costs: Costs, piece: Piece) -> CostLayer:
    layers = costs.layers[piece.first : piece.last + 1]
    weight_bytes = costs.weight_bytes(piece.first, piece.last)
    if piece.splittable is not None:  # rounded so that the bytes of several pieces add up exactly
        weight_bytes = (
            weight_bytes * piece.end // piece.splittable.units - weight_bytes * piece.begin // piece.splittable.units
        )
    return CostLayer(
        layers[0].name,
        piece.share * sum(layer.weight for layer in layers),
        weight_bytes,
        costs.live_bytes(piece.first, piece.last),
    )


def unrefined(pieces: Sequence[Piece], chain: Plan) -> Plan:
    """The plan that a chain over pieces stands for."""
    items = [item for stage in chain.stages for item in _items(pieces[stage.first : stage.last + 1], stage.teams)]
    return assembled(_joined(items))


def _items(pieces: Sequence[Piece], teams: tuple[Team, ...]) -> Iterator[Item]:
    """Yield what a stage over pieces has: perhaps shards at its ends, and whole layers between."""
    run: WholeRun | None = None
    for (first, last, splittable), members in groupby(
        pieces, key=lambda piece: (piece.first, piece.last, piece.splittable)
    ):
        *_, end = own = [*members]
        units = sum(piece.end - piece.begin for piece in own)
        if splittable is None or units == splittable.units:
            run = WholeRun(first if run is None else run.first, last, teams)
            continue
        if run is not None:
            yield run
        yield Shards(splittable, ((units, teams),) if units else (), teams if end.joins else (), end.joins)
        run = None
    if run is not None:
        yield run


def _joined(items: Iterable[Item]) -> list[Item]:
    """Merge neighbouring shards of the same layers."""
    assembled_items: list[Item] = []
    for item in items:
        before = assembled_items[-1] if assembled_items else None
        if isinstance(item, Shards) and isinstance(before, Shards) and item.splittable == before.splittable:
            assembled_items[-1] = replace(item, parts=before.parts + item.parts)
        else:
            assembled_items.append(item)
    return assembled_items


def assembled(items: Iterable[Item]) -> Plan:
    """The plan of a sequence of runs and splits. A join is part of the run that follows, or, if that cannot have it
    (see `Shards`) or no run follows, a stage of its own.
    """
    stages: list[Stage] = []
    behind: tuple[int, ...] = ()
    join: Split | None = None
    joiners: tuple[Team, ...] = ()
    joins_there = False

    def add(*stage: Stage) -> None:
        nonlocal behind
        behind = tuple(range(len(stages), len(stages) + len(stage)))
        stages.extend(stage)

    def join_alone() -> None:
        if join is not None:
            add(Stage((join.span,), joiners or stages[-1].teams, behind, split=join))

    for item in items:
        if isinstance(item, WholeRun):
            if joins_there and item.teams != joiners:
                join_alone()
                join = None
            first = item.first if join is None else join.span[0]
            add(Stage(((first, item.last),), item.teams, behind, split=join))
            join = None
            continue
        join_alone()
        splittable, shares = item.splittable, tuple(units for units, _ in item.parts)
        whole = Split(splittable.span, splittable.axis, shares, len(shares))
        shards = (replace(whole, part=part) for part in range(len(shares)))
        given = zip(shards, item.parts, strict=True)
        add(*(Stage((shard.span,), teams, behind, split=shard) for shard, (_, teams) in given))
        join, joiners, joins_there = (
            whole if splittable.joined or splittable.summed else None,
            item.joiners,
            item.joins_there,
        )
    join_alone()
    return Plan(tuple(stages))
