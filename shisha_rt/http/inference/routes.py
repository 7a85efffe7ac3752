"""Every route of the protocol except inference, which bypasses the web framework: JSON in, JSON out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from shisha_rt.errors import Error
from shisha_rt.http.app_state import AppState, Path
from shisha_rt.http.inference.about import About, no_cuda, no_logging, no_tracing
from shisha_rt.http.inference.body import read_json
from shisha_rt.http.inference.shared_memory import SharedFiles
from shisha_rt.protocol.exceptions import ShishaError, error_for
from shisha_rt.protocol.limits import MAX_INTEGER, MAX_NAME_LENGTH

_MODEL: Final = "/v2/models/{model}"
_VERSION: Final = _MODEL + "/versions/{version}"
_SYSTEM: Final = "/v2/systemsharedmemory"
_CUDA: Final = "/v2/cudasharedmemory"
_Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]


class _LoadParameters(msgspec.Struct, frozen=True):
    model: str | None = None
    version: str | None = None
    shadow: int = 0


class _LoadAsked(msgspec.Struct, frozen=True):
    parameters: _LoadParameters = _LoadParameters()


class _IndexAsked(msgspec.Struct, frozen=True):
    ready: bool = False


_Size = Annotated[int, Meta(ge=0, le=MAX_INTEGER)]


class _RegisterAsked(msgspec.Struct, frozen=True):
    key: Annotated[str, Meta(max_length=MAX_NAME_LENGTH)]
    byte_size: _Size
    offset: _Size = 0


def inference_routes(app_state: AppState, files: SharedFiles) -> Sequence[BaseRoute]:
    about = About(app_state)
    return [
        *(Route(f"{model}/infer", _never, methods=["POST"]) for model in (_MODEL, _VERSION)),
        Route("/v2/health/live", partial(_health, "live", lambda _: about.live())),
        Route("/v2/health/ready", partial(_health, "ready", lambda _: about.ready())),
        Route("/v2/models/stats", _tell(about.statistics)),
        *(Route(f"{model}/ready", partial(_health, "ready", about.model_ready)) for model in (_MODEL, _VERSION)),
        *(Route(f"{model}/config", _tell(about.config)) for model in (_MODEL, _VERSION)),
        *(Route(f"{model}/stats", _tell(about.statistics)) for model in (_MODEL, _VERSION)),
        *(Route(model, _tell(about.model)) for model in (_MODEL, _VERSION)),
        Route("/v2", _tell(lambda _: about.server())),
        Route("/v2/trace/setting", _refuse(no_tracing), methods=["GET", "POST"]),
        Route(f"{_MODEL}/trace/setting", _refuse(no_tracing), methods=["GET", "POST"]),
        Route("/v2/logging", _refuse(no_logging), methods=["GET", "POST"]),
        *_repository_routes(about),
        *_region_routes(files),
    ]


def _tell(ask: Callable[[Path], Awaitable[object]]) -> _Endpoint:
    async def endpoint(request: Request) -> Response:
        return json_answer(await ask(request.path_params))

    return endpoint


async def _health(field: str, ask: Callable[[Path], Awaitable[bool]], request: Request) -> Response:
    """The status says the same as the body: 200 for yes, 503 for no."""
    is_so = await ask(request.path_params)
    return json_answer({field: is_so}, 200 if is_so else 503)


def _refuse(make: Callable[[], ShishaError]) -> _Endpoint:
    async def endpoint(_: Request) -> Response:
        raise make()

    return endpoint


async def _never(_: Request) -> Response:
    """Inference is taken by `HttpFront`: this route makes other methods end in 405, and paths that are inference's
    only once they are unescaped in 404.
    """
    raise HTTPException(404)


def _repository_routes(about: About) -> Sequence[BaseRoute]:
    async def index(request: Request) -> Response:
        """The repository: all models. With `{"ready":true}` only those that are ready."""
        asked = await read_json(request.scope["exchange"], _IndexAsked)
        return json_answer(await about.index(only_ready=asked.ready))

    async def load(request: Request) -> Response:
        """Load the newest version of a known model, or the file that the parameter `model` names."""
        given = (await read_json(request.scope["exchange"], _LoadAsked)).parameters
        wanted = {"model": given.model, "version": given.version, "shadow": given.shadow or None}
        return await change(request, "model_load", wanted)

    async def unload(request: Request) -> Response:
        await read_json(request.scope["exchange"], dict[str, Any])
        return await change(request, "model_unload", {})

    async def change(request: Request, op: str, arguments: Mapping[str, object | None]) -> Response:
        caller, model = request.scope["caller"], request.path_params["model"]
        return json_answer(await about.change(caller, op, model, arguments))

    return [
        Route("/v2/repository/index", index, methods=["POST"]),
        Route("/v2/repository/models/{model}/load", load, methods=["POST"]),
        Route("/v2/repository/models/{model}/unload", unload, methods=["POST"]),
    ]


def _region_routes(files: SharedFiles) -> Sequence[BaseRoute]:
    """Regions of shared memory: of files ("system"), and of graphics cards (CUDA), which are not offered.

    With shared memory off there are no regions, and unregistering one succeeds.
    """

    async def status(request: Request) -> Response:
        name, caller = request.path_params.get("region"), request.scope["caller"]
        regions = files.of(caller).values() if name is None else [files.named(caller, name)]
        return json_answer([region.about for region in regions])

    async def register(request: Request) -> Response:
        asked = await read_json(request.scope["exchange"], _RegisterAsked)
        name, caller = request.path_params["region"], request.scope["caller"]
        files.register(caller, name, asked.key, asked.offset, asked.byte_size)
        return json_answer({})

    async def unregister(request: Request) -> Response:
        """One, or all of the caller's. It is no error if there is none."""
        files.unregister(request.scope["caller"], request.path_params.get("region"))
        return json_answer({})

    async def no_cuda_status(request: Request) -> Response:
        name = request.path_params.get("region")
        if name is not None:
            raise error_for(Error.REGION_NOT_REGISTERED, f"shared memory region {name!r} is not registered")
        return json_answer([])

    async def no_cuda_unregister(_: Request) -> Response:
        return json_answer({})

    return [
        route
        for kind, told, begun, ended in (
            (_SYSTEM, status, register, unregister),
            (_CUDA, no_cuda_status, _refuse(no_cuda), no_cuda_unregister),
        )
        for route in (
            Route(f"{kind}/status", told),
            Route(f"{kind}/region/{{region}}/status", told),
            Route(f"{kind}/region/{{region}}/register", begun, methods=["POST"]),
            Route(f"{kind}/region/{{region}}/unregister", ended, methods=["POST"]),
            Route(f"{kind}/unregister", ended, methods=["POST"]),
        )
    ]


def json_answer(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
