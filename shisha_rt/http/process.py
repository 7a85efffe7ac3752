"""`python -m shisha_rt.http.process CHANNEL PARENT`: serves HTTP on sockets that the daemon has bound, and gRPC
at the addresses that it names, until the daemon reports that it has given its last answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from typing import Final

from shisha_rt.daemon.front.http_messages import (
    FROM_HTTP,
    TO_HTTP,
    EndHttp,
    FromHttp,
    GrpcListens,
    ModelsChanged,
    ServeHttp,
    ToHttp,
    UsersChanged,
)
from shisha_rt.http.app_state import AppState
from shisha_rt.http.front import HttpFront, http_routes
from shisha_rt.http.inference.inferences import Inferences
from shisha_rt.http.metrics import metrics_route
from shisha_rt.http.server import serve_connections
from shisha_rt.process.channel import Channel, ChannelBroken
from shisha_rt.process.parent import serve_on_loop
from shisha_rt.protocol.access import AccessList

_COUNT_EVERY_S: Final = 1.0


class _Process:
    """Reads the daemon's messages, and runs the servers accordingly."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._messages: asyncio.Queue[ToHttp] = asyncio.Queue()
        asyncio.get_running_loop().add_reader(channel.fileno(), self._hear)

    async def run(self) -> None:
        settings = await self._messages.get()
        if not isinstance(settings, ServeHttp):  # the daemon has ended already
            return
        app_state = AppState(settings)
        inferences = Inferences(app_state)
        routes, metrics = http_routes(app_state, inferences), [metrics_route(settings.metrics)]
        background = [
            asyncio.create_task(work) for work in (self._follow(app_state), self._count(app_state), app_state.watch())
        ]
        for task in background:
            task.add_done_callback(lambda _: app_state.ending.set())  # on failure: the daemon starts another process
        try:
            await asyncio.gather(
                *(
                    serve_connections(
                        socket.socket(fileno=listener.fd),
                        HttpFront(app_state, listener, metrics if listener.metrics else routes),
                        app_state.ending,
                        _secured(settings) if listener.beyond else None,
                        app_state.count,
                    )
                    for listener in settings.listeners
                ),
                *([self._grpc(app_state, inferences)] if settings.grpc else []),
            )
        finally:
            for task in background:
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(*background)
            await app_state.close()

    async def _grpc(self, app_state: AppState, inferences: Inferences) -> None:
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its warnings would let untrusted callers flood our log
        from shisha_rt.http.grpc.service import serve_grpc  # an optional dependency

        await serve_grpc(app_state, inferences, lambda: self._tell(GrpcListens()))

    def _tell(self, message: FromHttp) -> None:
        with contextlib.suppress(ChannelBroken):
            self._channel.send(FROM_HTTP.encode(message))

    def _hear(self) -> None:
        """Queue the daemon's messages: they may arrive before the servers run."""
        for data in self._channel.receive():
            self._messages.put_nowait(TO_HTTP.decode(data))
        if not self._channel.open:
            asyncio.get_running_loop().remove_reader(self._channel.fileno())
            self._messages.put_nowait(EndHttp())

    async def _follow(self, app_state: AppState) -> None:
        while True:
            match await self._messages.get():
                case UsersChanged(users=users):
                    app_state.change_users(AccessList(users))
                case ModelsChanged(models=models, loaded=loaded):
                    app_state.change_models(models, loaded)
                case EndHttp():
                    app_state.ending.set()

    async def _count(self, app_state: AppState) -> None:
        while True:
            await asyncio.sleep(_COUNT_EVERY_S)
            counted = app_state.counted()
            if counted is not None:
                self._tell(counted)


def _secured(settings: ServeHttp) -> ssl.SSLContext:
    assert settings.certificate is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(settings.certificate, settings.key)
    return context


if __name__ == "__main__":
    serve_on_loop(lambda channel: _Process(channel).run())
