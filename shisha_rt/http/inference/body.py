"""The body of a request, read piece by piece: decompressed, and limited in size and time.

A piece is read from the connection only when the one before has been consumed, and a compressed body is decompressed
only as far as the reader asks for, so that a decompression bomb does no harm.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from shisha_rt.http.exchange import Exchange
from shisha_rt.http.faults import HttpFault
from shisha_rt.protocol.exceptions import malformed

if TYPE_CHECKING:
    from zlib import _Decompress

PATIENCE_S: Final = 20.0
SLOWEST_BYTES_PER_S: Final = 100_000
_WINDOW_OF: Final = {b"gzip": 31, b"x-gzip": 31, b"deflate": 47}  # zlib's wbits: 15 + 16: gzip; 15 + 32: either
_PIECE_BYTES: Final = 256 << 10
_MOST_PACKED_BYTES: Final = 64 << 10
"""How much larger a compressed body may be than its content: without a limit it could go on and unpack to nothing."""
_STRETCH_BYTES: Final = 2 << 20
"""Most bytes read straight into their destination under one time limit: the less, the sooner a stall is noticed."""


_Asked = TypeVar("_Asked")
_Read = TypeVar("_Read")


class HungUp(Exception):
    """The caller has disconnected; nobody waits for an answer."""


class Body:
    """`encoding`: Content-Encoding; `size_bytes`: Content-Length. Raises HttpFault for an unknown encoding.

    Reading raises HttpFault for a body that takes longer than `patience_s` and its size / `SLOWEST_BYTES_PER_S`, and
    HungUp if the caller has disconnected.
    """

    def __init__(
        self, source: Exchange, encoding: bytes | None, size_bytes: int | None, patience_s: float = PATIENCE_S
    ) -> None:
        self._source = source
        self._size_bytes = size_bytes
        self._patience_s = patience_s
        self._packed: _Decompress | None = None
        self._piece: bytes = b""
        self._more = True
        self._begun_s = asyncio.get_running_loop().time()
        self._read_bytes = self._unpacked_bytes = 0
        name = b"identity" if encoding is None else encoding.strip().lower()
        if name in _WINDOW_OF:
            self._packed = zlib.decompressobj(_WINDOW_OF[name])
        elif name != b"identity":
            known = ", ".join(known_encoding.decode() for known_encoding in _WINDOW_OF)
            raise HttpFault(415, f"Content-Encoding {name.decode('latin-1')!r}; expected {known}, or none")

    @property
    def is_packed(self) -> bool:
        return self._packed is not None

    async def whole(self, most_bytes: int, reserve: Callable[[int], None] | None = None) -> bytearray:
        """The rest of the body. `reserve` is called with the size of each piece before it is kept. Raises HttpFault."""
        plain = bytearray()
        while piece := await self._next(most_bytes + 1 - len(plain)):
            if reserve is not None:
                reserve(len(piece))
            plain += piece
            if len(plain) > most_bytes:
                raise HttpFault(413, f"the body is too large; expected at most {most_bytes} bytes")
        return plain

    async def exactly(self, size_bytes: int) -> bytes | bytearray | memoryview:
        """The next `size_bytes`. Raises HttpFault if the body ends before."""
        piece = await self._next(size_bytes) if size_bytes else b""
        if len(piece) == size_bytes:
            return piece
        plain = bytearray(size_bytes)
        plain[: len(piece)] = piece
        await self.into(memoryview(plain)[len(piece) :])
        return plain

    async def into(self, room: memoryview) -> None:
        """Fill `room`. Raises HttpFault if the body ends before."""
        filled = 0
        while filled < len(room):
            if self._packed is None and self._more and not self._piece:
                stretch = room[filled : filled + _STRETCH_BYTES]
                came_bytes = await self._in_time(self._source.fill(stretch), len(stretch))
                self._read_bytes += came_bytes
                filled += came_bytes
                if came_bytes == len(stretch):
                    continue
            piece = await self._next(len(room) - filled)
            if not piece:
                raise HttpFault(400, "the body ends too early; expected as many bytes as its header says")
            room[filled : filled + len(piece)] = piece
            filled += len(piece)

    async def end(self) -> None:
        """Check that the body has ended. Raises HttpFault if not."""
        if self._packed is None and not self._piece and self._read_bytes == self._size_bytes:
            return
        if await self._next(1):
            raise HttpFault(400, "the body is too long; expected as many bytes as its header says")

    async def _next(self, most_bytes: int) -> bytes | memoryview:
        """The next piece, at most `most_bytes`; empty if the body has ended."""
        while True:
            if self._packed is None:
                if self._piece:
                    taken = memoryview(self._piece)[:most_bytes]
                    self._piece = self._piece[most_bytes:] if len(self._piece) > most_bytes else b""
                    return taken
            elif unpacked := self._unpack(self._packed, min(most_bytes, _PIECE_BYTES)):
                await asyncio.sleep(0)  # decompressing may take long: let others run
                return unpacked
            if not self._more:
                if self._packed is not None and not self._packed.eof:
                    raise HttpFault(400, "the compressed body ends too early; expected what Content-Encoding says")
                return b""
            self._piece = await self._in_time(self._source.read(), 0)
            self._read_bytes += len(self._piece)
            self._more = bool(self._piece)
            if self.is_packed and self._read_bytes > self._unpacked_bytes + len(self._piece) + _MOST_PACKED_BYTES:
                raise HttpFault(400, "the compressed body is larger than its content; expected it smaller")

    def _unpack(self, packed: _Decompress, most_bytes: int) -> bytes:
        ended, data, self._piece = packed.eof, packed.unconsumed_tail + self._piece, b""
        try:
            unpacked = b"" if ended else packed.decompress(data, most_bytes)
        except zlib.error:
            raise HttpFault(400, "the body cannot be decompressed; expected what Content-Encoding says") from None
        if packed.unused_data or (ended and data):
            raise HttpFault(400, "the body goes on after its compressed data; expected nothing after it")
        self._unpacked_bytes += len(unpacked)
        return unpacked

    async def _in_time(self, reading: Awaitable[_Read], more_bytes: int) -> _Read:
        """Await a piece of the body, of up to `more_bytes` if its size is known. Raises HungUp and HttpFault."""
        transfer_s = (self._read_bytes + more_bytes) / SLOWEST_BYTES_PER_S
        try:
            async with asyncio.timeout_at(self._begun_s + self._patience_s + transfer_s):
                return await reading
        except TimeoutError:
            too_slow = f"the body comes too slowly; expected {SLOWEST_BYTES_PER_S} bytes a second"
            raise HttpFault(408, too_slow) from None
        except ConnectionError:
            raise HungUp from None


async def read_json(
    exchange: Exchange, kind: type[_Asked], most_bytes: int = 64 << 10, patience_s: float = PATIENCE_S
) -> _Asked:
    """Read the body of a small request; an empty one counts as `{}`. Raises `InvalidArgument` and HttpFault."""
    encoding = exchange.headers_by_name.get(b"content-encoding")
    data = await Body(exchange, encoding, None, patience_s).whole(most_bytes)
    try:
        return msgspec.json.decode(data or b"{}", type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise malformed(f"the request's JSON: {str(error).partition(chr(10))[0]}") from None
