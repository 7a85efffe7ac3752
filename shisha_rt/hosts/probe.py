"""How fast a link is, before anything runs over it: a few small messages, and a large one each way, over plain TCP."""

from __future__ import annotations

import contextlib
import socket
import time
from functools import partial
from typing import Final

from shisha_rt.costs.link_speed import LinkSpeed, OneWay

_ROUND_TRIPS: Final = 7
_BULK_BYTES: Final = 2 << 20
_LEAST_S: Final = 1e-6
_PATIENCE_S: Final = 20.0
_ECHO_S: Final = 30.0
_MOST_BYTES: Final = 1 << 26
_AT_ONCE_BYTES: Final = 1 << 20


def probe(address: str, port: int, patience_s: float = _PATIENCE_S) -> LinkSpeed:
    """Speed of the link to a `FarHost.echo`, both ways; waits `patience_s` for each answer. Raises OSError."""
    with socket.create_connection((address, port), patience_s) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ask = partial(_ask, connection, patience_s)
        trip_s = min(ask(1, 1) for _ in range(_ROUND_TRIPS))
        ways = []
        for there, back in ((_BULK_BYTES, 1), (1, _BULK_BYTES)):
            ask(there // 8, back // 8)  # warm-up: TCP's congestion window has to grow first
            took_s = min(ask(there, back) for _ in range(2))
            ways.append(OneWay(trip_s / 2, _BULK_BYTES / max(took_s - trip_s, _LEAST_S)))
    return LinkSpeed(*ways)


def _ask(connection: socket.socket, patience_s: float, there: int, back: int) -> float:
    start_s = time.perf_counter()
    connection.settimeout(patience_s)
    connection.sendall(there.to_bytes(8, "little") + back.to_bytes(8, "little") + bytes(there))
    left = back
    while left:
        # A limit for the whole answer: with one for each `recv`, a host that sends byte by byte could take forever.
        connection.settimeout(max(start_s + patience_s - time.perf_counter(), _LEAST_S))
        got = len(connection.recv(min(left, _AT_ONCE_BYTES)))
        if not got:
            raise ConnectionResetError("it hangs up")
        left -= got
    return time.perf_counter() - start_s


def answer_probe(listener: socket.socket) -> None:
    """Accept one connection, and answer each message with as many bytes as its header asks; close `listener`."""
    with listener, contextlib.suppress(OSError):
        listener.settimeout(_ECHO_S)
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(_ECHO_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while header := connection.recv(16, socket.MSG_WAITALL):
                there, back = int.from_bytes(header[:8], "little"), int.from_bytes(header[8:], "little")
                left = min(there, _MOST_BYTES)
                while left:
                    left -= len(connection.recv(min(left, _AT_ONCE_BYTES))) or left
                connection.sendall(bytes(min(back, _MOST_BYTES)))
