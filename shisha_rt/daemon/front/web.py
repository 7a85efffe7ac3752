"""The daemon's link to the HTTP process, which also speaks gRPC: listening sockets that outlive the process, and counts
of requests.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace
from prometheus_client import Counter

from shisha_rt.core import event_log
from shisha_rt.daemon.children.child_link import ChildLink, Program
from shisha_rt.daemon.front import http_messages as hm
from shisha_rt.daemon.front.access_control import AccessControl
from shisha_rt.daemon.front.addresses import Addresses
from shisha_rt.daemon.front.http_address import HeldPort, HttpListener
from shisha_rt.daemon.loop.poller import Poller
from shisha_rt.protocol.access import User

log = logging.getLogger(__name__)

_HTTP: Final = Program("shisha_rt.http.process", hm.TO_HTTP, hm.FROM_HTTP)
_LAST_ANSWERS_S: Final = 4.0


class Web:
    """Raises BadInput for an address that cannot be bound. `urls`, `grpc`: addresses of HTTP and gRPC, for people to
    read. `listens`: whether clients can connect to all of them.

    `metrics`: the UNIX socket that the metrics page is read from, if other hosts can reach the page; then the HTTP
    process serves it, at `metrics_page`. `models`: the models, if the endpoint serves several.
    """

    def __init__(
        self,
        addresses: Addresses,
        endpoint: str,
        admission: AccessControl,
        poller: Poller,
        counter: Callable[[str], Counter],
        max_message_bytes: int,
        metrics: str = "",
        models: Sequence[str] | None = None,
    ) -> None:
        self._counter = counter
        self._closing = contextlib.ExitStack()
        self._link = ChildLink(_HTTP, poller, lambda reason: event_log.HttpEnded(reason=reason))
        secure, open_to_all = addresses.certificate is not None, admission.users is not None
        with contextlib.ExitStack() as undo:
            undo.callback(self._closing.close)
            at = (*addresses.http, addresses.metrics) if metrics else addresses.http
            listeners = []
            for address in at:
                listeners.append(HttpListener(address, secure=secure, open_to_all=open_to_all))
                self._closing.callback(listeners[-1].close)
            self.urls = [listener.url for listener in listeners[: len(addresses.http)]]
            self.metrics_page = f"{listeners[-1].url}/metrics" if metrics else None
            held = []
            for address in addresses.grpc:
                held.append(HeldPort(address))
                self._closing.callback(held[-1].close)
            self.grpc = [port.target for port in held]
            self.listens = not held
            greeting = _greeting(addresses, endpoint, admission, listeners, metrics)
            self._greeting = [
                replace(
                    greeting,
                    models=None if models is None else tuple(models),
                    grpc=tuple(hm.GrpcListener(port.target, port.beyond) for port in held),
                    max_message_bytes=max_message_bytes,
                )
            ]
            if listeners or held:
                self._link.start(self._greeting, [listener.socket.fileno() for listener in listeners])
            undo.pop_all()

    @property
    def pid(self) -> int | None:
        """The HTTP process; None while none runs."""
        return self._link.pid

    def look(self) -> Iterator[object]:
        """Called periodically."""
        return self._link.look()

    def change_users(self, users: Sequence[User]) -> None:
        """Set the users for the HTTP process that runs, and for those started after it."""
        self._greeting[:] = [replace(self._greeting[0], users=tuple(users))]
        self._link.send(hm.UsersChanged(tuple(users)))

    def change_models(self, models: Sequence[str]) -> None:
        """Set the models of an endpoint that serves several."""
        self._greeting[:] = [replace(self._greeting[0], models=tuple(models))]
        self._link.send(hm.ModelsChanged(tuple(models)))

    def finish(self) -> None:
        """Wait, for a limited time, until the HTTP process has passed on the last answers."""
        self._link.send(hm.EndHttp())
        self._link.wait(_LAST_ANSWERS_S)

    def close(self) -> None:
        self._link.close()
        self._closing.close()

    def hear(self, message: hm.FromHttp) -> None:
        match message:
            case hm.HttpCounted():
                self._count(message)
            case hm.GrpcListens():
                self.listens = True

    def _count(self, counted: hm.HttpCounted) -> None:
        for status, count in counted.by_status.items():
            self._counter("shisha_http_requests").labels(str(status)).inc(count)
        for reason, count in counted.refused.items():
            self._counter("shisha_access_refused").labels(reason).inc(count)
            log.warning("%d requests refused: %s", count, reason)
        for code, count in counted.by_code.items():
            self._counter("shisha_grpc_requests").labels(code).inc(count)


def _greeting(
    addresses: Addresses, endpoint: str, admission: AccessControl, listeners: Sequence[HttpListener], metrics: str
) -> hm.ServeHttp:
    """The first message to the HTTP process."""
    client_keys, operator_keys = admission.http_keys or (None, None)
    return hm.ServeHttp(
        endpoint,
        tuple(
            hm.Listener(
                listener.socket.fileno(),
                listener.address.path is not None,
                listener.address.beyond,
                listener.address is addresses.metrics,
            )
            for listener in listeners
        ),
        None if addresses.certificate is None else str(addresses.certificate),
        None if addresses.key is None else str(addresses.key),
        addresses.shared_memory,
        None if admission.users is None else admission.users.users,
        client_keys,
        operator_keys,
        metrics,
    )
