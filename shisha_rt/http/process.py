"""`python -m shisha_rt.http.process CHANNEL PARENT`: serves HTTP on sockets that the daemon has bound, and gRPC
where it says, until it is told that the daemon has given its last answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from typing import Final

import uvicorn

from shisha_rt.daemon.front.http_messages import (
    FROM_HTTP,
    TO_HTTP,
    EndHttp,
    FromHttp,
    GrpcListens,
    Listener,
    ModelsChanged,
    ServeHttp,
    ToHttp,
    UsersChanged,
)
from shisha_rt.http.app_state import AppState
from shisha_rt.http.application import application
from shisha_rt.http.connection import KEEP_ALIVE_S, HttpConnection
from shisha_rt.http.guard import Guard
from shisha_rt.http.inference.served import Served
from shisha_rt.http.metrics import metrics_application
from shisha_rt.process.channel import Channel, ChannelBroken
from shisha_rt.process.parent import die_with, show_life
from shisha_rt.protocol.access import AccessList

_MOST_CONNECTIONS: Final = 512
_LAST_ANSWERS_S: Final = 3
_COUNT_EVERY_S: Final = 1.0


class _Server(uvicorn.Server):
    """Without signals: the daemon says when it ends."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Process:
    """What the daemon says, and the servers that go by it."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._begun: asyncio.Future[ServeHttp] = asyncio.get_running_loop().create_future()
        self._app_state: AppState | None = None
        self._servers: list[_Server] = []
        asyncio.get_running_loop().add_reader(channel.fileno(), self._hear)

    async def run(self) -> None:
        settings = await self._begun
        self._app_state = app_state = AppState(settings)
        served = Served(app_state)
        app, metrics = application(app_state, served), metrics_application(settings.metrics)
        ends = [socket.socket(fileno=listener.fd) for listener in settings.listeners]
        self._servers = [
            _server(Guard(metrics if listener.metrics else app, app_state, listener), listener, settings)
            for listener in settings.listeners
        ]
        besides = [asyncio.create_task(self._count(app_state)), asyncio.create_task(app_state.watch())]
        for task in besides:
            task.add_done_callback(lambda _: self._take(EndHttp()))  # it has failed: the daemon starts another process
        try:
            await asyncio.gather(
                *(server.serve(sockets=[end]) for server, end in zip(self._servers, ends, strict=True)),
                *([self._grpc(settings, app_state, served)] if settings.grpc else []),
            )
        finally:
            for task in besides:
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(*besides)
            await app_state.close()

    async def _grpc(self, settings: ServeHttp, app_state: AppState, served: Served) -> None:
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # it warns of what strangers do, as uvicorn does
        from shisha_rt.http.grpc.service import serve_grpc  # an extra

        await serve_grpc(settings, app_state, served, lambda: self._tell(GrpcListens()))

    def _tell(self, message: FromHttp) -> None:
        with contextlib.suppress(ChannelBroken):
            self._channel.send(FROM_HTTP.encode(message))

    def _hear(self) -> None:
        for data in self._channel.receive():
            self._take(TO_HTTP.decode(data))
        if not self._channel.open:
            self._take(EndHttp())

    def _take(self, message: ToHttp) -> None:
        match message:
            case ServeHttp():
                self._begun.set_result(message)
            case UsersChanged(users=users):
                if self._app_state is not None:
                    self._app_state.change_users(AccessList(users))
            case ModelsChanged(models=models):
                if self._app_state is not None:
                    self._app_state.models = models
            case EndHttp():
                if self._app_state is None:
                    raise SystemExit(0)
                self._app_state.ending.set()
                for server in self._servers:
                    server.should_exit = True

    async def _count(self, app_state: AppState) -> None:
        while True:
            await asyncio.sleep(_COUNT_EVERY_S)
            counted = app_state.counted()
            if counted is not None:
                self._tell(counted)


def _server(guarded: Guard, listener: Listener, settings: ServeHttp) -> _Server:
    secure = listener.beyond
    return _Server(
        uvicorn.Config(
            guarded,
            http=HttpConnection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=_LAST_ANSWERS_S,
            limit_concurrency=_MOST_CONNECTIONS,
            ssl_certfile=settings.certificate if secure else None,
            ssl_keyfile=settings.key if secure else None,
        )
    )


async def _serve(fd: int) -> None:
    channel = Channel(socket.socket(fileno=fd), blocking=False)
    show_life(channel)
    await _Process(channel).run()


def main() -> None:
    channel, parent = map(int, sys.argv[1:])
    die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the daemon, which still has answers to give
    # uvicorn warns of every malformed request: strangers would write our log.
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    asyncio.run(_serve(channel))


if __name__ == "__main__":
    main()
