"""All methods except those of inference: each returns the fields of its answer's message, by name, as plain values."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from shisha_rt.http.app_state import Caller, Path
from shisha_rt.http.grpc.infer import given_parameters
from shisha_rt.http.grpc.messages import Method
from shisha_rt.http.inference.about import About, no_cuda, no_logging, no_tracing
from shisha_rt.http.inference.shared_memory import SharedFiles
from shisha_rt.protocol.exceptions import NotFound

AboutAnswer: TypeAlias = Callable[[Any, Caller], Awaitable[Mapping[str, Any]]]
_NEXT_WORD: Final = re.compile(r"(?<=.)(?=[A-Z])")


class GrpcAbout:
    """Has a method for each of the service's, with the same name in snake case."""

    def __init__(self, about: About, files: SharedFiles) -> None:
        self._about = about
        self._files = files

    def answer_of(self, method: Method) -> AboutAnswer:
        answer: AboutAnswer = getattr(self, _NEXT_WORD.sub("_", method.name).lower())
        return answer

    async def server_live(self, _request: Any, _caller: Caller) -> Mapping[str, Any]:
        return {"live": await self._about.live()}

    async def server_ready(self, _request: Any, _caller: Caller) -> Mapping[str, Any]:
        return {"ready": await self._about.ready()}

    async def model_ready(self, request: Any, _caller: Caller) -> Mapping[str, Any]:
        """As with Triton, an unknown model is not ready, which is no error."""
        try:
            return {"ready": await self._about.model_ready(path_of(request.name, request.version))}
        except NotFound:
            return {"ready": False}

    async def server_metadata(self, _request: Any, _caller: Caller) -> Mapping[str, Any]:
        return await self._about.server()

    async def model_metadata(self, request: Any, _caller: Caller) -> Mapping[str, Any]:
        return await self._about.model(path_of(request.name, request.version))

    async def model_config(self, request: Any, _caller: Caller) -> Mapping[str, Any]:
        return {"config": await self._about.config(path_of(request.name, request.version))}

    async def model_statistics(self, request: Any, _caller: Caller) -> Mapping[str, Any]:
        return await self._about.statistics(path_of(request.name, request.version) if request.name else {})

    async def repository_index(self, request: Any, _caller: Caller) -> Mapping[str, Any]:
        return {"models": await self._about.index(only_ready=request.ready)}

    async def repository_model_load(self, request: Any, caller: Caller) -> Mapping[str, Any]:
        given = given_parameters(request.parameters)
        if "version" in given:  # it may come as a number
            given["version"] = str(given["version"])
        await self._about.change(caller, "model_load", request.model_name, given)
        return {}

    async def repository_model_unload(self, request: Any, caller: Caller) -> Mapping[str, Any]:
        await self._about.change(caller, "model_unload", request.model_name, {})
        return {}

    async def system_shared_memory_status(self, request: Any, caller: Caller) -> Mapping[str, Any]:
        named = [self._files.named(caller, request.name)] if request.name else self._files.of(caller).values()
        return {"regions": {region.name: region.about for region in named}}

    async def system_shared_memory_register(self, request: Any, caller: Caller) -> Mapping[str, Any]:
        self._files.register(caller, request.name, request.key, request.offset, request.byte_size)
        return {}

    async def system_shared_memory_unregister(self, request: Any, caller: Caller) -> Mapping[str, Any]:
        self._files.unregister(caller, request.name or None)
        return {}

    async def cuda_shared_memory_status(self, _request: Any, _caller: Caller) -> Mapping[str, Any]:
        return {}

    async def cuda_shared_memory_register(self, _request: Any, _caller: Caller) -> Mapping[str, Any]:
        raise no_cuda()

    async def cuda_shared_memory_unregister(self, _request: Any, _caller: Caller) -> Mapping[str, Any]:
        return {}

    async def trace_setting(self, _request: Any, _caller: Caller) -> Mapping[str, Any]:
        raise no_tracing()

    async def log_settings(self, _request: Any, _caller: Caller) -> Mapping[str, Any]:
        raise no_logging()


def path_of(model: str, version: str) -> Path:
    """The path parameters that HTTP would have: a model, and its version if one is asked for."""
    return {"model": model} | ({"version": version} if version else {})
