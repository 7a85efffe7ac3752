"""The protocol's routes other than inference and shared memory: JSON in, JSON out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from shisha_rt.errors import Error
from shisha_rt.http.asgi import EXCHANGE
from shisha_rt.http.connection import Exchange
from shisha_rt.http.inference.about import About, no_logging, no_tracing
from shisha_rt.http.inference.body import Body
from shisha_rt.protocol.exceptions import error_for

MOST_BYTES: Final = 64 << 10
"""The largest body of a request other than inference."""
_Asked = TypeVar("_Asked")


class _LoadParameters(msgspec.Struct, frozen=True):
    model: str | None = None
    version: str | None = None
    shadow: int = 0


class _LoadAsked(msgspec.Struct, frozen=True):
    parameters: _LoadParameters = _LoadParameters()


class _IndexAsked(msgspec.Struct, frozen=True):
    ready: bool = False


class AboutRoutes:
    """The routes. The status of a health answer says the same as its body: 200 for yes, 503 for no."""

    def __init__(self, about: About) -> None:
        self._about = about

    async def server(self, _: Request) -> Response:
        return json_answer(await self._about.server())

    async def live(self, _: Request) -> Response:
        return _health("live", await self._about.live())

    async def ready(self, _: Request) -> Response:
        return _health("ready", await self._about.ready())

    async def model_ready(self, request: Request) -> Response:
        return _health("ready", await self._about.model_ready(request.path_params))

    async def model(self, request: Request) -> Response:
        return json_answer(await self._about.model(request.path_params))

    async def config(self, request: Request) -> Response:
        return json_answer(await self._about.config(request.path_params))

    async def statistics(self, request: Request) -> Response:
        return json_answer(await self._about.statistics(request.path_params))

    async def index(self, request: Request) -> Response:
        """The repository: all models. With `{"ready":true}` only those that are ready."""
        asked = await read_json(request, _IndexAsked)
        return json_answer(await self._about.index(only_ready=asked.ready))

    async def load(self, request: Request) -> Response:
        """Load the newest version of a known model, or the file that the parameter `model` names."""
        given = (await read_json(request, _LoadAsked)).parameters
        wanted = {"model": given.model, "version": given.version, "shadow": given.shadow or None}
        return await self._change(request, "model_load", wanted)

    async def unload(self, request: Request) -> Response:
        await read_json(request, dict[str, Any])
        return await self._change(request, "model_unload", {})

    async def _change(self, request: Request, op: str, arguments: Mapping[str, object | None]) -> Response:
        caller, model = request.scope["caller"], request.path_params["model"]
        return json_answer(await self._about.change(caller, op, model, arguments))

    async def never(self, _: Request) -> Response:
        """Inference is taken by `HttpFront`: this route makes other methods end in 405, and paths that are inference's
        only once they are unescaped in 404.
        """
        raise HTTPException(404)

    async def no_tracing(self, _: Request) -> Response:
        raise no_tracing()

    async def no_logging(self, _: Request) -> Response:
        raise no_logging()


def _health(field: str, is_so: bool) -> Response:
    return json_answer({field: is_so}, 200 if is_so else 503)


def json_answer(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


async def read_json(request: Request, kind: type[_Asked]) -> _Asked:
    """Read the body of a small request; an empty one counts as `{}`. Raises `InvalidArgument` and HttpFault."""
    headers: Mapping[bytes, bytes] = request.scope["headers_by_name"]
    exchange: Exchange = request.scope["extensions"][EXCHANGE]
    data = await Body(exchange, headers.get(b"content-encoding"), None).whole(MOST_BYTES)
    try:
        return msgspec.json.decode(data or b"{}", type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise error_for(Error.MALFORMED_REQUEST, f"the request's JSON: {str(error).partition(chr(10))[0]}") from None
