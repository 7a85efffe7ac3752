"""Time and weights of a shard, derived from the whole layer's: the one rule for all planners that split layers.

A shard takes its share of the layer's time, the layer's entry cost, and a fixed overhead: a posynomial of its units, as
the GP paper has it, whose two coefficients measurements correct (`ShardScale`). A shard of rows holds all weights;
along any other axis it holds its share of them. A join holds none of these weights, and takes the part of the time that
shards do not (`Splittable.join_part`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, TypeAlias

from shisha_rt.model.spans import Span
from shisha_rt.model.split import Along, Axis, Split, Splittable

SHARD_S: Final = 250e-6
"""Fixed seconds of each shard: to receive its descriptor, to start and to end a run. Measured: a layer of 0.42 ms on
one core gained nothing from two shards. Trials correct the value.
"""

PricedSplit: TypeAlias = tuple[Span, Axis, str]
"""Layers, axis and place."""


@dataclass(frozen=True, slots=True)
class ShardTime:
    """Seconds of a shard of n units on a place: `base_s` + n x `unit_s`. The place has memory for at most `most` units.

    `join_s`: seconds to join shards there; inf if the place cannot.
    """

    base_s: float
    unit_s: float
    most: int
    join_s: float = 0.0

    def at(self, units: int) -> float:
        return self.base_s + self.unit_s * units if units <= self.most else math.inf

    def stretched(self, times: float) -> ShardTime:
        return ShardTime(self.base_s * times, self.unit_s * times, self.most, self.join_s * times)


@dataclass(frozen=True, slots=True)
class ShardScale:
    """Measured over predicted seconds: of what a shard takes whatever its size (`fixed`), and by its `units`."""

    fixed: float = 1.0
    units: float = 1.0

    def at(self, fixed_s: float, units_s: float) -> float:
        return self.fixed * fixed_s + self.units * units_s


AS_PREDICTED: Final = ShardScale()


@dataclass(frozen=True, eq=False)
class SplitCosts:
    """`splittables`: how layers can be split.

    A shard takes `overhead_s` + entry cost, and its share of the layers; `scales`: corrections, by layers and place.

    `shard_times`: shard times from elsewhere, such as a described device's formulas; `scales` apply to them too.
    """

    splittables: tuple[Splittable, ...] = ()
    overhead_s: float = SHARD_S
    scales: Mapping[tuple[Span, str], ShardScale] = field(default_factory=dict)
    shard_times: Mapping[PricedSplit, ShardTime] = field(default_factory=dict)

    def scale(self, span: Span, place: str) -> ShardScale:
        return self.scales.get((span, place), AS_PREDICTED)

    @property
    def least_scale(self) -> float:
        """No shard takes less than this times what is predicted without corrections; at most 1."""
        return min((min(scale.fixed, scale.units, 1.0) for scale in self.scales.values()), default=1.0)

    def terms_s(self, split: Split, span_s: float, entry_s: float, place: str) -> tuple[float, float]:
        """Predicted seconds of the shard of `split`, uncorrected: fixed ones, and those of its units.

        `span_s`: seconds of its layers unsplit; `entry_s`: their entry cost.
        """
        shard_time = self.shard_times.get((split.span, split.axis, place))
        if shard_time is not None:
            return shard_time.base_s, shard_time.at(split.shares[split.part]) - shard_time.base_s
        return self.overhead_s + entry_s, self._shared_s(split.span, split.axis, span_s) * split.fraction

    def join_s(self, span: Span, axis: Axis, span_s: float, place: str) -> float:
        """Seconds of the join alone, without the layers behind it. `span_s`: seconds of the split layers unsplit."""
        shard_time = self.shard_times.get((span, axis, place))
        if shard_time is not None:
            return shard_time.join_s
        left_s = span_s - self._shared_s(span, axis, span_s)
        return left_s if math.isfinite(span_s) else span_s

    def _shared_s(self, span: Span, axis: Axis, span_s: float) -> float:
        """Seconds of the layers that shards divide among themselves; the join takes the rest."""
        return span_s * (1 - self._join_parts.get((span, axis), 0.0))

    @cached_property
    def _join_parts(self) -> Mapping[Along, float]:
        return {splittable.along: splittable.join_part for splittable in self.splittables if splittable.join_part}


def shard_bytes(split: Split, span_bytes: int) -> int:
    """Of the split layers' `span_bytes` of weights, the bytes that a shard holds; 0 for the join."""
    if split.joins:
        return 0
    return span_bytes if split.axis == "rows" else -(-span_bytes * split.shares[split.part] // sum(split.shares))
