"""A stage that has a shard of a layer, or joins shards: it computes on slices of the tensors in a slot.

A contiguous slice is bound in place, so that shards of channels are put together without a copy. Any other slice (rows
of several channels; several images) is copied to or from memory of the stage's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from shisha_rt.model.shards.shards import Excerpt
from shisha_rt.process.arena import Arena
from stages.built_stage import Warmable
from stages.engines.session import Array, Bound, CpuClock


class OnArrays(Warmable, Protocol):
    """The inner stage, which computes on whatever arrays it is bound to."""

    def end_warm_up(self) -> None:
        """Free what `warm` has bound."""

    def bind_to(self, stage_ends: Mapping[str, Array]) -> tuple[Bound, ...]: ...

    def run_bound(self, bound: Sequence[Bound], cpu_clock: CpuClock) -> tuple[float, ...]: ...


@dataclass(frozen=True, slots=True)
class _Bound:
    """`before`, `after`: pairs of arrays (to, from) to copy before and after a run."""

    bound: tuple[Bound, ...]
    before: tuple[tuple[Array, Array], ...]
    after: tuple[tuple[Array, Array], ...]


class ShardStage:
    """A built stage. `reads` and `makes`: pieces of tensors, each under the name that it has in `inner`.

    `block`: channels in a block of a tensor in the blocked format.
    """

    def __init__(self, inner: OnArrays, reads: Sequence[Excerpt], makes: Sequence[Excerpt], block: int) -> None:
        self._inner = inner
        self._reads, self._makes = tuple(reads), tuple(makes)
        self._block = block
        self._own: dict[str, Array] = {}
        self._bound: dict[int, _Bound] = {}

    @property
    def frame_bytes(self) -> int:
        return self._inner.frame_bytes

    @property
    def described(self) -> bool:
        return self._inner.described

    @property
    def paced(self) -> bool:
        return self._inner.paced

    @property
    def difference(self) -> float:
        return self._inner.difference

    def warm(self, cpu_clock: CpuClock = lambda: 0.0) -> tuple[float, ...]:
        return self._inner.warm(cpu_clock)

    def bind(self, arena: Arena, slot: int) -> None:
        """Bind the stage to `slot` before the first frame comes there."""
        self._inner.end_warm_up()
        arrays: dict[str, Array] = {}
        before = [copy for piece in self._reads for copy in self._place(arrays, arena, slot, piece)]
        after = [(to, here) for piece in self._makes for here, to in self._place(arrays, arena, slot, piece)]
        self._bound[slot] = _Bound(self._inner.bind_to(arrays), tuple(before), tuple(after))

    def run(self, arena: Arena, slot: int, cpu_clock: CpuClock, layout: int = 0) -> tuple[float, ...]:
        """Compute on the tensors of `slot`. There is one layout: only a model of one shape is split."""
        assert layout == 0
        if slot not in self._bound:
            self.bind(arena, slot)
        bound = self._bound[slot]
        for to, here in bound.before:
            to[...] = here
        seconds = self._inner.run_bound(bound.bound, cpu_clock)
        for to, here in bound.after:
            to[...] = here
        return seconds

    def _place(self, arrays: dict[str, Array], arena: Arena, slot: int, piece: Excerpt) -> list[tuple[Array, Array]]:
        """Add to `arrays` what `inner` binds for `piece`; return (own array, view of the slot) if it is copied."""
        room = arena.view(slot, arena.layout.regions[piece.name])
        part_room = piece_of(room, piece)
        if part_room.flags.c_contiguous:
            arrays[piece.name] = part_room
            return []
        own = self._own.setdefault(piece.name, np.empty(part_room.shape, part_room.dtype))
        arrays[piece.name] = own
        if piece.blocked:
            return [(_unfolded(own, self._block), _unfolded_piece(room, piece, self._block))]
        return [(own, part_room)]


def piece_of(array: Array, piece: Excerpt) -> Array:
    """A view of the piece. Of a blocked tensor the shape is always right, the bytes only if the view is contiguous."""
    if piece.slice is None:
        return array
    whole = (slice(None),) * piece.slice.axis
    return array[(*whole, slice(piece.slice.first, piece.slice.end))]


def _unfolded(array: Array, block: int) -> Array:
    """A view as [N][C/b][H][W][b], the order in which a blocked tensor of images lies in memory."""
    images, channels, *sizes = array.shape
    return array.reshape(images, channels // block, *sizes, block)


def _unfolded_piece(array: Array, piece: Excerpt, block: int) -> Array:
    assert piece.slice is not None
    axis, first, end = piece.slice.axis, piece.slice.first, piece.slice.end
    if axis == 1:
        first, end = first // block, end // block
    return _unfolded(array, block)[(*(slice(None),) * axis, slice(first, end))]
