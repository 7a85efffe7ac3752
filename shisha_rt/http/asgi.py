"""Requests in ASGI's form, for the web framework's routes: all except inference."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Scope

from shisha_rt.http.app_state import Caller
from shisha_rt.http.connection import Exchange


async def answer_by(app: ASGIApp, exchange: Exchange, caller: Caller | None) -> None:
    """Have `app` answer. Its scope has the `exchange` itself, by which bodies are read, and the `caller`."""
    scope: Scope = {
        "type": "http",
        "app": app,  # with it routers raise what they do not find
        "scheme": exchange.scheme,
        "method": exchange.method,
        "path": exchange.path,
        "query_string": exchange.query,
        "headers": exchange.headers,
        "exchange": exchange,
        "caller": caller,
    }

    async def receive() -> Message:
        await exchange.lost()
        return {"type": "http.disconnect"}

    await app(scope, receive, _Sending(exchange))


class _Sending:
    """ASGI's `send`: begins the answer only with the first piece of its body, which may be the only one."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._start: Message | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        exchange, start = self._exchange, self._start
        body, goes_on = message.get("body", b""), message.get("more_body", False)
        if start is not None:
            self._start, status, headers = None, start["status"], start.get("headers", ())
            if not goes_on:
                await exchange.answer(status, [pair for pair in headers if pair[0] != b"content-length"], [body])
                return
            await exchange.start(status, headers)
        await exchange.send(body)
        if not goes_on:
            await exchange.finish()
