"""Memory that clients lend for the tensors of their frames: regions, each a memfd that the daemon has made.

A region is sealed: its size never changes, so a piece is checked against it once. Only the client maps a region.
The data is copied, from the descriptor into a slot and from a slot to the descriptor, so what the client writes
meanwhile can spoil only that one frame.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from shisha_rt.process.arena import Arena

_SEALS: Final = fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL

_Copying: TypeAlias = Callable[[int, Sequence[memoryview], int], int]


class LentPiece(msgspec.Struct, frozen=True, array_like=True):
    """Where a frame's tensor is in lent memory: in region number `region`. `size_bytes`: the most, for outputs."""

    tensor: str
    region: int
    offset_bytes: int
    size_bytes: int


class LentFault(Exception):
    """A piece could not be copied; the message says why in one line."""


def create_region(size_bytes: int) -> int:
    """Make a region; return its descriptor, the caller's to close. Raises OSError."""
    fd = os.memfd_create("shisha-rt-region", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, size_bytes)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    except OSError:
        os.close(fd)
        raise
    return fd


def read_lent(pieces: Sequence[LentPiece], fds: Mapping[int, int], arena: Arena, slot: int, layout: int) -> None:
    """Copy inputs into `slot` of a layout; `fds`: descriptors, by region. Raises LentFault."""
    regions = arena.layouts[layout].regions
    for piece in pieces:
        region = regions[piece.tensor]
        _copy(os.preadv, piece, fds, arena.raw(slot, region).data, "read")
        arena.make_booleans(slot, region)


def write_lent(pieces: Sequence[LentPiece], fds: Mapping[int, int], arena: Arena, slot: int, layout: int) -> None:
    """Copy outputs out of `slot`. Raises LentFault, and `arena.NoRoom` for an output that is larger than its buffer."""
    regions = arena.layouts[layout].regions
    for piece in pieces:
        data = arena.raw(slot, regions[piece.tensor])
        if data.nbytes > piece.size_bytes:
            shape = list(arena.shape(slot, regions[piece.tensor]))
            raise LentFault(
                f"output {piece.tensor!r}: {data.nbytes} bytes (shape {shape}); its client lends {piece.size_bytes}"
            )
        _copy(os.pwritev, piece, fds, data.data, "written")


def _copy(system_call: _Copying, piece: LentPiece, fds: Mapping[int, int], data: memoryview, done: str) -> None:
    """Copy a piece. As a region is in memory, the kernel copies less than asked for only if memory runs out."""
    at = 0
    try:
        while at < data.nbytes:
            copied = system_call(fds[piece.region], [data[at:]], piece.offset_bytes + at)
            if not copied:
                raise LentFault(f"{piece.tensor!r}: only {at} of {data.nbytes} bytes could be {done}")
            at += copied
    except KeyError:
        raise LentFault(f"{piece.tensor!r}: its region is gone") from None
    except OSError as error:
        raise LentFault(f"{piece.tensor!r}: it could not be {done}: {error.strerror}") from None
