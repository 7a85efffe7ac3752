"""The metrics page for other hosts. The daemon writes the text; this process fetches it and answers."""

from __future__ import annotations

import asyncio
from typing import Final

from shisha_rt.daemon.front.http_messages import Listener
from shisha_rt.http.app_state import AppState, Caller
from shisha_rt.http.connection import Exchange
from shisha_rt.http.faults import HttpFault
from shisha_rt.http.front import GuardedFront

_PATH: Final = "/metrics"
_WITHIN_S: Final = 10.0


class MetricsFront(GuardedFront):
    """`GET /metrics` for known callers, of any permission. The daemon gets one request at a time."""

    def __init__(self, app_state: AppState, one_at_a_time: asyncio.Lock, listener: Listener) -> None:
        super().__init__(app_state, listener)
        self._socket_name = app_state.settings.metrics
        self._one_at_a_time = one_at_a_time

    async def answer(self, exchange: Exchange, caller: Caller | None) -> None:
        if caller is None or exchange.path != _PATH:
            raise HttpFault(404, f"there is nothing at {exchange.path!r}; expected {_PATH}")
        if exchange.method not in ("GET", "HEAD"):
            raise HttpFault(405, f"{exchange.method} is not for {exchange.path!r}; expected GET")
        async with self._one_at_a_time:
            kind, _, text = (await self._read(exchange.headers_by_name.get(b"accept", b""))).partition(b"\n")
        if not text:
            raise HttpFault(503, "the daemon does not give its figures")
        await exchange.answer(200, [(b"content-type", kind)], [text])

    async def _read(self, accept: bytes) -> bytes:
        try:
            async with asyncio.timeout(_WITHIN_S):
                reader, writer = await asyncio.open_unix_connection(self._socket_name)
                try:
                    writer.write(accept + b"\n")
                    return await reader.read()
                finally:
                    writer.close()
        except OSError:  # TimeoutError, too
            return b""
