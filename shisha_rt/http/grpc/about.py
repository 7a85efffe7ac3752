"""All methods except those of inference: each returns the fields of its answer's message, by name, as plain values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from shisha_rt.errors import Error
from shisha_rt.http.app_state import Caller, Path
from shisha_rt.http.grpc.infer import given_parameters
from shisha_rt.http.inference.about import NO_CUDA, NO_LOGGING, NO_TRACING, About
from shisha_rt.http.inference.shared_memory import SharedFiles
from shisha_rt.protocol.exceptions import NotFound, error_for

AboutAnswer: TypeAlias = Callable[[Any, Caller], Awaitable[Mapping[str, Any]]]


def about_answers(about: About, files: SharedFiles) -> Mapping[str, AboutAnswer]:
    """The answers, by the methods' names in the service."""

    async def model_ready(request: Any, _: Caller) -> Mapping[str, Any]:
        """As with Triton, an unknown model is not ready, which is no error."""
        try:
            return {"ready": await about.model_ready(path_of(request.name, request.version))}
        except NotFound:
            return {"ready": False}

    async def statistics(request: Any, _: Caller) -> Mapping[str, Any]:
        return await about.statistics(path_of(request.name, request.version) if request.name else {})

    async def load(request: Any, caller: Caller) -> Mapping[str, Any]:
        given = given_parameters(request.parameters)
        if "version" in given:  # it may come as a number
            given["version"] = str(given["version"])
        return await about.change(caller, "model_load", request.model_name, given)

    return {
        "ServerLive": lambda *_: _field("live", about.live()),
        "ServerReady": lambda *_: _field("ready", about.ready()),
        "ModelReady": model_ready,
        "ServerMetadata": lambda *_: about.server(),
        "ModelMetadata": lambda asked, _: about.model(path_of(asked.name, asked.version)),
        "ModelConfig": lambda asked, _: _field("config", about.config(path_of(asked.name, asked.version))),
        "ModelStatistics": statistics,
        "RepositoryIndex": lambda asked, _: _field("models", about.index(only_ready=asked.ready)),
        "RepositoryModelLoad": load,
        "RepositoryModelUnload": lambda asked, caller: about.change(caller, "model_unload", asked.model_name, {}),
        "TraceSetting": _refusing(NO_TRACING),
        "LogSettings": _refusing(NO_LOGGING),
        **_region_answers(files),
    }


def _region_answers(files: SharedFiles) -> Mapping[str, AboutAnswer]:
    async def regions(request: Any, caller: Caller) -> Mapping[str, Any]:
        named = [files.named(caller, request.name)] if request.name else files.of(caller).values()
        return {"regions": {region.name: region.about for region in named}}

    async def register(request: Any, caller: Caller) -> Mapping[str, Any]:
        files.register(caller, request.name, request.key, request.offset, request.byte_size)
        return {}

    async def unregister(request: Any, caller: Caller) -> Mapping[str, Any]:
        files.unregister(caller, request.name or None)
        return {}

    async def nothing(_: Any, __: Caller) -> Mapping[str, Any]:
        return {}

    return {
        "SystemSharedMemoryStatus": regions,
        "SystemSharedMemoryRegister": register,
        "SystemSharedMemoryUnregister": unregister,
        "CudaSharedMemoryStatus": nothing,
        "CudaSharedMemoryRegister": _refusing(NO_CUDA),
        "CudaSharedMemoryUnregister": nothing,
    }


async def _field(name: str, value: Awaitable[object]) -> Mapping[str, Any]:
    return {name: await value}


def _refusing(why: str) -> AboutAnswer:
    async def refuse(_: Any, __: Caller) -> Mapping[str, Any]:
        raise error_for(Error.NOT_OFFERED, why)

    return refuse


def path_of(model: str, version: str) -> Path:
    """The path parameters that HTTP would have: a model, and its version if one is asked for."""
    return {"model": model} | ({"version": version} if version else {})
