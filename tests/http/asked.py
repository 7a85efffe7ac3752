"""Requests as an `Exchange` without a connection, and their answers."""

from __future__ import annotations

import asyncio
import http.client
import io
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

from shisha_rt.http.connection import HttpConnection
from shisha_rt.http.exchange import Exchange


class Line:
    """What `Exchange` needs of a connection. `stays`: whether the caller is still there once an answer has begun."""

    def __init__(self, scheme: str = "http", uid: int | None = None, *, stays: bool = True) -> None:
        self.counted: list[int] = []
        self.connections = SimpleNamespace(scheme=scheme, count=self.counted.append)
        self.transport = SimpleNamespace(write=self.write, abort=lambda: None)
        self.name, self.uid, self.ending = "http 0", uid, False
        self.sent = b""
        self.exchange: Exchange | None = None
        self._stays = stays

    def write(self, data: bytes) -> None:
        self.sent += data
        if self.exchange is not None and not self._stays:
            asyncio.get_running_loop().call_soon(self.exchange.lose)

    async def drained(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def answered(self, _: Exchange) -> None:
        pass

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of what was sent."""
        head = SimpleNamespace(makefile=lambda _mode: io.BytesIO(self.sent))
        answer = http.client.HTTPResponse(cast("Any", head))
        answer.begin()
        try:
            body = answer.read()
        except http.client.IncompleteRead as error:
            body = error.partial
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, body


def asked(line: Line, method: str, url: str, headers: Mapping[str, str], body: bytes = b"") -> Exchange:
    """A request that has come whole."""
    parser = SimpleNamespace(
        get_method=lambda: method.encode(), get_http_version=lambda: "1.1", should_keep_alive=lambda: True
    )
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    exchange = line.exchange = Exchange(cast("HttpConnection", line), parser, url.encode(), raw)
    exchange.body += body
    exchange.more = False
    return exchange
