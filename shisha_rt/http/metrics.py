"""The metrics page for other hosts. The daemon writes the text; this process fetches it and answers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from shisha_rt.http.app_state import Caller
from shisha_rt.http.faults import HttpFault, fault_answer

_PATH: Final = "/metrics"
_WITHIN_S: Final = 10.0


def metrics_application(socket_name: str) -> ASGIApp:
    """`GET /metrics` for callers that the `Guard` knows, of any permission. The daemon gets one request at a time."""
    one_at_a_time = asyncio.Lock()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            _check(scope["method"], scope["path"], scope["caller"])
            async with one_at_a_time:
                answer = await _text(socket_name, scope["headers_by_name"])
        except HttpFault as fault:
            answer = fault_answer(fault)
        await answer(scope, receive, send)

    return app


def _check(method: str, path: str, caller: Caller | None) -> None:
    if caller is None or path != _PATH:
        raise HttpFault(404, f"there is nothing at {path!r}; expected {_PATH}")
    if method not in ("GET", "HEAD"):
        raise HttpFault(405, f"{method} is not for {path!r}; expected GET")


async def _text(socket_name: str, headers: Mapping[bytes, bytes]) -> Response:
    try:
        async with asyncio.timeout(_WITHIN_S):
            reader, writer = await asyncio.open_unix_connection(socket_name)
            try:
                writer.write(headers.get(b"accept", b"") + b"\n")
                content_type, _, text = (await reader.read()).partition(b"\n")
            finally:
                writer.close()
    except OSError:  # TimeoutError, too
        raise HttpFault(503, "the daemon does not give its figures") from None
    if not text:
        raise HttpFault(503, "the daemon does not give its figures")
    return Response(text, headers={"Content-Type": content_type.decode("latin-1")})
