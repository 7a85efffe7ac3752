"""Bodies as they come over HTTP: in pieces, packed, too long, too short, too slow; and the room that they take."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import zlib
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any, cast
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shisha_rt.http.exchange import Exchange
from shisha_rt.http.faults import HttpFault
from shisha_rt.http.inference.body import _STRETCH_BYTES, PATIENCE_S, SLOWEST_BYTES_PER_S, Body, HungUp, read_json
from shisha_rt.http.inference.inferences import Room
from shisha_rt.http.inference.routes import _packing
from shisha_rt.protocol.exceptions import ResourceExhausted

PACK: dict[bytes | None, Callable[[bytes], bytes]] = {None: bytes, b"gzip": gzip.compress, b"deflate": zlib.compress}


class Pieces:
    """A body that comes so; then it ends, or the caller goes or falls silent. Nothing goes straight to its place."""

    def __init__(self, pieces: list[bytes], *, ends: bool = True, gone: bool = False) -> None:
        self.left = list(pieces)
        self._ends = ends
        self._gone = gone

    async def fill(self, _: memoryview) -> int:
        return 0

    async def read(self) -> bytes:
        await asyncio.sleep(0)
        if self._gone:
            raise ConnectionResetError
        while self.left:
            piece = self.left.pop(0)
            if piece:
                return piece
        if not self._ends:
            await asyncio.sleep(3600)
        return b""


def read(
    pieces: list[bytes],
    encoding: bytes | None,
    how: Callable[[Body], Awaitable[Any]],
    *,
    ends: bool = True,
    patience_s: float = PATIENCE_S,
) -> Any:
    """What `how` makes of a body; beside it how many of its pieces were never asked for."""
    source = Pieces(pieces, ends=ends)

    async def run() -> Any:
        return await how(Body(cast("Exchange", source), encoding, None, patience_s))

    return asyncio.run(run()), len(source.left)


async def all_of(body: Body) -> bytes:
    """In two, and that it ends there."""
    first = bytes(await body.exactly(40))
    room = bytearray(60)
    await body.into(memoryview(room))
    await body.end()
    return first + room


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[begin:end] for begin, end in pairwise(edges)]


@settings(max_examples=40, deadline=None)
@given(st.binary(min_size=100, max_size=100), st.sampled_from(list(PACK)), st.lists(st.integers(0, 10**6), max_size=6))
def test_it_is_what_was_sent_however_it_is_cut(data: bytes, encoding: bytes | None, places: list[int]) -> None:
    assert read(cut(PACK[encoding](data), places), encoding, all_of)[0] == data
    assert bytes(read(cut(PACK[encoding](data), places), encoding, lambda body: body.whole(100))[0]) == data


@pytest.mark.parametrize("encoding", PACK)
@pytest.mark.parametrize("size", [0, 4, 99, 101, 500])
def test_another_length_is_refused(encoding: bytes | None, size: int) -> None:
    with pytest.raises(HttpFault) as caught:
        read([PACK[encoding](b"x" * size)], encoding, all_of)
    assert caught.value.status == 400
    if size > 100:
        with pytest.raises(HttpFault) as caught:
            read([PACK[encoding](b"x" * size)], encoding, lambda body: body.whole(100))
        assert caught.value.status == 413


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([b"gzip", b"deflate"]), st.binary(max_size=64), st.integers(0, 200))
def test_what_cannot_be_unpacked_is_refused(encoding: bytes, junk: bytes, at: int) -> None:
    good = PACK[encoding](bytes(range(100)))
    for data in (junk, good[:at] + junk, good + junk):
        with contextlib.suppress(HttpFault):
            assert read([data], encoding, all_of)[0] == bytes(range(100))


@pytest.mark.parametrize("encoding", [b"gzip", b"deflate"])
def test_a_bomb_is_not_unpacked(encoding: bytes) -> None:
    bomb = PACK[encoding](bytes(16 << 20))
    pieces = [bomb[at : at + 4096] for at in range(0, len(bomb), 4096)]

    async def refused(body: Body) -> None:
        with pytest.raises(HttpFault) as caught:
            await all_of(body)
        assert caught.value.status == 400
        assert len(body._piece) <= 4096

    assert read(pieces, encoding, refused)[1] >= len(pieces) - 1


def test_packed_data_that_unpacks_to_nothing_has_an_end() -> None:
    """An empty block is 5 bytes of nothing, and there may be any number of them."""
    pieces = [zlib.compress(b"", 0)[:2], *[b"\x00\x00\x00\xff\xff" * 1000] * 100]

    async def refused(body: Body) -> None:
        with pytest.raises(HttpFault) as caught:
            await body.whole(100)
        assert caught.value.status == 400

    assert read(pieces, b"deflate", refused)[1] > 80


def test_what_goes_on_behind_the_end_of_what_is_packed_is_not_kept() -> None:
    pieces = [gzip.compress(bytes(100)), *[b"x" * 4096] * 1000]
    with pytest.raises(HttpFault) as caught:
        read(pieces, b"gzip", all_of)
    assert caught.value.status == 400


@pytest.mark.parametrize("encoding", [b"gzip", b"deflate"])
def test_what_is_packed_ends_with_the_body(encoding: bytes) -> None:
    packed = PACK[encoding](bytes(100))
    for data in (packed + b"x", packed[:-1]):
        for how in (all_of, lambda body: body.whole(1000)):
            with pytest.raises(HttpFault) as caught:
                read([data], encoding, how)
            assert caught.value.status == 400


def test_unknown_encodings_and_callers_who_go() -> None:
    with pytest.raises(HttpFault) as caught:
        read([b""], b"br", all_of)
    assert caught.value.status == 415

    async def gone(body: Body) -> None:
        with pytest.raises(HungUp):
            await body.into(memoryview(bytearray(10)))

    async def run() -> None:
        await gone(Body(cast("Exchange", Pieces([], gone=True)), None, None))

    asyncio.run(run())


def test_a_slow_body_is_given_up() -> None:
    with pytest.raises(HttpFault) as caught:
        read([b"x" * 10], None, all_of, ends=False, patience_s=0.01)
    assert caught.value.status == 408


def test_a_body_has_time_for_all_its_bytes() -> None:
    class Steady(Pieces):
        """Each stretch takes nine tenths of its time."""

        async def fill(self, stretch: memoryview) -> int:
            loop = asyncio.get_running_loop()
            then_s = loop.time() + 0.9 * len(stretch) / SLOWEST_BYTES_PER_S
            loop.time = lambda: then_s  # type: ignore[method-assign]
            await asyncio.sleep(0)
            return len(stretch)

    async def run() -> None:
        await Body(cast("Exchange", Steady([])), None, None, 0.01).into(memoryview(bytearray(3 * _STRETCH_BYTES)))

    asyncio.run(run())


def test_a_small_request_may_be_empty() -> None:
    exchange = Mock(read=Pieces([]).read, headers_by_name={})
    assert asyncio.run(read_json(exchange, dict[str, int])) == {}


def test_a_body_of_unknown_size_takes_room_as_it_comes() -> None:
    room = Room(100)

    def read_beside(others_bytes: int) -> int:
        with room.taken() as other, room.taken() as own:
            other(others_bytes)
            read([b"x" * 10] * 5, None, lambda body: body.whole(1000, own))
            return room.taken_bytes - others_bytes

    assert read_beside(50) == 50
    with pytest.raises(ResourceExhausted):
        read_beside(51)
    assert room.taken_bytes == 0


def test_room_is_shared_and_given_back() -> None:
    room = Room(100)
    with room.taken() as large:
        large(1000)  # by itself
        with room.taken() as other, pytest.raises(ResourceExhausted):
            other(1)
        large(5)
    with room.taken() as first, room.taken() as second:
        first(60)
        second(40)
        with pytest.raises(ResourceExhausted):
            first(1)
        assert room.taken_bytes == 100
    assert room.taken_bytes == 0


@pytest.mark.parametrize(
    ("accepted", "packing"),
    [
        (b"gzip", b"gzip"),
        (b"br, DEFLATE;q=0.5, gzip", b"deflate"),
        (b"identity", None),
        (b"gzip;q=0", None),
        (b"gzip; q=0.000, deflate", b"deflate"),
        (b"gzipped", None),
        (b"", None),
        (b"*", None),
        (b",;,;q=", None),
    ],
)
def test_answers_are_packed_as_is_accepted(accepted: bytes, packing: bytes | None) -> None:
    assert _packing(accepted) == packing
