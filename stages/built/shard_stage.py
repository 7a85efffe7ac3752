"""A stage that has a shard of a layer, or joins shards: it computes on slices of the tensors in a slot.

A contiguous slice is bound in place, so that shards of channels are put together without a copy. Any other slice (rows
of several channels; several images) is copied to or from memory of the stage's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from shisha_rt.model.shards.shards import Excerpt
from stages.engines.session import Array, Bound, CpuClock, EngineSession


class ShardStage(EngineSession):
    """A session on pieces of tensors: `reads` and `makes`, each under the name that it has in `inner`.

    `block`: channels in a block of a tensor in the blocked format.
    """

    def __init__(self, inner: EngineSession, reads: Sequence[Excerpt], makes: Sequence[Excerpt], block: int) -> None:
        super().__init__(inner.ends, inner.weight_bytes)
        self.described, self.difference = inner.described, inner.difference
        self._inner = inner
        self._reads, self._makes = tuple(reads), tuple(makes)
        self._block = block
        self._own: dict[str, Array] = {}

    @property
    def paced(self) -> bool:
        return self._inner.paced

    def apart(self) -> Bound:
        return self._inner.apart()

    def bind(self, arrays: Mapping[str, Array]) -> Bound:
        """Bind the whole tensors that it has pieces of, by name."""
        pieces: dict[str, Array] = {}
        before = [copy for piece in self._reads for copy in self._place(pieces, arrays[piece.name], piece)]
        after = [(to, here) for piece in self._makes for here, to in self._place(pieces, arrays[piece.name], piece)]
        inner = self._inner.bind(pieces)

        def compute(cpu_clock: CpuClock) -> tuple[float, ...]:
            for to, here in before:
                to[...] = here
            seconds = inner(cpu_clock)
            for to, here in after:
                to[...] = here
            return seconds

        return compute

    def _place(self, pieces: dict[str, Array], room: Array, piece: Excerpt) -> list[tuple[Array, Array]]:
        """Add to `pieces` what `inner` binds for `piece`; return (own array, view of `room`) if it is copied."""
        part_room = piece_of(room, piece)
        if part_room.flags.c_contiguous:
            pieces[piece.name] = part_room
            return []
        own = self._own.setdefault(piece.name, np.empty(part_room.shape, part_room.dtype))
        pieces[piece.name] = own
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
