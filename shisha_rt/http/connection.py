"""A connection, as uvicorn has it: with the time and room that a request's head may take, and who is at the other end.

uvicorn waits for ever for a head that does not end, and httptools keeps as much of it as comes.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import fcntl
import functools
import socket
import struct
import termios
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

PEER_UID: Final = "shisha.peer_uid"
"""The extension in an ASGI scope that has the user at the other end of a UNIX socket."""
ABORT: Final = "shisha.abort"
"""The one that cuts the connection off, and drops what its reader has not read."""
FILL: Final = "shisha.fill"
"""The one that writes what comes of a body where it is wanted. uvicorn would copy it three times on its way there."""
WATCH: Final = "shisha.watch"
"""The one that says what to call if the connection is lost while its request is worked on; None: nothing any more."""
KEEP_ALIVE_S: Final = 75
Watch: TypeAlias = Callable[[Callable[[], object] | None], None]
_BUFFER: Final = memoryview(bytearray(256 << 10))
_HEADS: Final = _BUFFER[: 8 << 10]  # of a body hardly anything comes with its head: its place is not known yet
_STRAIGHT_BYTES: Final = 16 << 10
"""Less is not worth a parser of its own for what comes behind it."""
_PATIENCE_S: Final = 10.0
_UNREAD_S: Final = 30.0
_HEAD_BYTES: Final = 64 << 10
_CREDENTIALS: Final = struct.Struct("iII")  # struct ucred: process, user, group


@dataclass(slots=True)
class _Filling:
    """Room that a body is written to as it comes."""

    room: memoryview
    filled_bytes: int
    done: asyncio.Future[None]

    @property
    def left_bytes(self) -> int:
        return len(self.room) - self.filled_bytes

    def take(self, body: bytes) -> int:
        """Take as much of `body` as there is room for; return how many bytes that is."""
        taken = min(len(body), self.left_bytes)
        end = self.filled_bytes + taken
        self.room[self.filled_bytes : end] = body if taken == len(body) else memoryview(body)[:taken]
        self.filled_bytes = end
        return taken


class HttpConnection(HttpToolsProtocol, asyncio.BufferedProtocol):
    """Reads into one buffer for all connections, and bodies from there to where they are wanted (`FILL`).

    What is wanted of a body whose length is known is read there at once: in that there is nothing to be parsed. Then
    the parser has not seen the end of its message, and the next one is for another.

    Cuts off whoever takes longer than `_PATIENCE_S` for a request's head, or makes it longer than `_HEAD_BYTES`; and
    whoever reads nothing of an answer for `_UNREAD_S`, who would keep it, and a place among the connections, for ever.
    """

    _in_head = True
    _head_bytes = 0
    _patience: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _uid: int | None = None
    _filling: _Filling | None = None
    _left_bytes = 0
    _straight = False
    _keeps_alive = False
    _when_lost: Callable[[], object] | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        end = transport.get_extra_info("socket")
        if end.family == socket.AF_UNIX:
            with contextlib.suppress(OSError, struct.error):  # a kernel that does not say
                credentials = end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
                self._uid = _CREDENTIALS.unpack(credentials)[1]
        self._begin_patience()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_patience()
        if self._unread is not None:
            self._unread.cancel()
        self._end_filling(lost=True)
        super().connection_lost(exc)
        if self._when_lost is not None:
            self._when_lost()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._straight and self._filling is not None:
            return self._filling.room[self._filling.filled_bytes :]
        return _HEADS if self._in_head else _BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        if self._straight:
            self._came_straight(nbytes)
        else:
            self.data_received(_BUFFER[:nbytes])  # type: ignore[arg-type]  # all of it is taken, or copied

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head_bytes += len(data)
            if self._patience is None:
                self._begin_patience()
        super().data_received(data)
        if self._in_head and self._head_bytes > _HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The head of the request is too long.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._head_bytes = 0
        self.scope["extensions"] = {ABORT: {"call": self.transport.abort}, WATCH: {"call": self._watch}}
        if self._uid is not None:
            self.scope["extensions"][PEER_UID] = {"uid": self._uid}

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._end_patience()
        super().on_headers_complete()
        length = next((value for name, value in self.headers if name == b"content-length"), None)
        self._left_bytes = int(length) if length is not None else 0
        self.scope["extensions"][FILL] = {"call": functools.partial(self._fill, self.cycle)}

    def on_body(self, body: bytes) -> None:
        filling = self._filling
        self._left_bytes -= len(body)
        if filling is None:
            super().on_body(body)
            return
        taken = filling.take(body)
        if not filling.left_bytes:
            self._end_filling()
            if taken < len(body):
                super().on_body(body[taken:])

    def on_message_complete(self) -> None:
        self._in_head = True
        self._head_bytes = 0
        self._end_patience()
        self._end_filling()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Whoever has had an answer before all of the request has come may send the rest, for a while."""
        super().on_response_complete()
        if self.cycle.response_complete and self.cycle.more_body and self._patience is None:
            self._begin_patience()

    async def _fill(self, cycle: RequestResponseCycle, room: memoryview) -> int:
        """Fill `room` with what comes next of a body; how many bytes it was, fewer where the body has ended.

        Raises ConnectionError if the connection is lost before.
        """
        kept = cycle.body[: len(room)]
        room[: len(kept)] = kept
        del cycle.body[: len(kept)]
        if len(kept) == len(room) or not cycle.more_body:
            return len(kept)
        if cycle.disconnected:
            raise ConnectionResetError
        if cycle.waiting_for_100_continue:
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            cycle.waiting_for_100_continue = False
        filling = self._filling = _Filling(room, len(kept), self.loop.create_future())
        if not self._straight and _STRAIGHT_BYTES <= filling.left_bytes <= self._left_bytes:
            self._straight = True
            self._keeps_alive, cycle.keep_alive = cycle.keep_alive, False  # unless all of it comes
        self.flow.resume_reading()
        try:
            await filling.done
        finally:
            self._filling = None
            if self._straight:
                self.flow.pause_reading()  # there is no place for more
        return filling.filled_bytes

    def _came_straight(self, size_bytes: int) -> None:
        filling = self._filling
        if filling is None:  # somebody reads on whom nothing was promised
            self.transport.abort()
            return
        filling.filled_bytes += size_bytes
        self._left_bytes -= size_bytes
        if not self._left_bytes:
            self._straight = False
            self.cycle.keep_alive = self._keeps_alive
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            self.on_message_complete()
        elif not filling.left_bytes:
            self.flow.pause_reading()
            self._end_filling()

    def _watch(self, when_lost: Callable[[], object] | None) -> None:
        """The body has been read. A socket that is not read tells nothing."""
        self._when_lost = when_lost
        self.flow.resume_reading()
        if when_lost is not None and self.cycle.disconnected:
            when_lost()

    def _end_filling(self, *, lost: bool = False) -> None:
        filling, self._filling = self._filling, None
        if filling is not None and not filling.done.done():
            if lost:
                filling.done.set_exception(ConnectionResetError())
            else:
                filling.done.set_result(None)

    def send_400_response(self, msg: str) -> None:
        """What is no request at all is refused in the form of all others."""
        body = b'{"error":"%s"}' % msg.encode("ascii")
        head = b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\n"
        self.transport.write(b"%sContent-Length: %d\r\n\r\n%s" % (head, len(body), body))
        self.transport.close()

    def _begin_patience(self) -> None:
        self._patience = self.loop.call_later(_PATIENCE_S, self._out_of_patience)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._look_at_unread()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._look_at_unread()  # it is closed when all has been read

    def _look_at_unread(self, before_bytes: int | None = None) -> None:
        """Whether any of it has been read since the last look."""
        if before_bytes is None and self._unread is not None:
            return
        self._unread = None
        if not self.transport.get_write_buffer_size():  # where it is closed, too
            return
        left_bytes = self.transport.get_write_buffer_size() + _in_kernel_bytes(self.transport)
        if left_bytes == before_bytes:
            self.transport.abort()
        else:
            self._unread = self.loop.call_later(_UNREAD_S, self._look_at_unread, left_bytes)

    def _end_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _out_of_patience(self) -> None:
        self._patience = None
        if not self.transport.is_closing():
            self.transport.abort()


def _in_kernel_bytes(transport: asyncio.Transport) -> int:
    """Sent, and not taken by the other end; 0 where the kernel does not say."""
    unread = array.array("i", [0])
    with contextlib.suppress(OSError):
        fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, unread)
    return unread[0]
