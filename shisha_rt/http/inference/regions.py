"""The routes of shared memory: of regions of files (system), and of graphics cards (CUDA), of which there are none."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from shisha_rt.errors import Error
from shisha_rt.http.app_state import Caller
from shisha_rt.http.faults import HttpFault
from shisha_rt.http.inference.about import json_answer, read_json
from shisha_rt.http.inference.shared_memory import SharedFile, SharedFiles
from shisha_rt.protocol.exceptions import ShishaError, error_for
from shisha_rt.protocol.limits import MAX_INTEGER, MAX_NAME_LENGTH

_Size = Annotated[int, Meta(ge=0, le=MAX_INTEGER)]


class _RegisterAsked(msgspec.Struct, frozen=True):
    key: Annotated[str, Meta(max_length=MAX_NAME_LENGTH)]
    byte_size: _Size
    offset: _Size = 0


class SharedMemoryRoutes:
    """The routes. `files` None: shared memory is off, and whoever makes sure that nothing is registered is told so."""

    def __init__(self, files: SharedFiles | None) -> None:
        self._files = files

    async def status(self, request: Request) -> Response:
        name = request.path_params.get("region")
        regions = {} if self._files is None else self._files.of(_caller(request))
        if name is None:
            return json_answer([_told(region) for region in regions.values()])
        if name not in regions:
            raise _no_region(name)
        return json_answer([_told(regions[name])])

    async def register(self, request: Request) -> Response:
        name = request.path_params["region"]
        asked = await read_json(request, _RegisterAsked)
        if len(name) > MAX_NAME_LENGTH:
            raise error_for(
                Error.MALFORMED_REQUEST,
                f"the region's name has {len(name)} characters; expected at most {MAX_NAME_LENGTH}",
            )
        if self._files is None:
            raise error_for(Error.SHARING_OFF, "shared memory over HTTP is off; expected: serve --http-shared-memory")
        self._files.register(_caller(request), name, asked.key, asked.offset, asked.byte_size)
        return json_answer({})

    async def unregister(self, request: Request) -> Response:
        """One, or all of the caller's. It is no error if there is none."""
        if self._files is not None:
            self._files.unregister(_caller(request), request.path_params.get("region"))
        return json_answer({})

    async def no_cuda_status(self, request: Request) -> Response:
        name = request.path_params.get("region")
        if name is not None:
            raise _no_region(name)
        return json_answer([])

    async def no_cuda_register(self, _: Request) -> Response:
        raise HttpFault(501, "there is no CUDA shared memory; expected system shared memory, or bytes")

    async def no_cuda_unregister(self, _: Request) -> Response:
        return json_answer({})


def _caller(request: Request) -> Caller:
    caller: Caller = request.scope["caller"]
    return caller


def _told(region: SharedFile) -> dict[str, object]:
    return {"name": region.name, "key": region.key, "offset": region.offset, "byte_size": region.size_bytes}


def _no_region(name: str) -> ShishaError:
    return error_for(Error.REGION_NOT_REGISTERED, f"shared memory region {name!r} is not registered")
