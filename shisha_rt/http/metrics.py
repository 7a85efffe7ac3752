"""The metrics page for other hosts. The daemon writes the text; this process fetches it and answers."""

from __future__ import annotations

import asyncio
from typing import Final

from shisha_rt.http.app_state import Caller, Path
from shisha_rt.http.exchange import Exchange
from shisha_rt.http.faults import HttpFault
from shisha_rt.http.routing import HttpReply, HttpRoute

_WITHIN_S: Final = 10.0


def metrics_route(socket_name: str) -> HttpRoute:
    """`GET /metrics` for known callers, of any permission. The daemon gets one request at a time."""
    one_at_a_time = asyncio.Lock()

    async def metrics(exchange: Exchange, _caller: Caller | None, _path: Path) -> HttpReply:
        async with one_at_a_time:
            answer = await _read(socket_name, exchange.headers_by_name.get(b"accept", b""))
        kind, _, text = answer.partition(b"\n")
        if not text:
            raise HttpFault(503, "the daemon does not give its figures")
        return HttpReply(200, [(b"content-type", kind)], text)

    return HttpRoute("/metrics", metrics)


async def _read(socket_name: str, accept: bytes) -> bytes:
    try:
        async with asyncio.timeout(_WITHIN_S):
            reader, writer = await asyncio.open_unix_connection(socket_name)
            try:
                writer.write(accept + b"\n")
                return await reader.read()
            finally:
                writer.close()
    except OSError:  # TimeoutError, too
        return b""
