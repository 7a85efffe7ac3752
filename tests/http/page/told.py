"""A daemon that says what a test tells it to, and a page that asks it."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import socket
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from shisha_rt.client import AsyncClient
from shisha_rt.daemon.front.http_messages import Listener, ServeHttp
from shisha_rt.http.app_state import AppState
from shisha_rt.http.front import HttpFront, http_routes
from shisha_rt.http.inference.inferences import Inferences
from shisha_rt.http.page.watching import Watching
from shisha_rt.http.server import serve_connections
from shisha_rt.protocol.access import User
from shisha_rt.protocol.exceptions import Unavailable
from tests.cli.journal import event

SEND: Final = "shisha-rt submit --endpoint tcp://127.0.0.1:7000 --frames 1000"


class Told:
    """A daemon that says what it is told to."""

    def __init__(self, status: Mapping[str, Any]) -> None:
        self.status = {**status, "next_event": 0}
        self.events: list[dict[str, Any]] = []
        self.asked = 0
        self.is_there = True

    def happened(self, count: int) -> None:
        first = len(self.events)
        self.events += [event(first + i, "place_up", place=f"<b>{first + i}</b>", cause="a test") for i in range(count)]
        self.status["next_event"] = len(self.events)

    async def call(self, op: str, *, timeout_s: float | None = None, **arguments: Any) -> dict[str, Any]:
        if not self.is_there:
            raise Unavailable("nobody is there")
        if op == "events":
            page = self.events[arguments["since"] :][:300]
            return {"events": page, "next": arguments["since"] + len(page)}
        if op == "model_statistics":
            statistics = {"inference_stats": {"success": {"count": 0, "ns": 0}}, "latency_counts": []}
            return {"model_stats": [statistics]}
        self.asked += 1
        return {"status": copy.deepcopy(self.status)}


def watching_of(daemon: Told) -> Watching:
    return Watching(cast("AsyncClient", daemon), SEND)


@contextlib.contextmanager
def page_of(daemon: Told, users: tuple[User, ...] | None = None) -> Iterator[str]:
    """Its address; the routes and the feed are the real ones."""
    with socket.create_server(("127.0.0.1", 0)) as end:
        started, ending = threading.Event(), threading.Event()
        thread = threading.Thread(target=lambda: asyncio.run(_serve(daemon, users, end, started, ending)))
        thread.start()
        try:
            assert started.wait(60)
            yield f"http://127.0.0.1:{end.getsockname()[1]}"
        finally:
            ending.set()
            thread.join()


async def _serve(
    daemon: Told,
    users: tuple[User, ...] | None,
    end: socket.socket,
    started: threading.Event,
    ending: threading.Event,
) -> None:
    listener = Listener(0, unix=False, beyond=False)
    app_state = AppState(ServeHttp("tcp://127.0.0.1:1", (listener,), users=users))
    app_state.watching = watching_of(daemon)
    front = HttpFront(app_state, listener, http_routes(app_state, Inferences(app_state)))
    watching = asyncio.create_task(app_state.watching.run())
    serving = asyncio.create_task(serve_connections(end, front, app_state.ending))
    started.set()
    while not ending.is_set():
        await asyncio.sleep(0.02)
    app_state.ending.set()
    await serving
    watching.cancel()
    await app_state.close()
