"""Serving HTTP at a listening socket, until the daemon ends and its last answers are sent."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Final

from shisha_rt.http.connection import HttpConnections
from shisha_rt.http.exchange import Answering

_MOST_CONNECTIONS: Final = 512
_HANDSHAKE_S: Final = 10.0
"""Timeout of a TLS handshake, the same as for a request's head. `_MOST_CONNECTIONS` counts connections after it."""
_LAST_ANSWERS_S: Final = 3.0
_SHUTDOWN_S: Final = 86_400.0
"""asyncio's timeout for closing a TLS connection, which includes sending its last answer. A client that reads nothing
is cut off by `HttpConnection` long before.
"""


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
        last_s = loop.time() + last_answers_s
        server.close()
        connections.end()
        if connections.tasks:
            await asyncio.wait(connections.tasks, timeout=last_answers_s)
        for task in list(connections.tasks):
            task.cancel()
        if connections.tasks:
            await asyncio.wait(connections.tasks)
        for connection in list(connections.open):
            if not connection.transport.is_closing():  # asyncio's TLS transport breaks if it is closed twice
                connection.transport.close()
        unsent = [connection.lost for connection in connections.open if connection.unsent_bytes]
        if unsent:  # answers that are read slowly
            await asyncio.wait(unsent, timeout=max(0.0, last_s - loop.time()))
