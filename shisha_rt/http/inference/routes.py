"""Every route of the protocol: inference, and the others, which have JSON in and out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from shisha_rt.errors import Error
from shisha_rt.http.app_state import AppState, Caller, Path
from shisha_rt.http.exchange import Exchange
from shisha_rt.http.inference.about import NO_CUDA, NO_LOGGING, NO_TRACING, About
from shisha_rt.http.inference.body import read_json
from shisha_rt.http.inference.infer import Infer
from shisha_rt.http.inference.inferences import Inferences
from shisha_rt.http.inference.shared_memory import SharedFiles
from shisha_rt.http.routing import Handler, HttpReply, HttpRoute, json_reply
from shisha_rt.protocol.exceptions import error_for
from shisha_rt.protocol.limits import MAX_NAME_LENGTH
from shisha_rt.protocol.operations import Count

_MODEL: Final = "/v2/models/{model}(?:/versions/{version})?"


class _LoadAsked(msgspec.Struct, frozen=True):
    parameters: dict[str, Any] | None = None


class _IndexAsked(msgspec.Struct, frozen=True):
    ready: bool | None = None


class _RegisterAsked(msgspec.Struct, frozen=True):
    key: Annotated[str, Meta(max_length=MAX_NAME_LENGTH)]
    byte_size: Count
    offset: Count | None = None


def inference_routes(app_state: AppState, inferences: Inferences) -> Sequence[HttpRoute]:
    about = About(app_state)
    return [
        HttpRoute(f"{_MODEL}/infer", Infer(app_state, inferences), "POST"),
        HttpRoute("/v2/health/live", _health("live", lambda _: about.live())),
        HttpRoute("/v2/health/ready", _health("ready", lambda _: about.ready())),
        HttpRoute("/v2/models/stats", _tell(about.statistics)),
        HttpRoute(f"{_MODEL}/ready", _health("ready", about.model_ready)),
        HttpRoute(f"{_MODEL}/config", _tell(about.config)),
        HttpRoute(f"{_MODEL}/stats", _tell(about.statistics)),
        HttpRoute(_MODEL, _tell(about.model)),
        HttpRoute("/v2", _tell(lambda _: about.server())),
        HttpRoute("/v2(?:/models/{model})?/trace/setting", _refuse(NO_TRACING), "GET", "POST"),
        HttpRoute("/v2/logging", _refuse(NO_LOGGING), "GET", "POST"),
        *_repository_routes(about),
        *_region_routes("/v2/systemsharedmemory", inferences.files, _register(inferences.files)),
        *_region_routes(
            "/v2/cudasharedmemory", SharedFiles(None), _refuse(NO_CUDA)
        ),  # of graphics cards: there are none
    ]


def _tell(ask: Callable[[Path], Awaitable[object]]) -> Handler:
    async def handle(_exchange: Exchange, _caller: Caller | None, path: Path) -> HttpReply:
        return json_reply(await ask(path))

    return handle


def _health(field: str, ask: Callable[[Path], Awaitable[bool]]) -> Handler:
    """The status says the same as the body, which names the model: 200 for yes, 503 for no."""

    async def handle(_exchange: Exchange, _caller: Caller | None, path: Path) -> HttpReply:
        is_so = await ask(path)
        named = {"name": path["model"]} if path else {}
        return json_reply({**named, field: is_so}, 200 if is_so else 503)

    return handle


def _refuse(why: str) -> Handler:
    async def handle(_exchange: Exchange, _caller: Caller | None, _path: Path) -> HttpReply:
        raise error_for(Error.NOT_OFFERED, why)

    return handle


def _repository_routes(about: About) -> Sequence[HttpRoute]:
    async def index(exchange: Exchange, _: Caller | None, __: Path) -> HttpReply:
        """The repository: all models. With `{"ready":true}` only those that are ready."""
        asked = await read_json(exchange, _IndexAsked)
        return json_reply(await about.index(only_ready=bool(asked.ready)))

    async def load(exchange: Exchange, caller: Caller | None, path: Path) -> HttpReply:
        """Load the newest version of a known model, or the file that the parameter `model` names."""
        asked = await read_json(exchange, _LoadAsked)
        return json_reply(await about.change(_known(caller), "model_load", path["model"], asked.parameters or {}))

    async def unload(exchange: Exchange, caller: Caller | None, path: Path) -> HttpReply:
        await read_json(exchange, dict[str, Any])
        return json_reply(await about.change(_known(caller), "model_unload", path["model"], {}))

    return [
        HttpRoute("/v2/repository/index", index, "POST"),
        HttpRoute("/v2/repository/models/{model}/load", load, "POST"),
        HttpRoute("/v2/repository/models/{model}/unload", unload, "POST"),
    ]


def _region_routes(kind: str, files: SharedFiles, register: Handler) -> Sequence[HttpRoute]:
    """Regions of shared memory. Where it is off there are none, and unregistering one succeeds."""

    async def status(_: Exchange, caller: Caller | None, path: Path) -> HttpReply:
        name = path.get("region")
        regions = files.of(_known(caller)).values() if name is None else [files.named(_known(caller), name)]
        return json_reply([region.about for region in regions])

    async def unregister(_: Exchange, caller: Caller | None, path: Path) -> HttpReply:
        """One, or all of the caller's. It is no error if there is none."""
        files.unregister(_known(caller), path.get("region"))
        return json_reply({})

    return [
        HttpRoute(f"{kind}(?:/region/{{region}})?/status", status),
        HttpRoute(f"{kind}/region/{{region}}/register", register, "POST"),
        HttpRoute(f"{kind}(?:/region/{{region}})?/unregister", unregister, "POST"),
    ]


def _register(files: SharedFiles) -> Handler:
    async def register(exchange: Exchange, caller: Caller | None, path: Path) -> HttpReply:
        asked = await read_json(exchange, _RegisterAsked)
        files.register(_known(caller), path["region"], asked.key, asked.offset or 0, asked.byte_size)
        return json_reply({})

    return register


def _known(caller: Caller | None) -> Caller:
    assert caller is not None  # only routes of the page are open to unknown callers
    return caller
