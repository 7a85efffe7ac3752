"""A stage that has a shard of a layer, or joins shards: it computes on slices of the tensors in a slot.

A contiguous slice is bound in place, so that shards of channels need no copy to be joined. Any other slice (rows of
several channels; several images) is copied to or from a buffer of the stage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from shisha_rt.model.shards.shards import Excerpt
from stages.engines.session import Array, Bound, CpuClock, EngineSession


class ShardStage(EngineSession):
    """A session, `inner`, on pieces of tensors: `reads` and `makes`. `block`: channels of a blocked format's block."""

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
        """Bind the stage. `arrays`: the whole tensors of which it reads or makes pieces, by name."""
        pieces: dict[str, Array] = {}
        copies_in = [copy for piece in self._reads for copy in self._bind_piece(pieces, arrays[piece.name], piece)]
        copies_out = [copy for piece in self._makes for copy in self._bind_piece(pieces, arrays[piece.name], piece)]
        inner = self._inner.bind(pieces)

        def compute(cpu_clock: CpuClock) -> tuple[float, ...]:
            for own, whole in copies_in:
                own[...] = whole
            seconds = inner(cpu_clock)
            for own, whole in copies_out:
                whole[...] = own
            return seconds

        return compute

    def _bind_piece(self, pieces: dict[str, Array], whole: Array, piece: Excerpt) -> list[tuple[Array, Array]]:
        """Add to `pieces` the array that `inner` binds for `piece`. If the piece has to be copied, that is a buffer of
        the stage's own, returned with the view of `whole` that it is a copy of.
        """
        view = piece_of(whole, piece)
        if view.flags.c_contiguous:
            pieces[piece.name] = view
            return []
        own = self._own.setdefault(piece.name, np.empty(view.shape, view.dtype))
        pieces[piece.name] = own
        if piece.blocked:
            return [(_unfolded(own, self._block), _unfolded_piece(whole, piece, self._block))]
        return [(own, view)]


def piece_of(array: Array, piece: Excerpt) -> Array:
    """A view of the piece. The view of a blocked tensor has the piece's shape, and its bytes only if contiguous."""
    if piece.slice is None:
        return array
    return array[(*(slice(None),) * piece.slice.axis, slice(piece.slice.first, piece.slice.end))]


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
