"""Messages of several parts on a direct line, a UNIX socket that keeps messages apart: docs/wire.md, "A direct line".

A message is the number of its parts, the size of each, and the parts one behind the other. Numbers are little-endian,
of 32 bits. Pure.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from functools import cache
from typing import Final

_NUMBER: Final = struct.Struct("<I")
_MOST_PARTS: Final = 4096


def pack(parts: Sequence[bytes | bytearray | memoryview]) -> bytes:
    """Join the parts of a message behind their number and their sizes in bytes (`unpack`)."""
    return b"".join([_numbers(len(parts) + 1).pack(len(parts), *map(len, parts)), *parts])


def unpack(message: bytes) -> list[memoryview]:
    """The parts, as views of the message. Raises ValueError unless their sizes add up."""
    if len(message) < _NUMBER.size:
        raise ValueError("no number of parts")
    (count,) = _NUMBER.unpack_from(message)
    numbers = _numbers(min(count, _MOST_PARTS) + 1)
    if not 0 < count <= _MOST_PARTS or len(message) < numbers.size:
        raise ValueError(f"{count} parts in {len(message)} bytes")
    _, *sizes = numbers.unpack_from(message)
    ends = list(itertools.accumulate(sizes, initial=numbers.size))
    if ends[-1] != len(message):
        raise ValueError(f"{ends[-1]} bytes of parts in {len(message)} bytes")
    view = memoryview(message)
    return [view[begin:end] for begin, end in itertools.pairwise(ends)]


@cache
def _numbers(count: int) -> struct.Struct:
    return struct.Struct(f"<{count}I")
