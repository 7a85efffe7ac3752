"""How plans describe a split layer: by the layers of the cleaned graph, however workers carry out the split.

Shards run side by side, each as a stage of its own. The *join* is what is left to do when all shards are done (adding
their partial sums, operators that need all channels); the stage behind them begins with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from shisha_rt.model.spans import Span

Axis: TypeAlias = Literal["channels", "inputs", "groups", "rows", "columns"]
"""The axis that is divided among shards. Convolutions: output channels, input channels, groups or rows of the output.
Products (Gemm, MatMul): columns, rows, or the inner dimension (as `inputs`). In a pair of layers, channels (or columns)
of the first are inputs of the second.
"""
AXES: Final[tuple[Axis, ...]] = get_args(Axis)
Along: TypeAlias = tuple[Span, Axis]
"""Layers, and the axis along which they are split: identifies a `Splittable`."""


MOST_SUMMED: Final = 8
"""The most shards that have buffers for partial sums."""


@dataclass(frozen=True, slots=True)
class Split:
    """Layers `span` in shards of `shares` (units of `axis`). `part`: the shard's index, or their number for a join."""

    span: Span
    axis: Axis
    shares: tuple[int, ...]
    part: int

    @property
    def joins(self) -> bool:
        return self.part == len(self.shares)

    @property
    def whole(self) -> tuple[Span, Axis, tuple[int, ...]]:
        """What all stages of the same split have in common."""
        return self.span, self.axis, self.shares

    @property
    def along(self) -> Along:
        return self.span, self.axis

    @property
    def fraction(self) -> float:
        """The shard's fraction of the split layers; 0 for the join."""
        return 0.0 if self.joins else self.shares[self.part] / sum(self.shares)

    def __str__(self) -> str:
        if self.joins:
            return f"(joins {len(self.shares)} shards)"
        return f"({self.shares[self.part]} of {sum(self.shares)} {self.axis})"


class Splittable(msgspec.Struct, frozen=True):
    """Layers `first` to `last` can be split along `axis` of `units`; shares are multiples of `block`, except the last.

    `makes`: the run-time tensors that shards make, by their names in the graph that stages are cut from. Each shard
    makes its share of them or, if `summed`, a partial sum of full size. `joined`: whether something is left for a join;
    `join_part`: the join's part of the layers' time, estimated from sizes.
    """

    first: int
    last: int
    axis: Axis
    units: int
    block: int
    makes: tuple[str, ...]
    summed: bool = False
    joined: bool = False
    join_part: float = 0.0

    @property
    def span(self) -> Span:
        return self.first, self.last

    @property
    def along(self) -> Along:
        return self.span, self.axis

    @property
    def blocks(self) -> int:
        """Number of blocks; the last one may have fewer units."""
        return -(-self.units // self.block)

    def shard(self, units: int) -> Split:
        """The first of two shards, with so many units; the second shard has the rest."""
        return Split(self.span, self.axis, (units, self.units - units), 0)

    def rooms(self, tensor: str, shards: int) -> tuple[str, ...]:
        """Names of the buffers into which the `shards` shards write what they make of a tensor."""
        return tuple(partial_name(tensor, part) for part in range(shards)) if self.summed else (tensor,)


def partial_name(tensor: str, part: int) -> str:
    return f"{tensor}#{part}"


class KeptWhole(msgspec.Struct, frozen=True):
    """Layers `first` to `last` cannot be split along `axis`, and why."""

    first: int
    last: int
    axis: Axis
    reason: str
