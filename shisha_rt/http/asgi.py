"""Requests in ASGI's form, for the web framework: for all routes except inference."""

from __future__ import annotations

from typing import Final

from starlette.types import ASGIApp, Message, Scope

from shisha_rt.http.connection import Exchange

EXCHANGE: Final = "shisha.exchange"
"""Key of the scope's extension that is the `Exchange` itself."""
PEER_UID: Final = "shisha.peer_uid"
"""Key of the extension with the user at the other end of a UNIX socket."""
ABORT: Final = "shisha.abort"
"""Key of the extension whose `call` cuts the connection off, and drops what the caller has not read."""


async def answer_by(app: ASGIApp, exchange: Exchange) -> None:
    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": exchange.http_version,
        "server": None,
        "client": None,
        "scheme": exchange.scheme,
        "method": exchange.method,
        "root_path": "",
        "path": exchange.path,
        "raw_path": exchange.raw_path,
        "query_string": exchange.query,
        "headers": exchange.headers,
        "extensions": {
            EXCHANGE: exchange,
            PEER_UID: {"uid": exchange.caller_uid},
            ABORT: {"call": exchange.abort},
        },
    }
    read_all = False
    begun: Message | None = None

    async def receive() -> Message:
        nonlocal read_all
        if not read_all:
            try:
                piece = await exchange.read()
            except ConnectionError:
                return {"type": "http.disconnect"}
            read_all = not exchange.more
            return {"type": "http.request", "body": piece, "more_body": exchange.more}
        await exchange.lost()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        nonlocal begun
        if message["type"] == "http.response.start":
            begun = message
            return
        body, goes_on = message.get("body", b""), message.get("more_body", False)
        if begun is not None:
            (status, headers), begun = (begun["status"], begun.get("headers", ())), None
            if not goes_on:
                await exchange.answer(status, [pair for pair in headers if pair[0] != b"content-length"], [body])
                return
            await exchange.start(status, headers)
        await exchange.send(body)
        if not goes_on:
            await exchange.finish()

    await app(scope, receive, send)
