"""A layer cut into shards, as plans speak of it: by the layers of the cleaned graph, whatever a worker makes of it.

Shards run side by side, each as a stage of its own. What is left to do when all are done (a sum of what they made of
different inputs, operators that need all channels) is the *join*: the beginning of the stage behind them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from shisha_rt.model.spans import Span

Axis: TypeAlias = Literal["channels", "inputs", "groups", "rows", "columns"]
"""What shards share: output channels of a convolution, its input channels, its groups, rows of its output; columns of a
product (Gemm, MatMul), whose inner dimension counts as its inputs. Over a pair of layers, channels (or columns) of the
first are inputs of the second.
"""
AXES: Final[tuple[Axis, ...]] = get_args(Axis)


def as_axis(word: str) -> Axis:
    """Raises ValueError, with what was expected, for a word that is none."""
    for axis in AXES:
        if word == axis:
            return axis
    raise ValueError(f"axis: {word!r}; expected {', '.join(AXES[:-1])} or {AXES[-1]}")


MOST_SUMMED: Final = 8
"""Shards whose partial sums have rooms."""


@dataclass(frozen=True, slots=True)
class Split:
    """Layers `span` in shards of `shares` (units of `axis`); `part`: which of them a stage has, or that it joins."""

    span: Span
    axis: Axis
    shares: tuple[int, ...]
    part: int

    @property
    def joins(self) -> bool:
        """Whether the stage begins with what is left when all shards are done."""
        return self.part == len(self.shares)

    @property
    def whole(self) -> tuple[Span, Axis, tuple[int, ...]]:
        """What is the same for all stages that carry it."""
        return self.span, self.axis, self.shares

    @property
    def fraction(self) -> float:
        """Share of this part in what is split; 0 for a join."""
        return 0.0 if self.joins else self.shares[self.part] / sum(self.shares)

    def __str__(self) -> str:
        if self.joins:
            return f"(joins {len(self.shares)} shards)"
        return f"({self.shares[self.part]} of {sum(self.shares)} {self.axis})"


class Splittable(msgspec.Struct, frozen=True):
    """Layers `first` to `last` can be split along `axis`: `units` in all, in multiples of `block` but for the last.

    `makes`: the run-time tensors that shards make, by the name of the graph that stages are cut from: each its share of
    them, or (`summed`) a sum of its own of the whole size. `joined`: whether something is left for a join;
    `join_part`: which part of the layers' time that is, as far as can be told from sizes.
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

    def rooms(self, tensor: str, shards: int) -> tuple[str, ...]:
        """Names of the rooms in which so many shards put what they make of a tensor."""
        return tuple(partial_name(tensor, part) for part in range(shards)) if self.summed else (tensor,)


def partial_name(tensor: str, part: int) -> str:
    """What shard `part` calls its own sum in place of a tensor."""
    return f"{tensor}#{part}"


class KeptWhole(msgspec.Struct, frozen=True):
    """Layers `first` to `last` cannot be split along `axis`, and why."""

    first: int
    last: int
    axis: Axis
    reason: str
