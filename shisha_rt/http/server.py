"""Serving HTTP at a listening socket, until the daemon ends and its last answers are sent."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final

from shisha_rt.errors import Error
from shisha_rt.http.connection import HttpConnection
from shisha_rt.http.exchange import Answering, Exchange
from shisha_rt.http.faults import OUR_FAULT, HttpFault

log = logging.getLogger(__name__)

_MOST_CONNECTIONS: Final = 512
_HANDSHAKE_S: Final = 10.0
"""Timeout of a TLS handshake, the same as for a request's head. `_MOST_CONNECTIONS` counts connections after it."""
_LAST_ANSWERS_S: Final = 3.0
"""How long after the daemon's end requests in flight may be answered, and their answers read."""
_SHUTDOWN_S: Final = 86_400.0
"""asyncio's limit for closing TLS, the last answer included; `HttpConnection` cuts off idle readers long before."""
_UNREAD_S: Final = 30.0


class HttpConnections:
    """The connections at one listening socket. `answer` is called with each request, `count` with the status of each
    answer.

    While more than `most` connections are open, every request is refused. A caller that reads nothing of an answer for
    `unread_s` is cut off.
    """

    def __init__(
        self,
        answer: Answering,
        most: int,
        count: Callable[[int], object] = lambda _: None,
        *,
        scheme: str = "http",
        unread_s: float = _UNREAD_S,
    ) -> None:
        self.answer = answer
        self.most = most
        self.count = count
        self.unread_s = unread_s
        self.scheme = scheme
        self.ending = False
        self.open: set[HttpConnection] = set()
        self.tasks: set[asyncio.Task[None]] = set()

    def __call__(self) -> HttpConnection:
        return HttpConnection(self)

    def start(self, exchange: Exchange) -> None:
        task = asyncio.get_running_loop().create_task(self._answer(exchange))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _answer(self, exchange: Exchange) -> None:
        try:
            if len(self.open) > self.most:
                full = f"{self.most} connections are open; expected no more: try again later"
                exchange.keeps_alive = False
                await exchange.refuse(HttpFault(503, full, Error.TOO_MANY_CALLERS))
            else:
                await self.answer(exchange)
        except Exception:
            if exchange.gone:  # the caller's doing; logged, it would let untrusted callers flood the log
                return
            log.exception("a request has failed")
            if not exchange.begun:
                exchange.keeps_alive = False
                await exchange.refuse(HttpFault(500, OUR_FAULT))
        finally:
            if not (exchange.answered or exchange.gone):  # an answer may have been sent in part
                exchange.abort()

    def end(self) -> None:
        """Close idle connections now, busy ones after their present answer, and later ones as soon as they open."""
        self.ending = True
        for connection in list(self.open):
            connection.end()

    async def finish(self, last_answers_s: float) -> None:
        """As `end`; cut off what takes longer than `last_answers_s`."""
        loop = asyncio.get_running_loop()
        last_s = loop.time() + last_answers_s
        self.end()
        if self.tasks:
            await asyncio.wait(self.tasks, timeout=last_answers_s)
        for task in list(self.tasks):
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks)
        for connection in list(self.open):
            if not connection.transport.is_closing():  # asyncio's TLS transport breaks if it is closed twice
                connection.transport.close()
        unsent = [connection.lost for connection in self.open if connection.unsent_bytes]
        if unsent:  # answers that are read slowly
            await asyncio.wait(unsent, timeout=max(0.0, last_s - loop.time()))


async def serve_connections(
    listening: socket.socket,
    answer: Answering,
    ending: asyncio.Event,
    secure: ssl.SSLContext | None = None,
    count: Callable[[int], object] = lambda _: None,
    *,
    last_answers_s: float = _LAST_ANSWERS_S,
) -> None:
    """Serve until `ending` is set; requests that are not answered `last_answers_s` after that are cancelled.

    `count` is called with the status of each answer.
    """
    connections = HttpConnections(answer, _MOST_CONNECTIONS, count, scheme="http" if secure is None else "https")
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        connections,
        sock=listening,
        ssl=secure,
        backlog=_MOST_CONNECTIONS,
        ssl_handshake_timeout=None if secure is None else _HANDSHAKE_S,
        ssl_shutdown_timeout=None if secure is None else _SHUTDOWN_S,
    )
    try:
        await ending.wait()
    finally:
        server.close()
        await connections.finish(last_answers_s)
