"""A connection, as uvicorn has it: with the time and room that a request's head may take, and who is at the other end.

uvicorn waits for ever for a head that does not end, and httptools keeps as much of it as comes.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

PEER_UID: Final = "shisha.peer_uid"
"""The extension in an ASGI scope that has the user at the other end of a UNIX socket."""
ABORT: Final = "shisha.abort"
"""The one that cuts the connection off, and drops what its reader has not read."""
KEEP_ALIVE_S: Final = 75
_PATIENCE_S: Final = 10.0
_HEAD_BYTES: Final = 64 << 10
_CREDENTIALS: Final = struct.Struct("iII")  # struct ucred: process, user, group


class Connection(HttpToolsProtocol):
    """Cuts off whoever takes longer than `_PATIENCE_S` for a request's head, or makes it longer than `_HEAD_BYTES`."""

    _in_head = True
    _head_bytes = 0
    _patience: asyncio.TimerHandle | None = None
    _uid: int | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        end = transport.get_extra_info("socket")
        if end.family == socket.AF_UNIX:
            credentials = end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            self._uid = _CREDENTIALS.unpack(credentials)[1]
        self._begin_patience()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_patience()
        super().connection_lost(exc)

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
        self.scope["extensions"] = {ABORT: {"call": self.transport.abort}}
        if self._uid is not None:
            self.scope["extensions"][PEER_UID] = {"uid": self._uid}

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._end_patience()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head = True
        self._head_bytes = 0
        self._end_patience()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Whoever has had an answer before all of the request has come may send the rest, for a while."""
        super().on_response_complete()
        if self.cycle.response_complete and self.cycle.more_body and self._patience is None:
            self._begin_patience()

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
