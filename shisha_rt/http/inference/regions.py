"""The routes for shared-memory regions: of files ("system"), and of graphics cards (CUDA), which are not offered."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from shisha_rt.errors import Error
from shisha_rt.http.app_state import Caller
from shisha_rt.http.inference.about_routes import json_answer, read_json
from shisha_rt.http.inference.shared_memory import SharedFile, SharedFiles
from shisha_rt.protocol.exceptions import ShishaError, error_for
from shisha_rt.protocol.limits import MAX_INTEGER, MAX_NAME_LENGTH

_Size = Annotated[int, Meta(ge=0, le=MAX_INTEGER)]


class _RegisterAsked(msgspec.Struct, frozen=True):
    key: Annotated[str, Meta(max_length=MAX_NAME_LENGTH)]
    byte_size: _Size
    offset: _Size = 0


class SharedMemoryRoutes:
    """The routes. With shared memory off there are no regions, and unregistering one succeeds."""

    def __init__(self, files: SharedFiles) -> None:
        self._files = files

    async def status(self, request: Request) -> Response:
        name, caller = request.path_params.get("region"), _caller(request)
        regions = self._files.of(caller).values() if name is None else [self._files.named(caller, name)]
        return json_answer([told_region(region) for region in regions])

    async def register(self, request: Request) -> Response:
        asked = await read_json(request, _RegisterAsked)
        name = request.path_params["region"]
        self._files.register(_caller(request), name, asked.key, asked.offset, asked.byte_size)
        return json_answer({})

    async def unregister(self, request: Request) -> Response:
        """One, or all of the caller's. It is no error if there is none."""
        self._files.unregister(_caller(request), request.path_params.get("region"))
        return json_answer({})

    async def no_cuda_status(self, request: Request) -> Response:
        name = request.path_params.get("region")
        if name is not None:
            raise error_for(Error.REGION_NOT_REGISTERED, f"shared memory region {name!r} is not registered")
        return json_answer([])

    async def no_cuda_register(self, _: Request) -> Response:
        raise no_cuda()

    async def no_cuda_unregister(self, _: Request) -> Response:
        return json_answer({})


def no_cuda() -> ShishaError:
    return error_for(Error.NOT_OFFERED, "there is no CUDA shared memory; expected system shared memory, or bytes")


def told_region(region: SharedFile) -> dict[str, object]:
    return {"name": region.name, "key": region.key, "offset": region.offset, "byte_size": region.size_bytes}


def _caller(request: Request) -> Caller:
    caller: Caller = request.scope["caller"]
    return caller
