"""HTTP/1.1 connections, by httptools' parser and asyncio's buffered protocol; one request on them is an `Exchange`.

Buffering is bounded: time and size of a request's head are limited, trailers are dropped, and a large body is read from
the socket straight into its destination. The parser then has not seen the end of the message, so the next message gets
a new parser. Pipelined requests wait for the answer before; some are read ahead, as only reading notices that the
caller has disconnected.

The rest of a body that comes after its answer is dropped, and a connection is closed only behind that rest: the kernel
resets a connection that is closed with bytes unread, and the answer may be lost (RFC 9112, section 9.6).

A request to change the protocol (`Upgrade`) is answered in HTTP/1.1, as the standard allows.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import socket
import termios
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import httptools

from shisha_rt.daemon.front.ipc_socket import peer_of
from shisha_rt.http.exchange import STATUS_LINES, Exchange, Header, Piece, date_line
from shisha_rt.http.faults import HttpFault
from shisha_rt.process.readable import queued_bytes

if TYPE_CHECKING:
    from shisha_rt.http.server import HttpConnections

KEEP_ALIVE_S: Final = 75
_PATIENCE_S: Final = 10.0
_HEAD_BYTES: Final = 64 << 10
_BETWEEN_BYTES: Final = 8 << 10
"""The most of a chunked body between two pieces of its data: sizes of chunks, and the trailer, which is ignored."""
_MOST_UNHEARD_BYTES: Final = 256 << 10
"""The most that is read and dropped behind an invalid request, so that the caller gets the error as its answer."""
_BUFFER: Final = memoryview(bytearray(256 << 10))
"""Shared by all connections, as what is read into it is consumed at once."""
_HEADS: Final = _BUFFER[: 8 << 10]  # small, as a body's destination is not known while its head is read
_STRAIGHT_BYTES: Final = 16 << 10
"""The least of a body to read straight, or to drop: less is not worth the new parser for the next message."""
_MOST_KEPT_BYTES: Final = 64 << 10
_MOST_PIPELINED: Final = 256
_MOST_AHEAD: Final = 8
_MOST_AHEAD_BYTES: Final = 64 << 10
"""Reading pauses while more requests wait, or more bytes have come since the first waiting one."""
_NUMBERS: Final = itertools.count()
_UPGRADES: Final = frozenset({b"upgrade", b"http2-settings"})
_VERSIONS: Final = frozenset({"1.0", "1.1"})

_HOST: Final = re.compile(rb"[\w.~!$&'()*+;=%:\[\]-]*", re.ASCII)


class _Filling:
    """Memory that a body is written to as it comes."""

    __slots__ = ("done", "filled_bytes", "room")

    def __init__(self, room: memoryview, filled_bytes: int, done: asyncio.Future[None]) -> None:
        self.room = room
        self.filled_bytes = filled_bytes
        self.done = done

    @property
    def left_bytes(self) -> int:
        return len(self.room) - self.filled_bytes

    def take(self, body: bytes) -> int:
        taken = min(len(body), self.left_bytes)
        end = self.filled_bytes + taken
        self.room[self.filled_bytes : end] = body if taken == len(body) else memoryview(body)[:taken]
        self.filled_bytes = end
        return taken


class HttpConnection(asyncio.BufferedProtocol):
    """Cuts off callers whose request's head takes longer than `_PATIENCE_S` or is longer than `_HEAD_BYTES`; those with
    an endless trailer; and those that read nothing of an answer for `unread_s`, as they would occupy memory and a
    connection forever.
    """

    transport: asyncio.Transport

    def __init__(self, connections: HttpConnections) -> None:
        self.connections = connections
        self.name = f"http {next(_NUMBERS)}"
        self.loop = asyncio.get_running_loop()
        self.uid: int | None = None
        self._beneath: asyncio.Transport | None = None  # with TLS
        self._parser = self._new_parser()
        self._url = b""
        self._headers: list[Header] = []
        self._upgrading = False
        self._in_head = True
        self.lost: asyncio.Future[None] = self.loop.create_future()
        self._head_bytes = 0
        self._between_bytes = 0  # read since the last piece of the body: sizes of chunks, and the trailer
        self._patience: asyncio.TimerHandle | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._reads = True
        self._room_to_write: asyncio.Future[None] | None = None
        self._exchange: Exchange | None = None  # being answered, or answered last
        self._coming: Exchange | None = None  # whose body is being received
        self._next: deque[Exchange] = deque()
        self._ahead_bytes = 0
        self._left_bytes = 0  # of the body being received, if known
        self._filling: _Filling | None = None
        self._straight = False
        self.ending = False  # no further request may follow
        self._fault: HttpFault | None = None  # what is wrong with the request that is being parsed
        self._refusal: HttpFault | None = None  # sent once earlier requests are answered
        self._deaf = False  # whatever still comes is dropped, until the caller closes

    def _new_parser(self) -> Any:
        parser = httptools.HttpRequestParser(self)
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    # --- asyncio's callbacks ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._beneath = _transport_beneath(transport)
        self.connections.open.add(self)
        end = transport.get_extra_info("socket")
        if end.family == socket.AF_UNIX:
            _, self.uid = peer_of(end)
        if self.connections.ending:  # it was accepted just before
            self._close()
            return
        self._begin_patience()

    def connection_lost(self, exc: Exception | None) -> None:
        self.connections.open.discard(self)
        self.lost.set_result(None)
        for timer in (self._patience, self._idle, self._unread):
            if timer is not None:
                timer.cancel()
        self._end_filling(ConnectionResetError())
        self.resume_writing()
        for exchange in dict.fromkeys(filter(None, (self._exchange, self._coming, *self._next))):  # each once
            exchange.lose()
        self._next.clear()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._straight:
            if self._filling is not None:
                return self._filling.room[self._filling.filled_bytes :]
            return _BUFFER[: self._left_bytes]
        return _HEADS if self._in_head else _BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        if self._deaf:
            self._between_bytes += nbytes
            if self._between_bytes > _MOST_UNHEARD_BYTES:
                self.transport.abort()
            return
        if self._straight:
            self._came_straight(nbytes)
        else:
            self._came(_BUFFER[:nbytes])

    def eof_received(self) -> None:
        """A caller that shuts down its sending side counts as disconnected: the connection is closed."""

    def pause_writing(self) -> None:
        self._room_to_write = self.loop.create_future()
        self._look_at_unread()

    def resume_writing(self) -> None:
        room, self._room_to_write = self._room_to_write, None
        if room is not None and not room.done():
            room.set_result(None)

    def write(self, data: Piece) -> None:
        self.transport.write(data)
        if self._beneath is not None:  # with TLS, `pause_writing` is not called for one large piece
            self._look_at_unread()

    async def drained(self) -> None:
        """Wait until the transport's buffer can take more of an answer."""
        if self._room_to_write is not None:
            await asyncio.shield(self._room_to_write)

    @property
    def _is_far_ahead(self) -> bool:
        return bool(self._next) and (len(self._next) > _MOST_AHEAD or self._ahead_bytes > _MOST_AHEAD_BYTES)

    def resume_reading(self) -> None:
        if not (self._reads or self._is_far_ahead):
            self._reads = True
            self.transport.resume_reading()

    def _pause_reading(self) -> None:
        if self._reads:
            self._reads = False
            self.transport.pause_reading()

    # --- receiving --------------------------------------------------------------------------------------------

    def _came(self, data: memoryview) -> None:
        self._end_idle()
        if self._in_head:
            self._head_bytes += len(data)
            if self._patience is None:
                self._begin_patience()
        else:
            self._between_bytes += len(data)
        self._parse(data)
        if self._deaf or self.transport.is_closing():
            return
        if self._next:
            self._ahead_bytes += len(data)
            if self._is_far_ahead:
                self._pause_reading()
                self._end_patience()  # we do not read: the caller may not be able to send the rest
        if self._in_head and self._head_bytes > _HEAD_BYTES:
            self._refuse(_head_too_large())
        elif not self._in_head and self._between_bytes > _BETWEEN_BYTES:
            self._refuse(HttpFault(431, "the trailer of the request is too long"))

    def _parse(self, data: memoryview | bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._go_on_in_this(data[upgrade.args[0] :])
        except (httptools.HttpParserError, httptools.HttpParserInvalidURLError):
            self._refuse(self._fault or HttpFault(400, "what came is no request of HTTP/1.1"))

    def _go_on_in_this(self, data: memoryview | bytes) -> None:
        """Parse the request again without its upgrade headers, in a new parser: the old one does not parse the body."""
        method, version = self._parser.get_method(), self._parser.get_http_version().encode()
        self._parser, url, headers = self._new_parser(), self._url, self._headers
        if method == b"CONNECT":
            self._refuse(HttpFault(400, "CONNECT is not for this server"))
            return
        kept = [(name, _without_upgrades(value) if name == b"connection" else value) for name, value in headers]
        lines = [b"%b: %b\r\n" % pair for pair in kept if pair[0] not in _UPGRADES and pair != (b"connection", b"")]
        self._parse(b"%b %b HTTP/%b\r\n%b\r\n" % (method, url, version, b"".join(lines)))
        self._parse(data)

    def on_message_begin(self) -> None:
        self._url, self._headers = b"", []
        self._in_head, self._head_bytes = True, 0
        self._between_bytes = 0

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # a header of the trailer is ignored
            self._headers.append((name.lower(), value.rstrip(b" \t")))  # the parser has stripped its left side only

    def on_headers_complete(self) -> None:
        self._upgrading = self._parser.should_upgrade()
        if self._upgrading:
            return
        self._fault = self._fault_of_head()
        if self._fault is not None:
            raise self._fault  # ends the parser, see `_parse`
        self._in_head = False
        self._end_patience()
        exchange = self._coming = Exchange(self, self._parser, self._url, self._headers)
        length = exchange.headers_by_name.get(b"content-length")
        self._left_bytes = int(length) if length is not None else 0
        if self._exchange is None or self._exchange.answered:
            self._start(exchange)
        elif len(self._next) < _MOST_PIPELINED:
            self._next.append(exchange)
        else:  # so many come only in a single read, as reading then pauses
            self.transport.abort()

    def _fault_of_head(self) -> HttpFault | None:
        """What the parser lets pass, and a server may not (RFC 9112, sections 2.5, 3.2 and 6.1)."""
        version = self._parser.get_http_version()
        line_bytes = len(self._parser.get_method()) + len(self._url) + len("  HTTP/1.1\r\n")
        # By its lines: `_head_bytes` counts what was read, with the start of the body, without what came earlier.
        if line_bytes + sum(len(name) + len(value) + len(": \r\n") for name, value in self._headers) + 2 > _HEAD_BYTES:
            return _head_too_large()
        if version not in _VERSIONS:
            return HttpFault(505, f"HTTP/{version}; expected HTTP/1.1")
        hosts = sum(name == b"host" for name, _ in self._headers)
        if hosts > 1 or (not hosts and version == "1.1"):
            return HttpFault(400, f"{hosts} headers Host; expected one")
        if b"#" in self._url:  # a proxy may have taken what follows for a part of the path
            return HttpFault(400, "the target of the request has a '#'; expected none")
        for name, value in self._headers:
            if name == b"host" and not _HOST.fullmatch(value):
                return HttpFault(400, f"Host {value.decode('latin-1')!r}; expected a host, and perhaps a port")
            if name == b"transfer-encoding" and value.lower() != b"chunked":
                return HttpFault(501, f"Transfer-Encoding {value.decode('latin-1')!r}; expected chunked, or none")
        return None

    def on_body(self, body: bytes) -> None:
        filling, exchange = self._filling, self._coming
        self._between_bytes = 0
        self._left_bytes -= len(body)
        if exchange is None or exchange.answered:
            return
        if filling is not None:
            taken = filling.take(body)
            if filling.left_bytes:
                return
            self._end_filling()
            if taken == len(body):
                return
            body = body[taken:]
        exchange.body += body
        if len(exchange.body) > _MOST_KEPT_BYTES:
            self._pause_reading()
        exchange.tell()

    def on_message_complete(self) -> None:
        if self._upgrading:
            return
        self._in_head, self._head_bytes = True, 0
        self._end_patience()
        self._end_filling()
        exchange, self._coming = self._coming, None
        if exchange is not None:
            exchange.more = False
            exchange.tell()
            if exchange.answered:
                self._go_on(exchange)

    def _start(self, exchange: Exchange) -> None:
        self._end_idle()  # this request may have come with the end of the one before
        self._exchange = exchange
        self.connections.start(exchange)

    # --- bodies read straight into their destination ----------------------------------------------------------

    async def fill(self, room: memoryview, filled_bytes: int) -> int:
        """Fill the rest of `room` with the next bytes of the body; return how much of it is filled then."""
        filling = self._filling = _Filling(room, filled_bytes, self.loop.create_future())
        if not self._straight and _STRAIGHT_BYTES <= filling.left_bytes <= self._left_bytes:
            self._straight = True
        self.resume_reading()
        try:
            await filling.done
        finally:
            self._filling = None
            if self._straight:
                self._pause_reading()  # there is no destination for more
        return filling.filled_bytes

    def _came_straight(self, size_bytes: int) -> None:
        filling, exchange = self._filling, self._coming
        self._left_bytes -= size_bytes
        if filling is not None:
            filling.filled_bytes += size_bytes
        elif exchange is None or not exchange.answered:  # reading was resumed without a destination
            self.transport.abort()
            return
        if not self._left_bytes:
            self._straight = False
            self._parser = self._new_parser()
            self.on_message_complete()
        elif filling is not None and not filling.left_bytes:
            self._pause_reading()
            self._end_filling()

    def _end_filling(self, error: ConnectionError | None = None) -> None:
        filling, self._filling = self._filling, None
        if filling is not None and not filling.done.done():
            if error is None:
                filling.done.set_result(None)
            else:
                filling.done.set_exception(error)

    # --- the end of each answer, and of the connection --------------------------------------------------------

    def answered(self, exchange: Exchange) -> None:
        """Go on behind an answer that has been written, once the rest of its request has come."""
        if self._deaf or self.transport.is_closing():
            return
        if exchange.more:  # answered before the body's end: its rest may come, for a while, and is dropped
            exchange.body.clear()
            self._straight = self._straight or self._left_bytes >= _STRAIGHT_BYTES
            self.resume_reading()
            if self._patience is None:
                self._begin_patience()
        else:
            self._go_on(exchange)

    def _go_on(self, exchange: Exchange) -> None:
        """After a request has come whole and is answered: close, answer the next, or wait for it."""
        if not exchange.keeps_alive or self.ending:
            self._close()
        elif self._next:
            following = self._next.popleft()
            if not self._next:
                self._ahead_bytes = 0
            self._start(following)
        elif self._refusal is not None:
            self._refuse(self._refusal)
        else:
            self.resume_reading()
            if self._idle is None and not self.transport.is_closing():
                self._idle = self.loop.call_later(KEEP_ALIVE_S, self._close)

    def _end_idle(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def end(self) -> None:
        """Close after the answer under way, or at once if there is none."""
        self.ending = True
        if self._exchange is None or self._exchange.answered:
            self._close()

    def _close(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()
            self._look_at_unread()  # it closes only when all has been sent

    def _refuse(self, fault: HttpFault) -> None:
        """Answer what is no request, after answers that are still due, and close the connection."""
        if self._deaf or self.transport.is_closing():
            return
        exchange = self._exchange
        if exchange is not None and exchange.answered and exchange.more:  # the fault is in its body
            self.transport.abort()
            return
        if exchange is not None and not exchange.answered:
            if exchange.begun or not exchange.more:
                self._refusal = fault
                self._pause_reading()
                return
            exchange.begun = True  # this is its answer
            exchange.lose()
            self._end_filling(ConnectionResetError())
        self.connections.count(fault.status)
        lines = [*fault.headers, (b"connection", b"close"), (b"content-length", b"%d" % len(fault.body))]
        head = b"".join(b"%b: %b\r\n" % line for line in lines)
        self.transport.write(b"%b%b%b\r\n%b" % (STATUS_LINES[fault.status], date_line(), head, fault.body))
        self._deaf, self._between_bytes = True, 0
        self._end_patience()
        self._begin_patience()
        self.resume_reading()
        with contextlib.suppress(OSError):  # the client has gone meanwhile
            if self.transport.can_write_eof():
                self.transport.write_eof()

    def _begin_patience(self) -> None:
        self._patience = self.loop.call_later(_PATIENCE_S, self._out_of_patience)

    def _end_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _out_of_patience(self) -> None:
        self._patience = None
        if not self.transport.is_closing():
            self.transport.abort()

    @property
    def unsent_bytes(self) -> int:
        """Bytes of answers that the kernel has not taken yet."""
        beneath_bytes = 0 if self._beneath is None else self._beneath.get_write_buffer_size()
        return self.transport.get_write_buffer_size() + beneath_bytes

    def _look_at_unread(self, before_bytes: int | None = None) -> None:
        """Cut the caller off if it has read nothing of the answer since the last look; else look again later.

        With TLS, a caller that leaves a closed connection open is cut off, too.
        """
        if before_bytes is None and self._unread is not None:
            return
        self._unread = None
        ends = self._beneath is not None and self.transport.is_closing()
        if self.lost.done() or not (self.unsent_bytes or ends):
            return
        left_bytes = self.unsent_bytes + _in_kernel_bytes(self.transport)
        if left_bytes == before_bytes:
            self.transport.abort()
        else:
            self._unread = self.loop.call_later(self.connections.unread_s, self._look_at_unread, left_bytes)


def _head_too_large() -> HttpFault:
    return HttpFault(431, f"the head of the request has more than {_HEAD_BYTES} bytes")


def _without_upgrades(connection: bytes) -> bytes:
    tokens = (token.strip() for token in connection.split(b","))
    return b", ".join(token for token in tokens if token.lower() not in _UPGRADES)


def _transport_beneath(transport: asyncio.Transport) -> asyncio.Transport | None:
    """The transport that sends what `transport` has encrypted, which asyncio does not show; None without TLS."""
    beneath: asyncio.Transport | None = getattr(getattr(transport, "_ssl_protocol", None), "_transport", None)
    return beneath


def _in_kernel_bytes(transport: asyncio.Transport) -> int:
    """Bytes that the kernel holds until the peer acknowledges them; 0 if the kernel does not tell."""
    try:
        return queued_bytes(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ)
    except OSError:
        return 0
