"""Messages of several parts on a direct line."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shisha_rt.protocol.line import pack, unpack


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=6))
def test_parts_come_out_as_they_went_in(parts: list[bytes]) -> None:
    assert [bytes(part) for part in unpack(pack(parts))] == parts


def test_its_form() -> None:
    """As docs/wire.md has it."""
    assert pack([b"{}", b"", b"abc"]) == struct.pack("<4I", 3, 2, 0, 3) + b"{}abc"


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\1\0\0",
        struct.pack("<I", 0),
        struct.pack("<I", 1),
        struct.pack("<2I", 1, 4) + b"abc",
        struct.pack("<2I", 1, 2) + b"abc",
        struct.pack("<I", 1 << 31),
        struct.pack("<I", 5000) + bytes(4 * 5000),
        struct.pack("<3I", 2, 1 << 31, 1 << 31),
    ],
)
def test_sizes_that_do_not_add_up_are_refused(message: bytes) -> None:
    with pytest.raises(ValueError, match="parts"):
        unpack(message)


def test_a_message_has_at_most_so_many_parts() -> None:
    assert len(unpack(pack([b""] * 4096))) == 4096
    with pytest.raises(ValueError, match="4097 parts"):
        unpack(pack([b""] * 4097))


@given(st.binary(max_size=64))
def test_any_bytes_are_parts_or_refused(message: bytes) -> None:
    try:
        parts = unpack(message)
    except ValueError:
        return
    assert pack(parts) == message
