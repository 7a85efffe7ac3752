"""A connection over HTTP, by itself: whoever does not read is not waited for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvicorn

from shisha_rt.http import connection
from shisha_rt.http.connection import HttpConnection

_ANSWER = bytes(16 << 20)


async def _large(_: Any, __: Any, send: Any) -> None:
    length = (b"content-length", b"%d" % len(_ANSWER))
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": _ANSWER})


@pytest.mark.parametrize("reads", [True, False])
def test_who_reads_nothing_of_an_answer_is_cut_off_and_who_reads_slowly_has_all(
    monkeypatch: pytest.MonkeyPatch, *, reads: bool
) -> None:
    monkeypatch.setattr(connection, "_UNREAD_S", 0.2)

    async def run() -> None:
        config = uvicorn.Config(_large, http=HttpConnection, ws="none", lifespan="off", log_config=None)
        config.load()
        state = uvicorn.server.ServerState()
        server = await asyncio.get_running_loop().create_server(
            lambda: HttpConnection(config, state, {}), "127.0.0.1", 0
        )
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname(), limit=1 << 16)
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        if reads:
            for _ in range(16):
                assert len(await reader.readexactly(1 << 20)) == 1 << 20
                await asyncio.sleep(0.04)
            assert state.connections
        else:
            async with asyncio.timeout(30):
                while state.connections:
                    await asyncio.sleep(0.02)
        writer.close()
        server.close()

    asyncio.run(run())
