"""The one shared memory of a daemon (rule R3): slots for frames, and a board that workers sign.

A memfd has no name, so nothing is left to clean up: it is gone with the last process that holds it. Workers inherit its
descriptor. A slot holds every tensor of one frame that crosses a cut (see `layout`).

The board has one record for each place: the time of the worker's last heartbeat, which frame the worker is computing
and since when, and until when it waits because its place is emulated; and, for the worker to read, the present speeds
of the place and of each of its devices. The board stays readable after a worker's death: that is its purpose.
Fields are aligned 64-bit words, each written by one process only: speeds by the daemon, all others by the worker.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from shisha_rt.errors import Failure
from shisha_rt.process.board import MAX_DEVICES, RECORD_WORDS, Sign
from shisha_rt.process.layout import MAX_RANK, SHAPE_BYTES, Layout, Region, page_aligned
from shisha_rt.tensors import NUMPY_OF, size_bytes

_HEARTBEAT, _FRAME, _STARTED, _PACED_UNTIL, _SPEED = range(5)
_DEVICE_SPEEDS: Final = slice(RECORD_WORDS - MAX_DEVICES, RECORD_WORDS)
_PUNCH_HOLE_KEEP_SIZE: Final = 0x01 | 0x02  # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
_libc = ctypes.CDLL(None, use_errno=True)


class NoRoom(ValueError):
    """A tensor whose shape depends on the data turned out larger than its buffer."""

    def __init__(self, region: Region, shape: tuple[int, ...], needed_bytes: int) -> None:
        name, room_bytes = region.tensor.name, region.room_bytes
        super().__init__(
            f"output {name!r}: {needed_bytes} bytes (shape {list(shape)}); expected at most {room_bytes}, "
            "which serve --max-output-bytes sets"
        )


class Arena:
    """A mapping of the shared memory; the same class serves the daemon, which creates it, and its workers.

    `layouts`: one for each shape of the model; `layout` is the first. Raises Failure if the memory is not available.
    """

    def __init__(self, fd: int, layouts: Sequence[Layout], slot_count: int, place_count: int) -> None:
        self.fd = fd
        self.layouts, self.layout = layouts, layouts[0]
        self.slot_count = slot_count
        self._slots_at = page_aligned(place_count * RECORD_WORDS * 8)
        self.size_bytes = self._slots_at + slot_count * sum(layout.slot_bytes for layout in layouts)
        try:
            if os.fstat(fd).st_size == 0:
                os.ftruncate(fd, self.size_bytes)
            self._map = mmap.mmap(fd, self.size_bytes)
        except OSError as error:
            raise Failure(
                f"{self.size_bytes / 1e6:.0f} MB of shared memory for {slot_count} frames: {error.strerror}; "
                "expected limits of memory and of files that allow it (ulimit -v, ulimit -f)"
            ) from None
        self._bytes = np.frombuffer(self._map, dtype=np.uint8)
        self._view = memoryview(self._map)
        self._board = self._bytes[: place_count * RECORD_WORDS * 8].view(np.uint64).reshape(place_count, -1)
        self._words = self._board.reshape(-1).data  # for plain Python, word by word: workers sign for each part
        self._reals = self._words.cast("B").cast("d")
        self._device_speeds = self._board.view(np.float64)[:, _DEVICE_SPEEDS]

    @classmethod
    def create(cls, layouts: Sequence[Layout], slot_count: int, place_count: int) -> Arena:
        """A new arena; its descriptor is inheritable, and sealed against growing and shrinking."""
        fd = os.memfd_create("shisha-rt-arena", os.MFD_ALLOW_SEALING)
        try:
            arena = cls(fd, layouts, slot_count, place_count)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
        except (Failure, OSError):
            os.close(fd)
            raise
        arena._device_speeds[:] = 1.0
        return arena

    def view(self, slot: int, region: Region) -> npt.NDArray[Any]:
        """The tensor of `slot` in its own shape and datatype, on the shared memory itself."""
        raw = self.raw(slot, region)
        return raw.view(NUMPY_OF[region.tensor.datatype]).reshape(self.shape(slot, region))

    def view_of_many(self, slot: int, count: int, region: Region, axis: int) -> npt.NDArray[Any]:
        """The tensors of `count` slots from `slot` on as one array, frames along `axis`. For regions without gaps."""
        start, shape = self._start(slot, region), list(region.tensor.shape)
        self._start(slot + count - 1, region)
        shape[axis] *= count
        raw = self._bytes[start : start + count * region.size_bytes]
        return raw.view(NUMPY_OF[region.tensor.datatype]).reshape(shape)

    def raw(self, slot: int, region: Region) -> npt.NDArray[np.uint8]:
        """Bytes of a tensor. Raises `NoRoom` if its shape depends on the data and it is larger than its buffer."""
        start = self._start(slot, region)
        if not region.tensor.open_axes:
            return self._bytes[start : start + region.size_bytes]
        shape = self.shape(slot, region)
        needed_bytes = size_bytes(region.tensor.datatype, shape)
        if needed_bytes > region.room_bytes:
            raise NoRoom(region, shape, needed_bytes)
        return self._bytes[start + SHAPE_BYTES : start + SHAPE_BYTES + needed_bytes]

    def read(self, slot: int, region: Region) -> bytes:
        """Copy out a tensor. Raises `NoRoom` as `raw` does."""
        if region.tensor.open_axes:
            return self.raw(slot, region).tobytes()
        start = self._start(slot, region)
        return self._view[start : start + region.size_bytes].tobytes()

    def write(self, slot: int, region: Region, data: memoryview) -> None:
        """Copy in all of a tensor, whose shape does not depend on the data. Raises ValueError if sizes differ."""
        start = self._start(slot, region)
        self._view[start : start + region.size_bytes] = data
        self.make_booleans(slot, region)

    def make_booleans(self, slot: int, region: Region) -> None:
        """Make each byte of a tensor of booleans 0 or 1: engines differ in what they take others for."""
        if region.tensor.datatype == "BOOL":
            raw = self.raw(slot, region)
            np.minimum(raw, 1, out=raw)

    def shape(self, slot: int, region: Region) -> tuple[int, ...]:
        """Shape of the tensor in `slot`; if it depends on the data, the shape that was last written there."""
        if not region.tensor.open_axes:
            return region.tensor.shape
        rank, *sizes = self._shape_words(slot, region).tolist()
        return tuple(sizes[:rank])

    def set_shape(self, slot: int, region: Region, shape: Sequence[int]) -> None:
        """Write the shape that a tensor has in `slot` from now on, if it depends on the data."""
        if len(shape) > MAX_RANK:
            raise ValueError(f"{region.tensor.name!r} has {len(shape)} axes; expected at most {MAX_RANK}")
        self._shape_words(slot, region)[: 1 + len(shape)] = (len(shape), *shape)

    def _shape_words(self, slot: int, region: Region) -> npt.NDArray[np.int64]:
        start = self._start(slot, region)
        return self._bytes[start : start + SHAPE_BYTES].view(np.int64)

    def _start(self, slot: int, region: Region) -> int:
        if not 0 <= slot < self.slot_count:
            raise IndexError(f"slot {slot} of {self.slot_count}")
        return self._slots_at + region.offset_bytes * self.slot_count + slot * region.stride_bytes

    def punch(self, slot: int, region: Region) -> None:
        """Give back the pages of a tensor that no slot needs any more; it reads as zeros from then on.

        What other slots have of this tensor on the same pages is lost, too.
        """
        start = self._start(slot, region)
        first = start // mmap.PAGESIZE * mmap.PAGESIZE
        length = page_aligned(start + region.stride_bytes - first)
        done = _libc.fallocate(self.fd, _PUNCH_HOLE_KEEP_SIZE, ctypes.c_longlong(first), ctypes.c_longlong(length))
        if done != 0 and ctypes.get_errno() != errno.EOPNOTSUPP:
            raise OSError(ctypes.get_errno(), "punching a hole into the arena failed")

    # --- the board --------------------------------------------------------------------------------------------

    def clear_sign(self, place: int, now_ns: int) -> None:
        """Daemon: note that a new worker is about to start on this place; it has the usual time for a first heartbeat.

        Speeds stay: they belong to the place and its devices, and not to a worker.
        """
        self._board[place, :_SPEED] = (now_ns, 0, 0, 0)

    def sign(self, place: int) -> Sign:
        heartbeat, frame, started, paced_until = self._board[place, :_SPEED].tolist()
        return Sign(heartbeat, frame - 1 if frame else None, started, paced_until)

    def set_speed(self, place: int, speed: float) -> None:
        """Daemon: set the speed that the worker on this place uses from its next frame on."""
        self._reals[place * RECORD_WORDS + _SPEED] = speed

    def speed(self, place: int) -> float:
        return self._reals[place * RECORD_WORDS + _SPEED]

    def set_device_speed(self, place: int, device: int, speed: float) -> None:
        self._device_speeds[place, device] = speed

    def device_speed(self, place: int, device: int) -> float:
        return float(self._device_speeds[place, device])

    def beat(self, place: int, now_ns: int) -> None:
        self._words[place * RECORD_WORDS + _HEARTBEAT] = now_ns

    def note_start(self, place: int, frame: int, now_ns: int) -> None:
        """Note that a worker starts on a frame, so that the daemon sees how long it has been at it."""
        record = place * RECORD_WORDS
        self._words[record + _STARTED] = now_ns
        self._words[record + _FRAME] = frame + 1

    def note_pacing(self, place: int, until_ns: int) -> None:
        self._words[place * RECORD_WORDS + _PACED_UNTIL] = until_ns

    def note_end(self, place: int) -> None:
        record = place * RECORD_WORDS
        self._words[record + _FRAME] = 0
        self._words[record + _PACED_UNTIL] = 0

    def close(self) -> None:
        """Close the descriptor. The mapping itself ends with the last array that uses it."""
        os.close(self.fd)
