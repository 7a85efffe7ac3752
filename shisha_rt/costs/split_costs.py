"""What a shard of a layer takes and holds, by what the whole layer does: the one rule for all that plan with splits.

A shard takes its share of the layer's time, what comes in with it, and something for being a part of its own. Rows
need all weights; along any other axis a shard has its share of them. What joins shards counts as nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, TypeAlias

from shisha_rt.model.spans import Span
from shisha_rt.model.split import Axis, Split, Splittable

SHARD_S: Final = 250e-6
"""Seconds on the place: to be told of a part, to begin and to end a run. A layer of 0.42 ms on one core gained nothing
in two shards; trials correct it.
"""

PricedSplit: TypeAlias = tuple[Span, Axis, str]
"""Layers, axis and place."""


@dataclass(frozen=True, slots=True)
class ShardTime:
    """Seconds of a shard of n units on a place: `base_s` + n x `unit_s`. It has no room for more than `most` units.

    `join_s`: what joining shards takes there; inf where it cannot.
    """

    base_s: float
    unit_s: float
    most: int
    join_s: float = 0.0

    def at(self, units: int) -> float:
        return self.base_s + self.unit_s * units if units <= self.most else math.inf

    def stretched(self, times: float) -> ShardTime:
        """The same times, multiplied by `times`."""
        return ShardTime(self.base_s * times, self.unit_s * times, self.most, self.join_s * times)


@dataclass(frozen=True, eq=False)
class SplitCosts:
    """`ways` to split layers. A shard takes `overhead_s` beyond its share of the layers, and `factor` times all that.

    `shard_times`: times of shards known otherwise, as by the formulas of a described device; `factor` counts there too.
    """

    ways: tuple[Splittable, ...] = ()
    overhead_s: float = SHARD_S
    factor: float = 1.0
    shard_times: Mapping[PricedSplit, ShardTime] = field(default_factory=dict)

    def shard_s(self, split: Split, span_s: float, entry_s: float, place: str) -> float:
        """Seconds of the shard of `split` whose layers take `span_s` whole, and `entry_s` to be entered."""
        shard_time = self.shard_times.get((split.span, split.axis, place))
        if shard_time is not None:
            return self.factor * shard_time.at(split.shares[split.part])
        return self.factor * (
            self.overhead_s + entry_s + self._shared_s(split.span, split.axis, span_s) * split.fraction
        )

    def join_s(self, span: Span, axis: Axis, span_s: float, place: str) -> float:
        """Seconds of the join behind the shards, without the layers behind it; the layers take `span_s` whole."""
        shard_time = self.shard_times.get((span, axis, place))
        if shard_time is not None:
            return shard_time.join_s
        left_s = span_s - self._shared_s(span, axis, span_s)
        return left_s if math.isfinite(span_s) else span_s

    def _shared_s(self, span: Span, axis: Axis, span_s: float) -> float:
        """Seconds of the layers that shards divide among themselves; the join takes the rest."""
        return span_s * (1 - self._join_parts.get((span, axis), 0.0))

    @cached_property
    def _join_parts(self) -> Mapping[tuple[Span, Axis], float]:
        return {((way.first, way.last), way.axis): way.join_part for way in self.ways if way.join_part}


def shard_bytes(split: Split, span_bytes: int) -> int:
    """The weights that a shard holds, of all of its layers' `span_bytes`; those of a join, of what is split."""
    if split.joins:
        return 0
    return span_bytes if split.axis == "rows" else -(-span_bytes * split.shares[split.part] // sum(split.shares))
