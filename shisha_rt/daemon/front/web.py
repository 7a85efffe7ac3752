"""The daemon's link to the HTTP (and gRPC) process: listening sockets that outlive it, and counts of requests."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Final

from msgspec.structs import replace

from shisha_rt.core import event_log
from shisha_rt.daemon.children.child_link import ChildLink, ChildProgram
from shisha_rt.daemon.front import http_messages as hm
from shisha_rt.daemon.front.access_control import AccessControl
from shisha_rt.daemon.front.addresses import Addresses
from shisha_rt.daemon.front.http_address import EVERYBODY, OWN_ONLY, HeldPort, HttpListener
from shisha_rt.daemon.front.public_socket import PublicSocket, held_endpoint
from shisha_rt.daemon.loop.poller import Poller
from shisha_rt.daemon.metrics import MetricsPage
from shisha_rt.daemon.service_manager import ServiceManager
from shisha_rt.errors import BadInput
from shisha_rt.process.shared_flag import SharedFlag
from shisha_rt.protocol.access import AccessList

log = logging.getLogger(__name__)

_HTTP: Final = ChildProgram("shisha_rt.http.process", hm.TO_HTTP, hm.FROM_HTTP)
_LAST_ANSWERS_S: Final = 4.0


def check_free(addresses: Addresses) -> None:
    """Raises BadInput if an address cannot be bound: before a model is prepared, which may take minutes."""
    with contextlib.ExitStack() as held:
        held.enter_context(held_endpoint(addresses.settings.endpoint))
        for address in addresses.http:
            held.enter_context(closing(HttpListener(address)))
        for address in addresses.grpc:
            held.enter_context(closing(HeldPort(address)))
        if addresses.metrics.beyond:
            held.enter_context(closing(HttpListener(addresses.metrics)))
        else:
            held.enter_context(closing(MetricsPage())).serve(addresses.metrics)


class Web:
    """HTTP, gRPC and the metrics page of a daemon or host process, beside its `public` socket.

    Raises BadInput for an address that cannot be bound. `urls`, `grpc`: addresses of HTTP and gRPC, for people to read.
    `listens`: whether clients can connect to all of them. `link`: to the HTTP process. `metrics_page`: where `page` is;
    if other hosts can reach that, the HTTP process serves it. `models`: the models, if the endpoint serves several.
    `full`: while it is set, the HTTP process refuses frames by itself, before it reads their bodies.
    """

    def __init__(
        self,
        public: PublicSocket,
        access: AccessControl,
        poller: Poller,
        page: MetricsPage,
        models: Sequence[str] | None = None,
    ) -> None:
        self._public = public
        self._access = access
        self._page = page
        self.link = ChildLink(_HTTP, poller, lambda reason: event_log.HttpEnded(reason=reason))
        self._closing = contextlib.ExitStack()
        self.full = SharedFlag()
        self._closing.callback(self.full.close)
        addresses, count = access.addresses, len(access.addresses.http)
        try:
            inside = page.serve_inside() if addresses.metrics.beyond else ""
            mode = OWN_ONLY if access.users is None else EVERYBODY
            at = (*addresses.http, addresses.metrics) if inside else addresses.http
            listeners = [self._closing.enter_context(closing(HttpListener(address, mode))) for address in at]
            held = [self._closing.enter_context(closing(HeldPort(address))) for address in addresses.grpc]
            self.urls = [listener.url for listener in listeners[:count]]
            self.metrics_page = f"{listeners[-1].url}/metrics" if inside else page.serve(addresses.metrics)
            self.grpc = [port.passed.target for port in held]
            self.listens = not held
            self._greeting = [self._serve_http(listeners, held, inside, models)]
            if listeners or held:
                beside = [*(listener.socket.fileno() for listener in listeners), self.full.fd]
                self.link.start(self._greeting, beside)
        except BaseException:
            self.close()
            raise

    def _serve_http(
        self, listeners: Sequence[HttpListener], held: Sequence[HeldPort], metrics: str, models: Sequence[str] | None
    ) -> hm.ServeHttp:
        """The first message to the HTTP process."""
        settings, users = self._access.addresses.settings, self._access.users
        client_keys, operator_keys = self._access.http_keys or (None, None)
        return hm.ServeHttp(
            self._public.endpoint,
            tuple(listener.passed for listener in listeners),
            settings.http_certificate,
            settings.http_key,
            settings.http_shared_memory,
            None if users is None else users.users,
            client_keys,
            operator_keys,
            metrics,
            None if models is None else tuple(models),
            tuple(port.passed for port in held),
            self._public.limits.max_message_bytes,
            self.full.fd,
        )

    def read_access(self, manager: ServiceManager) -> AccessList | None:
        """Read the allow-list again, for the endpoint and the HTTP process, the running one and those started later.

        None if there is none, or an invalid one: then the old one stays in force.
        """
        try:
            with manager.reloading():
                users = self._access.read_again()
        except BadInput as error:
            log.warning("the allow-list stays as it was: %s", error)
            return None
        if users is not None:
            self._public.change_access(users)
            self._greeting[:] = [replace(self._greeting[0], users=users.users)]
            self.link.send(hm.UsersChanged(users.users))
        return users

    def change_models(self, models: Sequence[str], loaded: Sequence[str]) -> None:
        """Set the models of an endpoint that serves several, and those of them that are loaded."""
        self._greeting[:] = [replace(self._greeting[0], models=tuple(models))]
        self.link.send(hm.ModelsChanged(tuple(models), tuple(loaded)))

    def finish(self, meanwhile: Callable[[], object]) -> None:
        """Wait, for a limited time, until the HTTP process has passed on the last answers.

        Its addresses refuse whoever comes meanwhile: while the daemon had them open, too, connections would be accepted
        there, and hang until the daemon's end. `meanwhile` is called often, and answers what the process still asks.
        """
        self.link.send(hm.EndHttp())
        self._closing.close()
        self.link.wait(_LAST_ANSWERS_S, meanwhile)

    def close(self) -> None:
        self.link.close()
        self._closing.close()

    def grpc_listens(self, _: hm.GrpcListens) -> None:
        self.listens = True

    def count(self, counted: hm.HttpCounted) -> None:
        for status, count in counted.by_status.items():
            self._page.count("shisha_http_requests", status, by=count)
        for reason, count in counted.refused.items():
            self._page.count("shisha_access_refused", reason, by=count)
            log.warning("%d requests refused: %s", count, reason)
        for code, count in counted.by_code.items():
            self._page.count("shisha_grpc_requests", code, by=count)
