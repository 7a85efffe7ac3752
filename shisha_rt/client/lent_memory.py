"""Memory that a client shares with its daemon, so that only the location of a large tensor has to be sent.

A region is one connection to the daemon's socket and the memory received through it. Arrays are pieces of regions. A
piece is reused when no array of the caller and no frame in flight refers to it any more. After the connection to the
daemon is lost no region is reused, and existing arrays stay valid.
Shell.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import socket
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from functools import cache
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import DTypeLike

from shisha_rt.client.local_socket import AGAIN_S, LONGEST_ANSWER_BYTES, Question
from shisha_rt.errors import Code
from shisha_rt.protocol.frame_tensors import Array, Shape, bytes_of
from shisha_rt.protocol.header import ErrorBody, TensorData
from shisha_rt.protocol.limits import MAX_INTEGER

_NO_MEMORY_S: Final = 1.0
"""Pause before a daemon that had no memory left is asked again."""
_ARRAYS: Final = 4
"""The first region holds so many times what is wanted; each further region at least doubles the total."""
_LARGEST_BYTES: Final = 64 << 20
"""The largest region, unless more than this is wanted at once."""
_SMALLEST_BYTES: Final = 4096
_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


class _RegionAnswer(Struct, frozen=True):
    token: str = ""
    size_bytes: int = 0
    instance: str = ""
    error: ErrorBody | None = None


_ANSWER_DECODER: Final = msgspec.json.Decoder(_RegionAnswer)


class _Region:
    """A region, until `close`. `cut_bytes`: how much has been cut into pieces; `used`: the number of pieces in use."""

    __slots__ = ("_connection", "cut_bytes", "memory", "size_bytes", "start", "token", "used")

    def __init__(self, connection: socket.socket, memory: mmap.mmap, token: str) -> None:
        self._connection: socket.socket | None = connection
        self.memory = memory
        self.size_bytes = len(memory)
        self.start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self.token = token
        self.cut_bytes = 0
        self.used = 0

    @property
    def closed(self) -> bool:
        return self._connection is None

    def close(self) -> None:
        """Make the daemon release the region. The mapping stays as long as an array refers to it."""
        if self._connection is not None:
            _shut_down(self._connection)
            self._connection = None


class _Piece(NamedTuple):
    """A part of a region that has room for one array at a time."""

    region: _Region
    offset: int
    room_bytes: int

    def place(self, size_bytes: int) -> TensorData:
        return TensorData(None, self.region.token, size_bytes, self.offset)


class _Lent(NamedTuple):
    """A piece in use, and the queue to which any thread may return it."""

    piece: _Piece
    place: TensorData
    returned: deque[_Piece]


class _Copy(_Lent):
    """A copy of an array. No numpy array refers to it; the piece is returned when this object is collected."""

    __slots__ = ()

    def __del__(self) -> None:
        self.returned.append(self.piece)


@cache
def _exporter_type(room_bytes: int) -> Any:
    """Return a ctypes type of `room_bytes` bytes, whose instances return their piece when collected."""

    def give_back(exporter: Any) -> None:
        if exporter.lent is not None:  # Ctrl-C may come before it is set
            exporter.lent.returned.append(exporter.lent.piece)

    return type("_Exporter", (ctypes.c_uint8 * room_bytes,), {"__del__": give_back, "lent": None})


class LentMemory:
    """The `Lender` of one client; it has no regions before `meet` has given the daemon's socket.

    Arrays may be collected in any thread; everything else is for the client's thread only.
    """

    def __init__(self) -> None:
        self._path: str | None = None
        self._instance: str | None = None
        self._asked: Question | None = None
        self._asked_bytes = self._wanted_bytes = 0
        self._again_s = 0.0
        self._regions: list[_Region] = []  # by address
        self._free: dict[int, list[_Piece]] = {}  # by size
        self._returned: deque[_Piece] = deque()

    @property
    def shared(self) -> bool:
        return bool(self._regions)

    def meet(self, path: str | None, instance: str | None) -> None:
        """Begin with a daemon. `path`: its socket for regions, None if it lends no memory; `instance`: its run."""
        self.forget()
        self._path, self._instance = path, instance

    def forget(self) -> None:
        """Give up all regions: the connection was lost or closed."""
        self._give_up()
        self._instance = None
        self._again_s = 0.0
        for region in self._regions:
            region.close()
        self._regions = []
        self._free.clear()
        self._returned.clear()

    # --- arrays -----------------------------------------------------------------------------------------------

    def want(self, size_bytes: int) -> None:
        if not self._wanted_bytes and self._path is not None and size_bytes <= MAX_INTEGER:
            self._wanted_bytes = size_bytes

    def empty(self, shape: Shape, dtype: DTypeLike) -> Array | None:
        """As `Lender.empty`. A new region is wanted (`wants`) if no piece is free, or the last free one was taken."""
        size_bytes = bytes_of(shape, dtype)
        piece = self._piece(_room_bytes(size_bytes))
        if piece is None:
            return None
        # All arrays on the piece keep this object alive: numpy replaces the base of a view of a view by the first
        # array, but never by that array's own base, which is this object.
        exporter = _exporter_type(piece.room_bytes).from_buffer(piece.region.memory, piece.offset)
        exporter.lent = _Lent(piece, piece.place(size_bytes), self._returned)
        return np.ndarray(shape, dtype, exporter)

    def copy(self, array: Array) -> tuple[TensorData, object] | None:
        piece = self._piece(_room_bytes(array.nbytes))
        if piece is None:
            return None
        room: Array = np.ndarray(array.shape, array.dtype, piece.region.memory, piece.offset)
        np.copyto(room, np.asarray(array))  # as a plain array: a subclass could run code of its own
        place = piece.place(array.nbytes)
        return place, _Copy(piece, place, self._returned)

    def find(self, array: Array) -> TensorData | None:
        if not self._regions or not array.flags.c_contiguous:
            return None
        base: Any = array.base
        while isinstance(base, np.ndarray):
            base = base.base
        lent = getattr(base, "lent", None)
        if isinstance(lent, _Lent) and lent.place.shared_memory_byte_size == array.nbytes:  # the whole array
            return lent.place if lent.piece.region in self._regions else None
        address = array.__array_interface__["data"][0]
        region = self._regions[bisect_right(self._regions, address, key=_START) - 1]
        offset = address - region.start
        if not 0 <= offset <= region.size_bytes - array.nbytes:
            return None
        return TensorData(None, region.token, array.nbytes, offset)

    def _piece(self, room_bytes: int) -> _Piece | None:
        """Return an unused piece. A new region is wanted if there is none, or if it was the last of its size."""
        while self._returned:
            piece = self._returned.popleft()
            piece.region.used -= 1
            if not piece.region.closed:
                self._free.setdefault(piece.room_bytes, []).append(piece)
        free = self._free.get(room_bytes)
        taken_piece = free.pop() if free else self._cut(room_bytes)
        if taken_piece is not None:
            taken_piece.region.used += 1
        if not free and self._with_space(room_bytes) is None:
            self.want(room_bytes)
        return taken_piece

    def _cut(self, room_bytes: int) -> _Piece | None:
        region = self._with_space(room_bytes) or self._emptied(room_bytes)
        if region is None:
            return None
        region.cut_bytes += room_bytes
        return _Piece(region, region.cut_bytes - room_bytes, room_bytes)

    def _with_space(self, room_bytes: int) -> _Region | None:
        return next((region for region in self._regions if region.size_bytes - region.cut_bytes >= room_bytes), None)

    def _emptied(self, room_bytes: int) -> _Region | None:
        """Return a region with no piece in use, to be cut into pieces of a different size."""
        unused = (region for region in self._regions if not region.used and region.size_bytes >= room_bytes)
        if (region := next(unused, None)) is not None:
            region.cut_bytes = 0
            self._free = {
                size: [piece for piece in pieces if piece.region is not region] for size, pieces in self._free.items()
            }
        return region

    # --- regions ----------------------------------------------------------------------------------------------

    @property
    def wants(self) -> bool:
        """Whether `advance` has something to do."""
        return self._wanted_bytes > 0 and time.monotonic() >= self._again_s

    def advance(self, wait_s: float = 0.0) -> None:
        """Ask for a region, unless one has been asked for, and wait up to `wait_s` for the answer."""
        try:
            asked = self._asked or self._ask()
            if asked.has_answer(wait_s):
                self._take_region(asked.end)
        except OSError:
            self._put_off(AGAIN_S)
        except (ValueError, msgspec.MsgspecError):
            self._give_up()

    def _ask(self) -> Question:
        """Raises OSError or ValueError, as `Question` does."""
        as_much_again = sum(region.size_bytes for region in self._regions)
        size_bytes = self._asked_bytes or max(self._wanted_bytes * _ARRAYS, as_much_again)
        self._asked_bytes = max(self._wanted_bytes, min(size_bytes, _LARGEST_BYTES))
        assert self._path is not None
        self._asked = Question(self._path, msgspec.json.encode({"op": "region", "size_bytes": self._asked_bytes}))
        return self._asked

    def _take_region(self, connection: socket.socket) -> None:
        """Add the region of the daemon's answer. A daemon without enough memory is asked for less, and later again.

        Raises OSError, ValueError or MsgspecError if the answer has none.
        """
        message, fds, flags, _ = socket.recv_fds(connection, LONGEST_ANSWER_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
        if flags & socket.MSG_CTRUNC and not fds:
            raise OSError(errno.EMFILE, "no descriptor is free for the region's memory")
        try:
            answer = _ANSWER_DECODER.decode(message)
            if answer.error is not None and answer.error.code == Code.RESOURCE_EXHAUSTED:
                self._ask_for_less(connection)
                return
            region = self._region(connection, answer, fds)
        finally:
            for fd in fds:
                os.close(fd)
        self._asked = None
        self._asked_bytes = self._wanted_bytes = 0
        self._regions.append(region)
        self._regions.sort(key=_START)

    def _give_up(self) -> None:
        """Stop asking this daemon for regions; existing ones stay in use."""
        self._put_off(0.0)
        self._path = None

    def _region(self, connection: socket.socket, answer: _RegionAnswer, fds: Sequence[int]) -> _Region:
        """Map the region. Raises ValueError if the answer has none, or its memory could shrink under arrays."""
        if answer.error is not None or answer.instance != self._instance or len(fds) != 1:
            raise ValueError("none, or another daemon's")
        if answer.size_bytes < self._asked_bytes:
            raise ValueError("less than was asked for")
        (fd,) = fds
        if os.fstat(fd).st_size < answer.size_bytes or fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _SEALS != _SEALS:
            raise ValueError("its size could change")
        return _Region(connection, mmap.mmap(fd, answer.size_bytes), answer.token)

    def _ask_for_less(self, connection: socket.socket) -> None:
        if self._asked_bytes > self._wanted_bytes:
            _shut_down(connection)
            self._asked = None
            self._asked_bytes = max(self._wanted_bytes, self._asked_bytes // 4)
        else:
            self._put_off(_NO_MEMORY_S)

    def _put_off(self, pause_s: float) -> None:
        if self._asked is not None:
            _shut_down(self._asked.end)
        self._asked = None
        self._asked_bytes = self._wanted_bytes = 0  # after the pause, less may be wanted
        self._again_s = time.monotonic() + pause_s


_START: Final = attrgetter("start")


def _room_bytes(size_bytes: int) -> int:
    """Round a size up by at most an eighth, so that arrays of nearly equal size fit in each other's pieces."""
    step = max(_SMALLEST_BYTES, 1 << max(0, size_bytes.bit_length() - 4))
    return -(-size_bytes // step) * step


def _shut_down(connection: socket.socket) -> None:
    """Close the connection for all processes that hold it; otherwise a forked child would keep the region alive."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
