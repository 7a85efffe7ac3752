"""What all routes of the HTTP process share: clients of the daemon, the allow-list, and counts for metrics."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from shisha_rt.client import AsyncClient
from shisha_rt.daemon.front.http_messages import HttpCounted, Keys, ServeHttp
from shisha_rt.endpoint import submit_command
from shisha_rt.errors import Error
from shisha_rt.http.page.sessions import Sessions
from shisha_rt.http.page.watching import Watching
from shisha_rt.process.shared_flag import SharedFlag
from shisha_rt.protocol.access import AccessList, Permission
from shisha_rt.protocol.exceptions import error_for, unknown_model
from shisha_rt.protocol.keys import KeyPair
from shisha_rt.protocol.signature import Signature

_SILENCE_S: Final = 30.0
"""A daemon that is silent for this long counts as lost, as a frame without a deadline would otherwise wait for ever.
However many frames wait, the daemon's loop answers a probe at once, or within a few seconds on overloaded cores.
"""

Path: TypeAlias = Mapping[str, str]
"""The `model` that a request's path names, and perhaps its `version`."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a request. `name` is "" and `uid` None if the caller was not identified. `way`: http or grpc."""

    name: str
    permission: Permission
    uid: int | None = None
    way: str = "http"


class AppState:
    """`ending` is set when the daemon has given its last answers: background tasks and feeds have to end.

    `users_changed` is set, and replaced by a new event, when the allow-list changes. `models`: names of all models if
    there are several; else None.
    """

    def __init__(self, settings: ServeHttp) -> None:
        self.settings = settings
        self.client = self._link(settings.client_keys)
        self.operator = self._link(settings.operator_keys, share=False)
        self.models = settings.models
        self._clients: dict[str, tuple[AsyncClient, set[asyncio.Task[Any]]]] = {}
        self.users = None if settings.users is None else AccessList(settings.users)
        self.ending = asyncio.Event()
        self.users_changed = asyncio.Event()
        self.sessions = Sessions()
        self.watching = Watching(self.client, submit_command(settings.endpoint))
        self._watchings: dict[str, tuple[Watching, asyncio.Task[None]]] = {}
        self._watchers: asyncio.TaskGroup | None = None
        self._full = None if settings.full is None else SharedFlag(settings.full)
        self._turned_away = 0
        self._by_status: Counter[int] = Counter()
        self._refused: Counter[str] = Counter()
        self._by_code: Counter[str] = Counter()

    def change_models(self, models: tuple[str, ...], loaded: tuple[str, ...]) -> None:
        """Note that `models` are known now, and which of them are `loaded`.

        Stop watching models that are not known any more. Close the clients of models that are not loaded, each as soon
        as no task waits for its answers.
        """
        self.models = models
        for name in self._watchings.keys() - set(models):
            watching, task = self._watchings.pop(name)
            watching.ended.set()
            task.cancel()
        for name in self._clients.keys() - set(loaded):
            assert self._watchers is not None
            self._watchers.create_task(_close_unused(*self._clients.pop(name)))

    def client_of(self, path: Path) -> AsyncClient:
        """The client of the model that a path names; it stays open until the calling task ends. Raises `NotFound`."""
        if self.models is None or "model" not in path:
            return self.client
        client, users = self._linked(path["model"])
        user = asyncio.current_task()
        if user is not None and user not in users:
            _add_until_done(users, user)
        return client

    async def model_of(self, path: Path, timeout_s: float | None = None) -> tuple[AsyncClient, Signature]:
        """The client of the model that a path names, and its signature. Raises `NotFound` and `Unavailable`."""
        client = self.client_of(path)
        signature = await client.signature(timeout_s=timeout_s)
        if path["model"] != signature.model_name:
            raise unknown_model(path["model"], [signature.model_name])
        if path.get("version", signature.version) != signature.version:  # another version may have taken over since
            await client.call("model_metadata", timeout_s=timeout_s)
            signature = await client.signature(timeout_s=timeout_s)
        check_version(path, signature.version)
        return client, signature

    async def watch(self) -> None:
        """Watch the daemon until cancelled; with several models, each from its first `watching_of` on."""
        async with asyncio.TaskGroup() as self._watchers:
            if self.models is None:
                self._watchers.create_task(self.watching.run())
            await asyncio.Event().wait()

    def watching_of(self, model: str | None) -> Watching:
        """What the pages of a model show; None: of the only model. Raises `NotFound` for an unknown model."""
        if model is None:
            return self.watching
        if model not in self._watchings:
            assert self._watchers is not None
            client, users = self._linked(model)
            watching = Watching(client, submit_command(self.settings.endpoint, model))
            self._watchings[model] = watching, self._watchers.create_task(watching.run())
            _add_until_done(users, self._watchings[model][1])
        return self._watchings[model][0]

    @property
    def feeds(self) -> int:
        """Pages that are open."""
        return self.watching.feeds + sum(watching.feeds for watching, _ in self._watchings.values())

    def change_users(self, users: AccessList) -> None:
        self.users = users
        self.users_changed.set()
        self.users_changed = asyncio.Event()

    def count(self, status: int) -> None:
        self._by_status[status] += 1

    def count_rpc(self, code: str) -> None:
        self._by_code[code] += 1

    def refuse(self, reason: str) -> None:
        """Count a refused caller. `reason` begins with the protocol (`http_`, `grpc_`), except on the page's routes."""
        self._refused[reason] += 1

    def refuse_if_full(self) -> None:
        """Raise `ResourceExhausted` while the daemon refuses every frame, so that the body need not be read."""
        if self._full is not None and self._full.is_set:
            self._turned_away += 1
            raise error_for(Error.TOO_MANY_FRAMES, "as many frames are in flight, or wait, as are admitted")

    def counted(self) -> HttpCounted | None:
        """What was counted since the last call; None if nothing."""
        counters = self._by_status, self._refused, self._by_code
        if not any(counters):
            return None
        counted = HttpCounted(dict(self._by_status), dict(self._refused), dict(self._by_code), self._turned_away)
        self._turned_away = 0
        for counter in counters:
            counter.clear()
        return counted

    async def close(self) -> None:
        for client in (self.client, self.operator, *(client for client, _ in self._clients.values())):
            await client.close()

    def _linked(self, name: str) -> tuple[AsyncClient, set[asyncio.Task[Any]]]:
        """The client of one of several models, and the tasks that use it. Raises `NotFound`."""
        assert self.models is not None
        if name not in self.models:
            raise unknown_model(name, self.models)
        if name not in self._clients:
            self._clients[name] = self._link(self.settings.client_keys, model=name), set()
        return self._clients[name]

    def _link(self, keys: Keys | None, **options: Any) -> AsyncClient:
        if keys is not None:
            options |= {"secret_key": KeyPair(keys.public, keys.secret), "server_key": keys.server}
        return AsyncClient(self.settings.endpoint, silence_s=_SILENCE_S, **options)


def check_version(path: Path, version: str) -> None:
    """Raises `NotFound` if the path names another version than the one that serves."""
    if path.get("version", version) != version:
        other = f"model {path['model']!r} has no version {path['version']!r}; expected {version}"
        raise error_for(Error.UNKNOWN_MODEL, other)


def _add_until_done(users: set[asyncio.Task[Any]], user: asyncio.Task[Any]) -> None:
    users.add(user)
    user.add_done_callback(users.discard)


async def _close_unused(client: AsyncClient, users: set[asyncio.Task[Any]]) -> None:
    try:
        while users:
            await asyncio.wait(users)
    finally:
        await client.close()
