"""A request over HTTP and its answer."""

from __future__ import annotations

import asyncio
import http
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from email.utils import formatdate
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import unquote_to_bytes

import httptools

from shisha_rt.http.faults import HttpFault

if TYPE_CHECKING:
    from shisha_rt.http.connection import HttpConnection

STATUS_LINES: Final = {status.value: f"HTTP/1.1 {status} {status.phrase}\r\n".encode() for status in http.HTTPStatus}
_ONE_PIECE_BYTES: Final = 64 << 10
_NO_BODY: Final = frozenset({204, 304})
_ESCAPED: Final = re.compile(rb"%(?:2[DE]|5F|7E|3[0-9]|[46][1-9A-F]|[57][0-9A])", re.IGNORECASE)
"""A letter, a digit, or one of `-._~` as an escape."""

Header: TypeAlias = tuple[bytes, bytes]
Piece: TypeAlias = bytes | bytearray | memoryview
Answering: TypeAlias = Callable[["Exchange"], Awaitable[None]]


class Exchange:
    """A request, whose head `parser` has read, and its answer.

    `raw_path`: only reserved characters are escaped, so that equivalent paths are equal (RFC 3986, section 6.2.2.2).
    `caller_uid`: the user at the other end of a UNIX socket. `connection_name`: unique for each connection.

    Answer by `start`, `send` for each piece and `finish`; or by `answer`, which does all of it.
    """

    __slots__ = (
        *("_chunked", "_connection", "_when_lost", "answered", "begun", "body", "caller_uid"),
        *("connection_name", "continues", "gone", "headers", "headers_by_name", "http_version"),
        *("keeps_alive", "method", "more", "news", "query", "raw_path"),
    )

    def __init__(self, connection: HttpConnection, parser: Any, url: bytes, headers: list[Header]) -> None:
        parsed = httptools.parse_url(url)
        self.method: str = parser.get_method().decode("ascii")
        self.raw_path: bytes = _ESCAPED.sub(lambda escape: bytes.fromhex(escape[0][1:].decode()), parsed.path or b"/")
        self.query: bytes = parsed.query or b""
        self.headers = headers
        self.headers_by_name = dict(headers)
        if parsed.host:  # an absolute target says the host, whatever `Host` says (RFC 9112, section 3.2.2)
            self.headers_by_name[b"host"] = _host_of(parsed)
        self.http_version: str = parser.get_http_version()
        self.keeps_alive: bool = self.http_version != "1.0" and parser.should_keep_alive()
        self.continues = (
            self.http_version == "1.1" and self.headers_by_name.get(b"expect", b"").lower() == b"100-continue"
        )
        self.body = bytearray()
        self.more = True
        self.gone = self.begun = self.answered = False
        self.news: asyncio.Future[None] | None = None
        self.connection_name, self.caller_uid = connection.name, connection.uid
        self._connection = connection
        self._chunked = False
        self._when_lost: Callable[[], object] | None = None

    @property
    def path(self) -> str:
        raw = self.raw_path
        return unquote_to_bytes(raw).decode(errors="replace") if b"%" in raw else raw.decode("ascii", "replace")

    @property
    def origin(self) -> bytes:
        """What browsers send as `Origin` from our own pages."""
        return self._connection.connections.scheme.encode() + b"://" + self.headers_by_name.get(b"host", b"")

    # --- the request ------------------------------------------------------------------------------------------

    async def fill(self, room: memoryview) -> int:
        """Fill `room` from the body; return how many bytes came, fewer only at its end. Raises ConnectionError."""
        kept = self.body[: len(room)]
        room[: len(kept)] = kept
        del self.body[: len(kept)]
        if len(kept) == len(room) or not self.more:
            return len(kept)
        self._check_there()
        return await self._connection.fill(room, len(kept))

    async def read(self) -> bytes:
        """The next bytes of the body, as many as have come; b"" if it has ended. Raises ConnectionError."""
        while not self.body and self.more:
            self._check_there()
            await self._wait()
        piece = bytes(self.body)
        self.body.clear()
        return piece

    async def lost(self) -> None:
        """Wait until the caller has disconnected, or has been answered. What still comes of the body is dropped."""
        while not (self.gone or self.answered):
            self.body.clear()
            await self._wait()

    def watch(self, when_lost: Callable[[], object] | None) -> None:
        """Call `when_lost` once the caller disconnects; None: no longer. The body must have been read before."""
        self._when_lost = when_lost
        self._connection.resume_reading()  # a disconnection is noticed only while reading
        if when_lost is not None and self.gone:
            when_lost()

    def abort(self) -> None:
        """Cut the connection off, and drop what the caller has not read."""
        self._connection.transport.abort()

    def _check_there(self) -> None:
        if self.gone:
            raise ConnectionResetError
        if self.continues:
            self.continues = False
            self._connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    async def _wait(self) -> None:
        self._connection.resume_reading()
        self.news = asyncio.get_running_loop().create_future()
        try:
            await self.news
        finally:
            self.news = None

    def tell(self) -> None:
        """Wake who waits for news of this exchange."""
        if self.news is not None and not self.news.done():
            self.news.set_result(None)

    def lose(self) -> None:
        self.gone = not self.answered
        self.tell()
        when_lost, self._when_lost = self._when_lost, None
        if when_lost is not None:
            when_lost()

    # --- the answer -------------------------------------------------------------------------------------------

    async def answer(self, status: int, headers: Iterable[Header], pieces: Sequence[Piece]) -> None:
        """Send a whole answer: a small one in one write, a large one by pieces, waiting for a slow reader between."""
        size_bytes = sum(map(len, pieces))
        length = () if status in _NO_BODY else ((b"content-length", b"%d" % size_bytes),)
        head = self._head(status, [*headers, *length])
        if size_bytes <= _ONE_PIECE_BYTES:
            await self._write(b"".join([head, *pieces]) if self.method != "HEAD" else head)
        else:
            await self._write(head)
            for piece in pieces if self.method != "HEAD" else ():
                await self._write(piece)
        self._finish()

    async def refuse(self, fault: HttpFault) -> None:
        await self.answer(fault.status, fault.headers, [fault.body])

    async def start(self, status: int, headers: Iterable[Header]) -> None:
        """Send the status and headers. Raises ValueError for a header with a character that could begin another one."""
        await self._write(self._head(status, headers))

    async def send(self, piece: Piece) -> None:
        if self.method == "HEAD" or not piece:
            return
        if self._chunked:
            piece = b"".join([b"%x\r\n" % len(piece), piece, b"\r\n"])
        await self._write(piece)

    async def finish(self) -> None:
        if self._chunked and self.method != "HEAD":
            await self._write(b"0\r\n\r\n")
        self._finish()

    def _head(self, status: int, headers: Iterable[Header]) -> bytes:
        if not self.begun:  # else the connection has answered in its place
            self._connection.connections.count(status)
        is_held_back = self.continues and self.more and not self.body  # the body may come, or another request instead
        self.begun, self.continues = True, False
        parts, has_length = [STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status, date_line()], False
        self.keeps_alive = self.keeps_alive and not self._connection.ending and not is_held_back
        for name, value in headers:
            if b"\n" in value or b"\r" in value or b"\0" in value:
                raise ValueError(f"the header {name!r} has more than a line")
            has_length |= name == b"content-length"
            parts += name, b": ", value, b"\r\n"
        if not has_length and status not in _NO_BODY:  # it goes on until its last chunk, or the connection's end
            self._chunked = self.http_version == "1.1"
            self.keeps_alive = self.keeps_alive and self._chunked
            if self._chunked:
                parts.append(b"transfer-encoding: chunked\r\n")
        if not self.keeps_alive:
            parts.append(b"connection: close\r\n")
        parts.append(b"\r\n")
        return b"".join(parts)

    async def _write(self, data: Piece) -> None:
        if self.gone:
            return
        await self._connection.drained()
        self._connection.write(data)

    def _finish(self) -> None:
        self.answered = True
        self.tell()
        self._connection.answered(self)


@lru_cache(maxsize=1)
def _date_of(second: int) -> bytes:
    return f"date: {formatdate(second, usegmt=True)}\r\n".encode()


def date_line() -> bytes:
    return _date_of(int(time.time()))


def _host_of(parsed: Any) -> bytes:
    host: bytes = b"[%b]" % parsed.host if b":" in parsed.host else parsed.host
    return host if parsed.port is None else b"%b:%d" % (host, parsed.port)
