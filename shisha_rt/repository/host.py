"""The host process: one loop in which the daemons of several models are started and watched (`fleet`), loaded and
replaced (`versions`), and requests forwarded to them (`front`).
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import signal
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Final

import zmq
from prometheus_client import Counter

from shisha_rt import __version__
from shisha_rt.core import event_log
from shisha_rt.daemon.front.access_control import AccessControl
from shisha_rt.daemon.front.addresses import addresses_of
from shisha_rt.daemon.front.http_messages import GrpcListens, HttpCounted
from shisha_rt.daemon.front.public_socket import Message
from shisha_rt.daemon.front.sharing import folder_of, make_private, remove_empty
from shisha_rt.daemon.front.web import Web
from shisha_rt.daemon.host_share import HostShare
from shisha_rt.daemon.loop.poller import Poller
from shisha_rt.daemon.loop.signals import Signalled, Signals
from shisha_rt.daemon.metrics import COUNTERS, MetricsPage
from shisha_rt.daemon.service_manager import ServiceManager
from shisha_rt.daemon.settings import Settings
from shisha_rt.errors import BadInput, Error, Failure
from shisha_rt.machine.host.cpu_use import family
from shisha_rt.machine.host.leases import keep_folder
from shisha_rt.process.child import reap_orphan
from shisha_rt.protocol import operations as ops
from shisha_rt.protocol.exceptions import ShishaError, error_for, unknown_model
from shisha_rt.protocol.multipart import expect_descriptors
from shisha_rt.protocol.operations import INFER, LOADING_OPS, OPERATIONS
from shisha_rt.protocol.request import RequestRoute, read_operation
from shisha_rt.repository.all_metrics import ModelsCollector
from shisha_rt.repository.entries import ModelEntry
from shisha_rt.repository.fleet import ENDS_WITHIN_S, Fleet, ServedModel
from shisha_rt.repository.front import LIMITS, Front
from shisha_rt.repository.hosted import StartOptions
from shisha_rt.repository.model_daemon import LONGEST_SOCKET, DaemonEnded, DaemonReady, DaemonStarts, Home, ModelDaemon
from shisha_rt.repository.versions import Versions, load_failed

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 0.25
_DRAIN_S: Final = 30.0
_DRAINING: Final = "the daemons are draining and admit no more"
_OWN_COUNTERS: Final = ("shisha_http_requests", "shisha_grpc_requests", "shisha_access_refused")
_ABOUT_ALL: Final = frozenset({"server_live", "server_ready", "server_metadata", "repository_index"})
"""Operations about all models."""
_ABOUT_ALL_OR_NAMED: Final = frozenset({"status", "events", "model_statistics"})
"""Operations about the model that they name, or about all models if they name none."""


class ModelHost:
    """Several models on one machine. `run` serves until a signal ends it. It owns `share`, and closes it."""

    def __init__(
        self,
        settings: Settings,
        entries: Sequence[ModelEntry],
        share: HostShare,
        start: StartOptions,
        manager: ServiceManager,
    ) -> None:
        self._entries = list(entries)
        self._manager = manager
        self._share = share
        self._started_s, self._stop_at_s = time.monotonic(), math.inf
        self._instance = uuid.uuid4().hex
        self._closing = closing = contextlib.ExitStack()
        closing.callback(share.close)
        try:
            expect_descriptors()
            self._signals = closing.enter_context(contextlib.closing(Signals()))
            addresses = addresses_of(settings)
            page = closing.enter_context(contextlib.closing(MetricsPage()))
            page.counters = {n: Counter(n, text, by, registry=None) for n, text, by in COUNTERS if n in _OWN_COUNTERS}
            self._access = AccessControl(addresses, partial(page.count, "shisha_access_refused"))
            self._poller = closing.enter_context(contextlib.closing(Poller()))
            self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
            closing.callback(self._context.term)
            log_name = partial(log.info, "%s")  # not counted: this process has no counters for the front
            front = Front(self._context, settings.endpoint, log_name, self._access.security, self._poller, self._leads)
            self.front = closing.enter_context(contextlib.closing(front))
            folder = folder_of(self.front.endpoint, ".models", LONGEST_SOCKET)
            make_private(folder)
            closing.callback(remove_empty, folder)
            if (kept := keep_folder(folder)) is not None:
                closing.callback(os.close, kept)
            home = Home(folder, self._poller, self._context)
            self.fleet = Fleet(share, home, start, self._models_changed)
            self._versions = Versions(self.fleet, self.front, entries, self._models_changed)
            page.registry.register(ModelsCollector(self._pages, self.fleet.places_dealt, page.counters.values()))
            self.web = Web(self.front, self._access, self._poller, page, [entry.name for entry in entries])
            closing.callback(self.web.close)
            share.leases.share()
        except BaseException:
            closing.close()
            raise

    # --- serving ----------------------------------------------------------------------------------------------

    def run(self, on_ready: Callable[[], None], tell: Callable[[str], None]) -> None:
        """Serve; `tell` hears the steps, `on_ready` is called once models serve. Raises `Failure` if none can."""
        with self._closing, self._signals.heard(self._poller, read_again=self._access.path is not None):
            self.front.listen(self._poller, self.front.receive)
            try:
                self.fleet.begin(self._entries)
                # Only now, as it has to know which leases are those of this host process's own daemons.
                self.fleet.look_at_host(time.monotonic(), self._processes)
                self._share.say()
                self._serve(on_ready, tell)
            finally:
                self._end_daemons()
                self.web.finish(self._refuse_what_comes)

    def _serve(self, on_ready: Callable[[], None], tell: Callable[[str], None]) -> None:
        ready, look_at_s, wait_s = False, 0.0, 0.0
        while not self._is_over(time.monotonic()):
            now_s = time.monotonic()
            if now_s >= look_at_s:
                look_at_s = now_s + LOOK_EVERY_S
                self._look(now_s)
            else:
                for event in self._poller.poll(wait_s):
                    if not isinstance(event, DaemonStarts):
                        self._hear(event, time.monotonic())
                    elif not ready:
                        tell(f"{event.daemon.entry.name}: {event.step}")
            begun = all(served.serving is not None or served.is_unloaded for served in self.fleet.models.values())
            if begun and self.web.listens and not ready:
                if not any(served.serving for served in self.fleet.models.values()):
                    reasons = "; ".join(f"{name}: {served.reason}" for name, served in self.fleet.models.items())
                    raise Failure(f"no model can be served: {reasons}")
                ready = True
                self.fleet.journal.write(
                    event_log.Readied(endpoint=self.front.endpoint, metrics=self.web.metrics_page), "start"
                )
                self._manager.ready()
                on_ready()
            wake_s = min(look_at_s, self.front.tend(now_s))
            wait_s = max(0.0, wake_s - time.monotonic())

    @property
    def _stopping(self) -> bool:
        return self._stop_at_s < math.inf

    def _is_over(self, now_s: float) -> bool:
        """Whether to end: a signal has asked for it, and forwarded requests are answered or out of time."""
        return self._stopping and (now_s >= self._stop_at_s or (self.front.idle and not self.front.outbox.waiting))

    def _hear(self, event: object, now_s: float) -> None:
        match event:
            case (Message() as message, RequestRoute() as route):
                self._arrived(message, route, now_s)
            case DaemonReady(daemon):
                served = self.fleet.models[daemon.entry.name]
                if daemon is served.coming:
                    self._versions.compare(served, daemon)
                elif daemon is served.daemon:
                    self.fleet.serves(served, now_s)
                else:
                    daemon.terminate()  # no longer wanted, but ready before the first signal reached it
            case DaemonEnded(daemon):
                self._ended(self.fleet.models[daemon.entry.name], daemon, event, now_s)
            case Signalled(read_again=True):
                users = self.web.read_access(self._manager)
                if users is not None:
                    self.fleet.journal.write(event_log.AccessRead(users=len(users.users)), "a signal")
            case Signalled():
                self._stop_at_s = now_s + (0.0 if self._stopping else _DRAIN_S)
                self.fleet.stopping = True
                self._manager.stopping()
            case HttpCounted():
                self.web.count(event)
            case GrpcListens():
                self.web.grpc_listens(event)
            case event_log.HttpEnded():
                self.fleet.journal.write(event, "the end of the HTTP process")

    def _look(self, now_s: float) -> None:
        self.fleet.look(now_s)
        self.fleet.look_at_host(now_s, self._processes)
        for served in self.fleet.models.values():
            self._versions.see_off(served, now_s)
        self.web.link.look()
        self.front.look(now_s)
        reap_orphan()
        self._manager.look(
            now_s, lambda: ", ".join(f"{name}: {self._state(s)}" for name, s in self.fleet.models.items())
        )

    def _processes(self) -> tuple[Iterable[int], Iterable[int]]:
        """Pids of this process, of the models' daemons and of all their children; pids of clients are not known."""
        children = *(daemon.pid for daemon in self.fleet.daemons), self.web.link.pid
        return [os.getpid(), *(pid for child in filter(None, children) for pid in family(child))], ()

    # --- requests ---------------------------------------------------------------------------------------------

    def _leads(self, model: str) -> str:
        """The endpoint of the daemon that a model's requests go to now. Raises `ShishaError`."""
        served = self.fleet.models.get(model)
        if served is None:
            raise unknown_model(model, self.fleet.models)
        if served.daemon is None or not served.daemon.ready:
            raise error_for(Error.MODEL_GONE, f"model {model!r} is not there now: {served.reason}")
        return served.daemon.endpoint

    def _arrived(self, message: Message, route: RequestRoute, now_s: float) -> None:
        try:
            if self._stopping and (route.op == INFER or route.op in LOADING_OPS):
                raise error_for(Error.DRAINING, _DRAINING)
            model = route.model_name
            is_about_all = route.op in _ABOUT_ALL or (route.op in _ABOUT_ALL_OR_NAMED and model is None)
            if route.op in LOADING_OPS or is_about_all:
                self._answer(message, route)
                return
            if model is None and len(self.fleet.models) == 1:
                model = next(iter(self.fleet.models))
            if model is None and route.op not in (INFER, "cancel", *OPERATIONS):
                read_operation(message.payload)  # raises an error that says what is wrong
            if model is None:
                expected = " or ".join(map(repr, self.fleet.models)) or "one that is loaded first"
                several = f"several models are served; expected {expected} as model_name (--model of a command)"
                raise error_for(Error.UNKNOWN_MODEL, several)
        except ShishaError as error:
            error.request_id = route.id
            self.front.refuse(message, error)
        except Exception as error:
            log.exception("a request (%s) has failed", route.op)
            self.front.refuse(message, error_for(Error.FAILED, f"{route.op} has failed: {error!r}", route.id))
        else:
            self.front.forward(message, route, model, now_s)

    def _answer(self, message: Message, route: RequestRoute) -> None:
        arguments = read_operation(message.payload).arguments
        if not isinstance(arguments, ops.ModelLoad | ops.ModelUnload):
            self.front.answer_fields(message, route.id, self._answers[route.op](arguments))
            return
        name = arguments.model_name

        def then(trouble: str | None) -> None:
            if trouble is None:
                shadowed = self.fleet.models[name].shadowed if route.op == "model_load" else {}
                self.front.answer_fields(message, route.id, {"model_name": name, **shadowed})
            else:
                self.front.refuse(message, load_failed(trouble, route.id))

        try:
            self._versions.change(route.op, arguments, then)
        except (BadInput, Failure, OSError, RuntimeError, ValueError) as error:  # as for a path that does not exist
            raise load_failed(f"model {name!r} cannot be loaded: {error}") from None

    @cached_property
    def _answers(self) -> Mapping[str, Callable[[Any], dict[str, Any]]]:
        """Fields of the answers to operations about all models, by operation."""
        models, journal = self.fleet.models, self.fleet.journal
        return {
            "server_live": lambda _: {"live": True},
            "server_ready": lambda _: {"ready": self._ready and not self._stopping},
            "server_metadata": lambda _: self._metadata(),
            "repository_index": lambda a: {
                "models": [e for e in self._index() if e["state"] == "READY" or not a.ready]
            },
            "status": lambda _: {"status": self._status()},
            "events": lambda a: journal.since(a.since, a.limit),
            "model_statistics": lambda _: {
                "model_stats": [row for model in models.values() for row in model.statistics]
            },
        }

    def _metadata(self) -> dict[str, object]:
        leads = self._access.security is None  # with keys clients cannot follow: daemons do not know the keys
        return {
            "name": "shisha-rt",
            "version": __version__,
            "extensions": ["binary_tensor_data", "streams", "plans", "model_repository"],
            "max_in_flight": LIMITS.max_in_flight,
            "max_message_bytes": LIMITS.max_message_bytes,
            "instance": self._instance,
            "shared_memory_socket": None,
            "models": [
                {
                    "name": name,
                    "version": served.entry.version,
                    "endpoint": served.serving.endpoint if leads and served.serving else None,
                }
                for name, served in self.fleet.models.items()
            ],
        }

    def _index(self) -> list[dict[str, Any]]:
        return [
            {
                "name": name,
                "version": served.entry.version,
                "state": self._state(served),
                "reason": served.why_not_ready,
            }
            for name, served in self.fleet.models.items()
        ]

    @property
    def _ready(self) -> bool:
        """As Triton's strict readiness: all models are ready, except those that a client has unloaded."""
        return all(served.ready or (served.is_unloaded and not served.failed) for served in self.fleet.models.values())

    def _state(self, served: ServedModel) -> str:
        if served.ready:
            return "READY"
        return "UNAVAILABLE" if served.is_unloaded or served.serving is not None else "LOADING"

    def _status(self) -> dict[str, object]:
        return {
            "state": "draining" if self._stopping else "serving",
            "version": __version__,
            "instance": self._instance,
            "pid": os.getpid(),
            "uptime_s": round(time.monotonic() - self._started_s, 3),
            "host": self._share.described(),
            "models": [entry | self._about(entry["name"]) for entry in self._index()],
            "places": [
                {"name": place.name, "cores": place.cores, "models": self.fleet.models_on(place.name)}
                for place in self.fleet.machine.places
            ],
            "next_event": self.fleet.journal.next,
        }

    def _about(self, name: str) -> dict[str, object]:
        """What `status` says of a model beside its entry in the index."""
        served, places, shared = self.fleet.models[name], self.fleet.places_of(name), self.fleet.shared
        return {
            "share": served.entry.terms.share,
            "places": places,
            "shared": [place for place in places if place in shared],
            "pid": None if served.daemon is None else served.daemon.pid or None,
            "frames": served.said.get("frames"),
            "throughput_fps": served.said.get("throughput_fps"),
            "replacing": served.coming is not None,
        }

    def _pages(self) -> Mapping[str, str]:
        return {n: daemon.metrics for n, s in list(self.fleet.models.items()) if (daemon := s.serving) is not None}

    def _models_changed(self) -> None:
        models = self.fleet.models
        self.web.change_models([*models], [name for name, served in models.items() if not served.is_unloaded])

    # --- the end ----------------------------------------------------------------------------------------------

    def _ended(self, served: ServedModel, daemon: ModelDaemon, ended: DaemonEnded, now_s: float) -> None:
        reason, entry = ended.reason, daemon.entry
        self.front.daemon_gone(daemon.endpoint, f"the daemon of model {entry.name!r} ended ({reason}) while it "
                               "had the request; it may have been run")  # fmt: skip
        if daemon in served.leaving:
            del served.leaving[daemon]
            return
        self.fleet.journal.write(
            event_log.ModelEnded(model=entry.name, version=entry.version, reason=reason), "its end"
        )
        if daemon is served.coming:
            self._versions.ended(served, daemon, reason)
        else:
            self._versions.end_change(served, reason)
            self.fleet.ended(served, ended, now_s)

    def _refuse_what_comes(self) -> None:
        for message, route in self.front.receive():
            self.front.refuse(message, error_for(Error.DRAINING, _DRAINING, route.id))
        self.front.outbox.flush(math.inf)

    def _end_daemons(self) -> None:
        """End all daemons. Each drains first, so requests that clients sent to it directly are answered; daemons that
        take too long, or are left when another signal comes, are killed.
        """
        self._stop_at_s = min(self._stop_at_s, time.monotonic())
        self.fleet.stopping = True
        for served in self.fleet.models.values():
            served.tell("the daemons are being ended")
        until_s = time.monotonic() + ENDS_WITHIN_S
        for daemon in self.fleet.daemons:
            daemon.terminate()
        while self.fleet.daemons and time.monotonic() < until_s:
            for event in self._poller.poll(LOOK_EVERY_S):
                if isinstance(event, DaemonReady):
                    event.daemon.terminate()
                elif isinstance(event, Signalled):
                    until_s = until_s if event.read_again else 0.0
                else:
                    self._hear(event, time.monotonic())
            self.front.tend(time.monotonic())
        for daemon in self.fleet.daemons:
            daemon.terminate(signal.SIGKILL)
            daemon.close()
        self.front.outbox.flush(math.inf)
        self.front.socket.setsockopt(zmq.LINGER, 1000)
