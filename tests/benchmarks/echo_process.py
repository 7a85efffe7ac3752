"""A server at the other end of a link that answers requests with a given number of bytes, over plain TCP.

Settings: `address`. A request begins with two numbers of eight bytes: how many bytes follow, and how many to return.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from typing import Final

from benchmarks.rigs.child_process import Child

_HEAD: Final = struct.Struct("<QQ")
_PIECE: Final = 1 << 20


class EchoClient:
    """A connection to the server."""

    def __init__(self, address: str, port: int) -> None:
        self._socket = socket.create_connection((address, port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask_s(self, sent_bytes: int, wanted_bytes: int) -> float:
        """Seconds until all requested bytes have come, at least one."""
        wanted_bytes = max(1, wanted_bytes)
        began_s = time.monotonic()
        self._socket.sendall(_HEAD.pack(sent_bytes, wanted_bytes))
        self._socket.sendall(bytes(sent_bytes))
        _skip(self._socket, wanted_bytes)
        return time.monotonic() - began_s

    def close(self) -> None:
        self._socket.close()


def _skip(connection: socket.socket, size_bytes: int) -> None:
    room = memoryview(bytearray(_PIECE))
    while size_bytes:
        got = connection.recv_into(room[: min(size_bytes, _PIECE)])
        if not got:
            raise ConnectionError("it has hung up")
        size_bytes -= got


def _serve(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection, contextlib.suppress(ConnectionError):
        while head := connection.recv(_HEAD.size, socket.MSG_WAITALL):
            sent_bytes, wanted_bytes = _HEAD.unpack(head)
            _skip(connection, sent_bytes)
            connection.sendall(bytes(wanted_bytes))


def child(address: str) -> Child:
    listening = socket.create_server((address, 0))

    def accept() -> None:
        while True:
            threading.Thread(target=_serve, args=(listening.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield {"port": listening.getsockname()[1]}
