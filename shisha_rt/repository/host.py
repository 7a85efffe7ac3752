"""The host process: one loop that starts, watches and ends the daemons of several models, forwards requests to them,
and carries out the dealer's instructions.

If the host process dies its daemons go on. The next host process at the same address takes them over.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import os
import signal
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import zmq
from prometheus_client import Counter

from shisha_rt import __version__
from shisha_rt.core import dealer as de
from shisha_rt.core import event_log
from shisha_rt.daemon.event_log import EventLog
from shisha_rt.daemon.front.access_control import AccessControl
from shisha_rt.daemon.front.addresses import addresses_of
from shisha_rt.daemon.front.http_messages import GrpcListens, HttpCounted
from shisha_rt.daemon.front.public_socket import Message
from shisha_rt.daemon.front.sharing import folder_of, make_private, remove_empty
from shisha_rt.daemon.front.web import Web
from shisha_rt.daemon.host_share import HostShare
from shisha_rt.daemon.loop.poller import Poller
from shisha_rt.daemon.loop.signals import Signalled, signals
from shisha_rt.daemon.metrics import COUNTERS, MetricsPage
from shisha_rt.daemon.service_manager import ServiceManager
from shisha_rt.daemon.settings import Settings
from shisha_rt.errors import BadInput, Code, Error, Failure
from shisha_rt.machine.host.memory import available_memory_bytes
from shisha_rt.machine.machine import Machine
from shisha_rt.protocol import operations as ops
from shisha_rt.protocol.exceptions import ShishaError, error_for
from shisha_rt.protocol.operations import OPERATIONS
from shisha_rt.protocol.request import RequestRoute, read_operation
from shisha_rt.repository.all_metrics import ModelsCollector
from shisha_rt.repository.asking import Fields, refusal
from shisha_rt.repository.entries import FIRST_VERSION, ModelEntry, told
from shisha_rt.repository.front import LIMITS, Front
from shisha_rt.repository.model_daemon import DaemonEnded, DaemonReady, ModelDaemon, end_left, left_daemons

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 0.25
_DRAIN_S: Final = 30.0
_ENDS_WITHIN_S: Final = 40.0
_MOST_FAILURES: Final = 5
"""A model is given up after so many deaths of its daemon in a row without serving for `_SERVED_S` in between."""
_SERVED_S: Final = 10.0
_FIRST_DELAY_S: Final = 0.5
_QUIET_S: Final = 1.0
"""A daemon that has been replaced is ended once nothing has been in flight there for this long."""
_PROCESS_BYTES: Final = 200 << 20
"""Memory of a daemon and its first worker, without the model's weights."""
_WEIGHT_COPIES: Final = 2
_LARGE_BYTES: Final = 64 << 20
"""A model's file above this size has its weights inside."""
_WHOLE: Final = frozenset({"server_live", "server_ready", "server_metadata", "repository_index"})
"""Operations about all models, which name none. Those of `_OF_ALL` are about all models if they name none."""
_OF_ALL: Final = frozenset({"status", "events", "model_statistics"})
_LOADING: Final = frozenset({"model_load", "model_unload", "model_undo"})


@dataclass(frozen=True, slots=True)
class _Seen:
    """A daemon's load as reported at `at_s`: seconds of computing and number of frames refused, since it began."""

    at_s: float
    busy_s: float
    refused: int


@dataclass(slots=True, eq=False)
class ServedModel:
    """`daemon`: requests go to it; `coming`: a different version's daemon, which takes over once it serves.

    `leaving`: replaced daemons, and since when nothing has been in flight there (inf: something is, or that is unknown;
    -inf: the daemon is being ended). `previous`: the version before. `shadow`: how many frames `coming` computes beside
    `daemon` before it takes over; `shadowed`: the result. `then`: called at the end of loading with what went wrong, or
    None if the model serves.
    """

    entry: ModelEntry
    daemon: ModelDaemon | None = None
    coming: ModelDaemon | None = None
    leaving: dict[ModelDaemon, float] = field(default_factory=dict)
    previous: ModelEntry | None = None
    shadow: int = 0
    shadowed: Fields = field(default_factory=dict)
    then: list[Callable[[str | None], None]] = field(default_factory=list)
    reason: str = "it is being started"
    failures: int = 0
    again_at_s: float = math.inf
    ready_s: float = math.inf
    is_unloaded: bool = False
    said: Fields = field(default_factory=dict)
    statistics: Sequence[Any] = ()
    seen: _Seen | None = None

    @property
    def serves(self) -> bool:
        return self.daemon is not None and self.daemon.ready

    @property
    def daemons(self) -> list[ModelDaemon]:
        return [daemon for daemon in (self.daemon, self.coming, *self.leaving) if daemon is not None]


class ModelHost:
    """Several models on one machine. `run` serves until a signal ends it. `share` belongs to it from now on."""

    def __init__(
        self,
        settings: Settings,
        entries: Sequence[ModelEntry],
        share: HostShare,
        log_as: tuple[int, str],
        manager: ServiceManager,
        *,
        fresh: bool,
    ) -> None:
        self._entries = list(entries)
        files = [Path(entry.settings.model) for entry in entries if not entry.settings.model.startswith("zoo:")]
        known = (*(file.parent for file in files), *(entry.folder for entry in entries if entry.folder is not None))
        self._folders = frozenset(folder.resolve() for folder in known)
        self._log_as = log_as
        self._fresh = fresh
        self._manager = manager
        self._share = share
        self._machine = replace(share.machine, places=share.machine.usual, spare=frozenset())
        self._started_s, self._stop_at_s = time.monotonic(), math.inf
        self._instance = uuid.uuid4().hex
        self.journal = EventLog()
        self.models: dict[str, ServedModel] = {}
        self._dealer = de.Dealer([place.name for place in sorted(self._machine.places, key=lambda place: place.rank)])
        self._not_moved: list[de.NotMoved] = []
        self._numbers = itertools.count(1)
        self._closing = closing = contextlib.ExitStack()
        closing.callback(share.close)
        try:
            addresses = addresses_of(settings)
            page = MetricsPage()
            closing.callback(page.close)
            counters = {n: Counter(n, text, labels, registry=None) for n, text, labels in COUNTERS if labels
                        and n in ("shisha_http_requests", "shisha_grpc_requests", "shisha_access_refused")}  # fmt: skip
            page.registry.register(ModelsCollector(self._pages, self._places_dealt, counters.values()))
            self._admission = AccessControl(
                addresses, lambda reason: counters["shisha_access_refused"].labels(reason).inc()
            )
            self._poller = Poller()
            closing.callback(self._poller.close)
            self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
            closing.callback(self._context.term)
            self.front = Front(
                self._context, addresses.endpoint, self._count, self._admission.security, self._poller, self._leads
            )
            closing.callback(self.front.close)
            self._folder = folder_of(self.front.endpoint, ".models").absolute()
            make_private(self._folder)
            closing.callback(remove_empty, self._folder)
            inside = page.serve_inside() if addresses.metrics.beyond else ""
            metrics_page = "" if inside else page.serve(addresses.metrics)
            counter, names = counters.__getitem__, [entry.name for entry in entries]
            endpoint, most = self.front.endpoint, LIMITS.max_message_bytes
            self.web = Web(addresses, endpoint, self._admission, self._poller, counter, most, inside, names)
            closing.callback(self.web.close)
            self.metrics_page = self.web.metrics_page or metrics_page
            share.leases.share()
        except BaseException:
            closing.close()
            raise

    # --- serving ----------------------------------------------------------------------------------------------

    def run(self, on_ready: Callable[[], None]) -> None:
        """Serve. `on_ready` is called once the models that can be served are. Raises `Failure` if none can."""
        with self._closing, signals(self._poller, read_again=self._admission.path is not None):
            self.front.listen(self._poller, self.front.receive)
            try:
                self._adopt_or_begin()
                self._serve(on_ready)
            finally:
                self._end_daemons()
                self.web.finish()

    def _serve(self, on_ready: Callable[[], None]) -> None:
        ready, look_at_s, wait_s = False, 0.0, 0.0
        while not self._is_over(time.monotonic()):
            now_s = time.monotonic()
            if now_s >= look_at_s:
                look_at_s = now_s + LOOK_EVERY_S
                self._look(now_s)
            else:
                for event in self._poller.poll(wait_s):
                    self._hear(event, time.monotonic())
            begun = all(served.serves or served.is_unloaded for served in self.models.values())
            if begun and self.web.listens and not ready:
                if not any(served.serves for served in self.models.values()):
                    reasons = "; ".join(f"{name}: {served.reason}" for name, served in self.models.items())
                    raise Failure(f"no model can be served: {reasons}")
                ready = True
                self.journal.write(event_log.Readied(endpoint=self.front.endpoint, metrics=self.metrics_page), "start")
                self._manager.ready()
                on_ready()
            wake_s = min(look_at_s, self.front.tend(now_s))
            wait_s = max(0.0, wake_s - time.monotonic())

    @property
    def _stopping(self) -> bool:
        return self._stop_at_s < math.inf

    def _is_over(self, now_s: float) -> bool:
        """Whether to end: a signal asked for it, and all forwarded requests are answered or their time is up."""
        return self._stopping and (now_s >= self._stop_at_s or (self.front.idle and self.front.outbox.empty))

    def _hear(self, event: object, now_s: float) -> None:
        match event:
            case (Message() as message, RequestRoute() as route):
                self._arrived(message, route, now_s)
            case DaemonReady(daemon):
                self._serves(self.models[daemon.entry.name], daemon, now_s)
            case DaemonEnded(daemon):
                self._ended(self.models[daemon.entry.name], daemon, event, now_s)
            case Signalled(read_again=True):
                self._read_access()
            case Signalled():
                self._stop_at_s = now_s + (0.0 if self._stopping else _DRAIN_S)
                self._manager.stopping()
            case HttpCounted() | GrpcListens():
                self.web.hear(event)
            case event_log.HttpEnded():
                self.journal.write(event, "the end of the HTTP process")

    def _look(self, now_s: float) -> None:
        for name, served in list(self.models.items()):
            if served.serves and served.daemon is not None and served.daemon.line is not None:
                served.daemon.line.ask("status", lambda said, served=served: self._heard(served, said))  # type: ignore[misc]
            if now_s >= served.again_at_s and not self._stopping:
                served.again_at_s = math.inf
                if name in self._dealer.models:
                    self._start(served, tuple(self._places_of(name)))
                else:  # a daemon that was taken over, and ended before it had told its places
                    self._deal(de.ModelCame(name, served.entry.terms))
            if served.serves and now_s > served.ready_s + _SERVED_S:
                served.failures = 0
            self._see_off(served, now_s)
            for daemon in served.daemons:
                daemon.look()
        not_moved, self._not_moved = self._not_moved, []
        for late in not_moved:
            self._deal(late)
        for event in self.web.look():
            self._hear(event, now_s)
        self.front.look(now_s)
        self._manager.look(now_s, lambda: ", ".join(f"{name}: {self._state(s)}" for name, s in self.models.items()))

    def _read_access(self) -> None:
        try:
            with self._manager.reloading():
                users = self._admission.read_again()
        except BadInput as error:
            log.warning("the allow-list stays as it was: %s", error)
            return
        if users is not None:
            self.front.change_access(users)
            self.web.change_users(users.users)

    def _count(self, name: str) -> None:
        log.info("%s", name)

    # --- requests ---------------------------------------------------------------------------------------------

    def _leads(self, model: str) -> str:
        """The endpoint of the daemon that a model's requests go to now. Raises `ShishaError`."""
        served = self.models.get(model)
        if served is None:
            raise error_for(Error.UNKNOWN_MODEL, f"no model {model!r} is served; expected {self._names}")
        if served.daemon is None or not served.daemon.ready:
            raise error_for(Error.MODEL_GONE, f"model {model!r} is not there now: {served.reason}")
        return served.daemon.endpoint

    @property
    def _names(self) -> str:
        return " or ".join(map(repr, self.models)) or "one that is loaded first"

    def _arrived(self, message: Message, route: RequestRoute, now_s: float) -> None:
        try:
            if self._stopping:
                raise error_for(Error.DRAINING, "the daemons are draining and admit no more")
            if route.op in _LOADING or route.op in _WHOLE or (route.op in _OF_ALL and route.model_name is None):
                self._answer(message, route)
                return
            model = route.model_name
            if model is None and len(self.models) == 1:
                model = next(iter(self.models))
            if model is None and route.op not in ("infer", "cancel", *OPERATIONS):
                read_operation(message.payload)  # raises an error that says what is wrong
            if model is None:
                raise error_for(
                    Error.UNKNOWN_MODEL, f"header at model_name: several models are served; expected {self._names}"
                )
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
        match arguments:
            case ops.ModelLoad() | ops.ModelUnload():

                def then(trouble: str | None) -> None:
                    if trouble is None:
                        shadowed = self.models[arguments.model_name].shadowed if route.op == "model_load" else {}
                        self.front.answer(message, route.id, {"model_name": arguments.model_name, **shadowed})
                    else:
                        self.front.refuse(message, error_for(Error.LOAD_FAILED, trouble, route.id))

                try:
                    self._change_models(route.op, arguments, then)
                except (BadInput, Failure, OSError, RuntimeError, ValueError) as error:  # as of a path that is none
                    reason = f"model {arguments.model_name!r} cannot be loaded: {error}"
                    raise error_for(Error.LOAD_FAILED, reason) from None
            case ops.Events():
                self.front.answer(message, route.id, self.journal.since(arguments.since, arguments.limit))
            case ops.RepositoryIndex():
                models = [entry for entry in self._index() if entry["state"] == "READY" or not arguments.ready]
                self.front.answer(message, route.id, {"models": models})
            case _:
                about: Mapping[str, Callable[[], dict[str, object]]] = {
                    "server_live": lambda: {"live": True},
                    "server_ready": lambda: {"ready": all(s.serves for s in self.models.values() if not s.is_unloaded)},
                    "server_metadata": self._metadata,
                    "status": lambda: {"status": self._status()},
                    "model_statistics": lambda: {
                        "model_stats": [stats for served in self.models.values() for stats in served.statistics]
                    },
                }
                self.front.answer(message, route.id, about[route.op]())

    def _metadata(self) -> dict[str, object]:
        leads = self._admission.security is None  # with keys clients cannot follow: daemons do not know the keys
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
                    "endpoint": served.daemon.endpoint if leads and served.daemon and served.daemon.ready else None,
                }
                for name, served in self.models.items()
            ],
        }

    def _index(self) -> list[dict[str, str]]:
        return [
            {
                "name": name,
                "version": served.entry.version,
                "state": self._state(served),
                "reason": "" if served.serves else served.reason,
            }
            for name, served in self.models.items()
        ]

    def _state(self, served: ServedModel) -> str:
        if served.serves:
            return "READY"
        return "UNAVAILABLE" if served.is_unloaded else "LOADING"

    def _status(self) -> dict[str, object]:
        shared = self._dealer.shared
        return {
            "state": "draining" if self._stopping else "serving",
            "version": __version__,
            "instance": self._instance,
            "pid": os.getpid(),
            "uptime_s": round(time.monotonic() - self._started_s, 3),
            "host": self._share.described(),
            "models": [
                {
                    **entry,
                    "share": self.models[entry["name"]].entry.terms.share,
                    "places": self._places_of(entry["name"]),
                    "shared": [place for place in self._places_of(entry["name"]) if place in shared],
                    "pid": daemon.pid if (daemon := self.models[entry["name"]].daemon) else None,
                    "frames": self.models[entry["name"]].said.get("frames"),
                    "throughput_fps": self.models[entry["name"]].said.get("throughput_fps"),
                    "replacing": self.models[entry["name"]].coming is not None,
                }
                for entry in self._index()
            ],
            "places": [
                {"name": place.name, "cores": place.cores, "models": self._models_on(place.name)}
                for place in self._machine.places
            ],
            "next_event": self.journal.next,
        }

    def _places_of(self, model: str) -> list[str]:
        dealt = self._dealer.models.get(model)
        return [] if dealt is None else sorted(dealt.has)

    def _models_on(self, place: str) -> list[str]:
        return [name for name, dealt in self._dealer.models.items() if place in dealt.has]

    def _pages(self) -> Mapping[str, str]:
        return {n: s.daemon.metrics for n, s in list(self.models.items()) if s.daemon is not None and s.serves}

    def _places_dealt(self) -> Mapping[str, int]:
        return {name: len(dealt.has) for name, dealt in list(self._dealer.models.items())}

    # --- daemons ----------------------------------------------------------------------------------------------

    def _adopt_or_begin(self) -> None:
        left = list(left_daemons(self._folder))
        self._numbers = itertools.count(1 + max((record.number for record in left), default=0))
        for entry in self._entries:
            served = self.models[entry.name] = ServedModel(entry)
            fit = next((record for record in left if record.told == told(entry)), None)
            if fit is not None and self._adopt(served, fit):
                left.remove(fit)
        end_left(self._folder, left, _ENDS_WITHIN_S)
        for served in self.models.values():
            if served.daemon is None:
                self._deal(de.ModelCame(served.entry.name, served.entry.terms))

    def _adopt(self, served: ServedModel, record: Any) -> bool:
        """Adopt the daemon of this record, which a host process that died has left; False if it has ended."""
        daemon = ModelDaemon(served.entry, record.number, self._folder, self._poller, self._context)
        try:
            daemon.adopt(record)
        except OSError:
            return False
        served.daemon = daemon
        assert daemon.line is not None
        daemon.line.ask("status", lambda said: self._found(served, daemon, said))
        return True

    def _found(self, served: ServedModel, daemon: ModelDaemon, said: Fields) -> None:
        if "status" not in said:
            return  # it has just ended
        known = {place.name: list(place.cores) for place in self._machine.places}
        if {place["name"]: place["cores"] for place in said["status"]["places"]} != known:
            log.warning("%s: its daemon has other places than this process; it is started again", served.entry.name)
            daemon.terminate()
            return
        places = [place["name"] for place in said["status"]["places"] if place["available"]]
        self._deal(de.ModelFound(served.entry.name, served.entry.terms, tuple(places)))
        self._note_ready(served, taken_over=True)

    def _begin(self, model: str, places: tuple[str, ...]) -> None:
        self._start(self.models[model], places)

    def _start(self, served: ServedModel, places: tuple[str, ...]) -> None:
        served.daemon = self._started(served.entry, places)
        if served.daemon is None:
            self._put_off(served, "no process could be started for it", time.monotonic())

    def _started(self, entry: ModelEntry, places: tuple[str, ...]) -> ModelDaemon | None:
        spare = frozenset(place.name for place in self._machine.places) - {*places}
        daemon = ModelDaemon(entry, next(self._numbers), self._folder, self._poller, self._context)
        machine: Machine = replace(self._machine, spare=spare)
        leases = None if self._share.leases.fault else self._share.leases.folder
        try:
            daemon.start(machine, leases, self._log_as, fresh=self._fresh)
        except OSError as error:
            log.warning("%s: %s", entry.name, error)
            return None
        starting = event_log.ModelStarting(model=entry.name, version=entry.version, places=places)
        self.journal.write(starting, "the dealer")
        return daemon

    def _serves(self, served: ServedModel, daemon: ModelDaemon, now_s: float) -> None:
        if daemon is served.coming:
            self._compare(served, daemon)
        elif daemon is served.daemon:
            served.ready_s = now_s
            self._note_ready(served)
            self._tell(served, None)

    def _note_ready(self, served: ServedModel, *, taken_over: bool = False) -> None:
        served.reason = ""
        entry = served.entry
        serves = event_log.ModelServes(model=entry.name, version=entry.version, taken_over=taken_over)
        self.journal.write(serves, "its daemon")
        self._models_changed()

    def _models_changed(self) -> None:
        self.web.change_models([*self.models])

    def _ended(self, served: ServedModel, daemon: ModelDaemon, ended: DaemonEnded, now_s: float) -> None:
        reason = ended.reason
        self.front.daemon_gone(daemon.endpoint, f"the daemon of model {daemon.entry.name!r} ended ({reason}) while it "
                               "had the request; it may have been run")  # fmt: skip
        if daemon in served.leaving:
            del served.leaving[daemon]
            return
        self.journal.write(
            event_log.ModelEnded(model=daemon.entry.name, version=daemon.entry.version, reason=reason), "its end"
        )
        if daemon is served.coming:
            served.coming = None
            self._tell(served, f"version {daemon.entry.version} could not be started: {reason}")
            return
        served.daemon = None
        if served.coming is not None:
            self._send_back(
                served, served.coming, f"has nothing to take over from, as the daemon before ended: {reason}"
            )
        if not served.is_unloaded and not self._stopping:
            served.failures = _MOST_FAILURES if ended.refused else served.failures
            self._put_off(served, reason, now_s)

    def _put_off(self, served: ServedModel, reason: str, now_s: float) -> None:
        """Start the daemon again after a delay, which doubles each time; give the model up after `_MOST_FAILURES`."""
        name, served.reason, served.daemon = served.entry.name, reason, None
        served.failures += 1
        served.ready_s, served.seen = math.inf, None
        self._end_moves(name)
        if served.failures < _MOST_FAILURES:
            served.again_at_s = now_s + _FIRST_DELAY_S * 2 ** (served.failures - 1)
            return
        entry, served.is_unloaded = served.entry, True
        self.journal.write(event_log.ModelGivenUp(model=name, version=entry.version, reason=reason), "its deaths")
        log.warning("%s is given up: %s", name, reason)
        self._deal(de.ModelLeft(name))
        self._tell(served, reason)

    # --- loading ----------------------------------------------------------------------------------------------

    def _change_models(
        self, op: str, arguments: ops.ModelLoad | ops.ModelUnload, then: Callable[[str | None], None]
    ) -> None:
        """Load, unload or undo; `then` is called with the result. Raises `ShishaError` if it cannot be begun."""
        name, served = arguments.model_name, self.models.get(arguments.model_name)
        if isinstance(arguments, ops.ModelLoad):
            self._load(name, served, arguments, then)
            return
        if served is None:
            raise error_for(Error.UNKNOWN_MODEL, f"no model {name!r} is served; expected {self._names}")
        if op == "model_unload":
            self._unload(served)
            then(None)
        elif served.previous is None:
            raise error_for(Error.LOAD_FAILED, f"model {name!r} has had no other version yet")
        else:
            self._replace(served, served.previous, then)

    def _load(
        self, name: str, served: ServedModel | None, asked: ops.ModelLoad, then: Callable[[str | None], None]
    ) -> None:
        if asked.model is not None:
            self._check_within(asked.model)
        if served is None:
            if asked.model is None:
                raise error_for(Error.UNKNOWN_MODEL, f"no model {name!r} is known; expected its file, too (model)")
            entry = ModelEntry(name, asked.version or FIRST_VERSION, Settings(asked.model), de.Terms())
            _check_room(entry)
            self.models[name] = ServedModel(entry, then=[then])
            self._models_changed()
            self._deal(de.ModelCame(name, entry.terms))
            return
        served.shadowed = {}
        entry = served.entry.newest()
        if asked.model is not None or asked.version is not None:
            version = asked.version or _next_version(served.entry.version)
            entry = served.entry.as_version(asked.model or served.entry.settings.model, version)
        if served.is_unloaded:
            _check_room(entry)
            served.entry, served.is_unloaded, served.failures = entry, False, 0
            served.reason = "it is being started"
            served.then.append(then)
            self._deal(de.ModelCame(name, entry.terms))
        elif entry == served.entry and served.serves:
            then(None)
        elif entry == served.entry:
            served.then.append(then)
        else:
            self._replace(served, entry, then, shadow=asked.shadow)

    def _check_within(self, model: str) -> None:
        """Raises `ShishaError` for a file that clients may not load: one outside the folders of the first models."""
        if model.startswith("zoo:"):
            return
        folder = Path(model).resolve().parent
        if self._folders.isdisjoint((folder, *folder.parents)):
            message = f"{model} lies in no folder that a model was served from at the start; expected one that does"
            raise error_for(Error.LOAD_FAILED, message)

    def _unload(self, served: ServedModel) -> None:
        if served.is_unloaded:
            return
        served.is_unloaded, served.reason, served.again_at_s = True, "it is unloaded", math.inf
        if served.coming is not None:
            self._send_back(served, served.coming, "does not take over, as the model is unloaded")
        if served.daemon is not None:
            served.daemon.terminate()
            served.leaving[served.daemon] = -math.inf
            served.daemon = None
        entry = served.entry
        self.journal.write(event_log.ModelUnloaded(model=entry.name, version=entry.version), "a client")
        self._deal(de.ModelLeft(entry.name))
        self._tell(served, "it was unloaded meanwhile")

    def _replace(
        self, served: ServedModel, entry: ModelEntry, then: Callable[[str | None], None], *, shadow: int = 0
    ) -> None:
        """Start a daemon for `entry` beside the present one; it takes over once it serves."""
        if served.coming is not None or served.daemon is None or not served.daemon.ready:
            raise error_for(Error.LOAD_FAILED, f"model {entry.name!r} is changing already; ask again later")
        _check_room(entry)
        dealt = self._dealer.models[entry.name]
        served.coming = self._started(entry, tuple(sorted(dealt.has - dealt.releasing)))
        if served.coming is None:
            raise error_for(Error.LOAD_FAILED, "no process could be started for it")
        self._end_moves(entry.name)
        served.shadow = shadow
        served.then.append(then)

    def _compare(self, served: ServedModel, coming: ModelDaemon) -> None:
        """Let the new version take over only if inputs and outputs are the same: else clients would be refused."""
        assert served.daemon is not None
        before: list[Fields] = []

        def heard(said: Fields) -> None:
            if refusal(said) is not None:
                return  # one of them has just ended; `_ended` reports that
            before.append(said)
            if len(before) == 2 and coming is served.coming:
                ends = [[said.get("inputs"), said.get("outputs")] for said in before]
                if ends[0] != ends[1] or ends[0][0] is None:
                    self._send_back(served, coming, "has other inputs or outputs; expected the same")
                elif served.shadow:
                    self._shadow(served, coming)
                else:
                    self._switch(served, coming)

        for daemon in (served.daemon, coming):
            if daemon.line is None:
                return  # it has just ended; `_ended` reports that
            daemon.line.ask("model_metadata", heard)

    def _send_back(self, served: ServedModel, coming: ModelDaemon, why: str) -> None:
        """End the daemon that was to take over; the present version keeps serving."""
        served.coming = None
        served.leaving[coming] = -math.inf
        coming.terminate()
        self._tell(served, f"version {coming.entry.version} {why}")

    def _shadow(self, served: ServedModel, coming: ModelDaemon) -> None:
        """Have both versions compute, and the old one answer, until enough frames are compared; then switch."""
        assert served.daemon is not None
        assert served.daemon.line is not None

        def heard(said: Fields) -> None:
            if coming is not served.coming:
                return  # it has ended meanwhile; `_ended` has reported that
            trouble = refusal(said)
            if trouble is not None:
                self._send_back(served, coming, f"could not be compared: {trouble}")
                return
            ends, entry = said["shadow"], coming.entry
            served.shadowed = {"shadow": ends}
            compared = event_log.ModelShadowed(model=entry.name, version=entry.version, **ends)
            self.journal.write(compared, "the daemon before")
            if ends["failed"]:
                self._send_back(served, coming, f"failed on a frame: {ends['reason']}")
            elif not ends["compared"]:
                self._send_back(served, coming, f"was not compared: {ends['reason'] or 'no frame came'}")
            else:
                self._switch(served, coming)

        served.daemon.line.ask("shadow", heard, endpoint=coming.endpoint, frames=served.shadow)

    def _switch(self, served: ServedModel, coming: ModelDaemon) -> None:
        """Send requests to `coming` from now on; the old daemon answers what it has, and sends its clients away."""
        old = served.daemon
        served.previous, served.entry = served.entry, coming.entry
        served.daemon, served.coming, served.seen = coming, None, None
        entry, before = served.entry, served.previous
        assert old is not None
        if old.line is not None:
            served.leaving[old] = math.inf
            old.send_away()
        replaced = event_log.ModelReplaced(model=entry.name, version=entry.version, before=before.version)
        self.journal.write(replaced, "a client")
        self._models_changed()
        self._tell(served, None)

    def _see_off(self, served: ServedModel, now_s: float) -> None:
        """End replaced daemons at which nothing has been in flight for `_QUIET_S`."""
        for daemon, quiet_s in list(served.leaving.items()):
            if daemon.line is None or quiet_s == -math.inf:
                continue
            if self.front.in_flight_at(daemon.endpoint):
                served.leaving[daemon] = math.inf
            elif now_s > quiet_s + _QUIET_S:
                served.leaving[daemon] = -math.inf
                daemon.terminate()
            else:
                daemon.line.ask("status", lambda said, daemon=daemon: self._note_quiet(served, daemon, said))  # type: ignore[misc]

    def _note_quiet(self, served: ServedModel, daemon: ModelDaemon, said: Fields) -> None:
        if "status" in said and served.leaving.get(daemon, -math.inf) > -math.inf:
            busy = said["status"]["frames"]["in_flight"]
            served.leaving[daemon] = math.inf if busy else min(served.leaving[daemon], time.monotonic())

    def _tell(self, served: ServedModel, trouble: str | None) -> None:
        waiting, served.then = served.then, []
        for then in waiting:
            then(trouble)

    # --- dealing ----------------------------------------------------------------------------------------------

    def _heard(self, served: ServedModel, said: Fields) -> None:
        """Derive a daemon's load from its status, and report it to the dealer."""
        if "status" not in said or served.entry.name not in self._dealer.models:
            return  # it has just ended, or is not to be taken over
        served.said = status = said["status"]
        frames = status["frames"]
        seen = _Seen(time.monotonic(), frames["busy_s"], frames["answered"].get(Code.RESOURCE_EXHAUSTED.value, 0))
        if served.seen is not None and served.serves:
            seconds, refused = seen.at_s - served.seen.at_s, seen.refused - served.seen.refused
            busy_places = (seen.busy_s - served.seen.busy_s) / seconds * _places_a_team(status)
            self._deal(de.LoadSeen(served.entry.name, busy_places, frames["in_flight"], refused))
        served.seen = seen
        daemon = served.daemon
        if daemon is not None and daemon.line is not None:
            daemon.line.ask("model_statistics", lambda said: self._note_statistics(served, said))
            self._release_further(daemon, status)
            self._tell_crowded(daemon)

    def _tell_crowded(self, daemon: ModelDaemon) -> None:
        """Report where other models compute too, so that the tuner does not mistake that for a slow machine."""
        crowded = self._dealer.crowded(daemon.entry.name)
        if daemon.line is not None and crowded != daemon.crowded:
            daemon.crowded = crowded
            daemon.line.ask("crowded", lambda _: None, places=crowded)

    def _note_statistics(self, served: ServedModel, said: Fields) -> None:
        served.statistics = said.get("model_stats", served.statistics)

    def _deal(self, event: de.DealerEvent) -> None:
        """Hand an event to the dealer, and carry out its instructions."""
        for instruction in self._dealer.handle(event, time.monotonic()):
            match instruction:
                case de.BeginModel(model, places):
                    self._begin(model, places)
                case de.Take(model, place):
                    if (daemon := self.models[model].daemon) is not None:
                        self._tell_crowded(daemon)
                    self._move(model, place, de.PlaceTaken(model, place), up=True)
                case de.Release(model, place):
                    self._move(model, place, de.PlaceGivenBack(model, place), down=True)

    def _move(self, model: str, place: str, done: de.PlaceTaken | de.PlaceGivenBack, **how: bool) -> None:
        served = self.models[model]
        line = None if served.daemon is None or served.coming is not None else served.daemon.line
        if line is None:  # its daemon is not there, or is about to be another
            self._not_moved.append(de.NotMoved(model, place))
            return

        def then(said: Fields) -> None:
            dealt = self._dealer.models.get(model)
            if dealt is None or place not in (dealt.taking if "up" in how else dealt.releasing):
                return  # the move has been ended meanwhile
            if refusal(said) is not None or said.get("state") != ("up" if "up" in how else "down"):
                self._not_moved.append(de.NotMoved(model, place))  # it may be tried again, but not at once
                return
            kind = event_log.PlaceDealt if "up" in how else event_log.PlaceTakenBack
            self.journal.write(kind(model=model, place=place), "the dealer")
            self._deal(done)

        line.ask("place_set", then, place=place, **how)

    def _end_moves(self, model: str) -> None:
        """The daemon that was to move places is gone, or is about to be replaced by one on the places that stay."""
        dealt = self._dealer.models.get(model)
        if dealt is not None:
            for place in sorted(dealt.taking):
                self._deal(de.NotMoved(model, place))
            for place in sorted(dealt.releasing):
                self._deal(de.PlaceGivenBack(model, place))

    def _release_further(self, daemon: ModelDaemon, status: Fields) -> None:
        """Have the daemon give up places that the dealer has not dealt to it, as after a move that has been ended."""
        dealt = self._dealer.models[daemon.entry.name]
        for place in status["places"]:
            if place["available"] and place["name"] not in dealt.all and daemon.line is not None:
                daemon.line.ask("place_set", lambda _: None, place=place["name"], down=True)

    # --- the end ----------------------------------------------------------------------------------------------

    def _end_daemons(self) -> None:
        """End all daemons. Each drains first, so requests that clients sent to it directly are answered."""
        self._stop_at_s = min(self._stop_at_s, time.monotonic())
        until_s = time.monotonic() + _ENDS_WITHIN_S
        for daemon in self._all():
            daemon.terminate()
        while self._all() and time.monotonic() < until_s:
            for event in self._poller.poll(LOOK_EVERY_S):
                match event:
                    case DaemonEnded(daemon):
                        self._ended(self.models[daemon.entry.name], daemon, event, time.monotonic())
                    case (Message() as message, RequestRoute() as route):
                        self._arrived(message, route, time.monotonic())  # which refuses it
                    case Signalled(read_again=False):
                        until_s = 0.0
            self.front.tend(time.monotonic())
        for daemon in self._all():
            daemon.terminate(signal.SIGKILL)
            daemon.close()
        self.front.outbox.flush(math.inf)
        self.front.socket.setsockopt(zmq.LINGER, 1000)

    def _all(self) -> list[ModelDaemon]:
        return [daemon for served in self.models.values() for daemon in served.daemons]


def _places_a_team(status: Fields) -> float:
    """Mean number of places in a team of the live plan."""
    teams = [len(team["places"]) for stage in status["plan"]["stages"] for team in stage["teams"]]
    return sum(teams) / len(teams) if teams else 1.0


def _next_version(version: str) -> str:
    return str(int(version) + 1) if version.isdecimal() else f"{version}.1"


def _weight_bytes(path: Path) -> int:
    """Bytes of a model's file, and of the files beside it that it names: its external data."""
    size_bytes = path.stat().st_size
    if size_bytes > _LARGE_BYTES:
        return size_bytes
    content = path.read_bytes()
    beside = (other for other in path.parent.iterdir() if other != path and other.name.encode() in content)
    return size_bytes + sum(other.stat().st_size for other in beside if other.is_file())


def _check_room(entry: ModelEntry) -> None:
    """Raises `ShishaError` if memory does not suffice for one more daemon with this model's weights."""
    path = Path(entry.settings.model)
    if entry.settings.model.startswith("zoo:"):
        return
    if not path.is_file():
        raise error_for(Error.LOAD_FAILED, f"{path}: there is no such file; expected an ONNX file, or zoo:NAME")
    needed = _PROCESS_BYTES + _WEIGHT_COPIES * _weight_bytes(path)
    free = available_memory_bytes()
    if needed > free:
        raise error_for(
            Error.LOAD_FAILED, f"{needed >> 20} MiB are needed for {entry.name!r}, {free >> 20} MiB are free"
        )
