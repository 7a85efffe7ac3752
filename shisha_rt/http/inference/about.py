"""What the protocol asks of a server beside inference: health, metadata, configuration, statistics, the repository; and
what there is none of here (loading models, tracing, logging), told in the form that clients expect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from shisha_rt.errors import Error
from shisha_rt.http.app_state import AppState
from shisha_rt.http.faults import HttpFault
from shisha_rt.http.inference.body import Body
from shisha_rt.http.inference.names import check_path
from shisha_rt.model.graph import Tensor
from shisha_rt.protocol.exceptions import ShishaError, error_for
from shisha_rt.protocol.request import Signature

PATIENCE_S: Final = 5.0
"""With the daemon, which answers such questions at once; one that is not there may be back soon."""
MOST_BYTES: Final = 64 << 10
"""Of a request that is not for inference."""
_LOADS_WITHIN_S: Final = 600.0
"""A model may be compiled first."""
_EXTENSIONS: Final = (
    "binary_tensor_data",
    "classification",
    "parameters",
    "model_configuration",
    "model_repository",
    "statistics",
    "streams",
)


_ENDS: Final = ("inputs", "outputs")
_Asked = TypeVar("_Asked")


class _LoadParameters(msgspec.Struct, frozen=True):
    model: str | None = None
    version: str | None = None
    shadow: int = 0


class _LoadAsked(msgspec.Struct, frozen=True):
    parameters: _LoadParameters = _LoadParameters()


class _IndexAsked(msgspec.Struct, frozen=True):
    ready: bool = False


class About:
    """The routes."""

    def __init__(self, app_state: AppState) -> None:
        self._app_state = app_state

    async def server(self, _: Request) -> Response:
        metadata = await self._ask("server_metadata")
        shared = ("system_shared_memory",) if self._app_state.settings.shared_memory else ()
        return json_answer(
            {"name": metadata["name"], "version": metadata["version"], "extensions": [*_EXTENSIONS, *shared]}
        )

    async def live(self, _: Request) -> Response:
        return await self._health("server_live", "live")

    async def ready(self, _: Request) -> Response:
        return await self._health("server_ready", "ready")

    async def model(self, request: Request) -> Response:
        signature = await self._check(request)
        metadata = await self._ask("model_metadata", request)
        if signature.has_batches:  # as Triton: the axis of frames is open
            ends = {ends: [end | {"shape": [-1, *end["shape"][1:]]} for end in metadata[ends]] for ends in _ENDS}
            metadata |= ends
        return json_answer(metadata)

    async def model_ready(self, request: Request) -> Response:
        await self._check(request)
        return await self._health("model_ready", "ready", request)

    async def config(self, request: Request) -> Response:
        signature = await self._check(request)
        metadata = await self._ask("model_metadata", request)
        return json_answer(_config(signature, metadata["platform"]))

    async def statistics(self, request: Request) -> Response:
        """Statistics of the model, or of all models."""
        if "model" in request.path_params:
            await self._check(request)
        statistics = (await self._ask("model_statistics", request))["model_stats"]
        return json_answer({"model_stats": statistics})

    async def index(self, request: Request) -> Response:
        """The repository: all models. With `{"ready":true}` only those that are ready."""
        asked = await read_json(request, _IndexAsked)
        models = (await self._app_state.client.call("repository_index", ready=asked.ready, timeout_s=PATIENCE_S))[
            "models"
        ]
        return json_answer(models)

    async def load(self, request: Request) -> Response:
        """Load a model that is known, or its newest version; or the file that the parameter `model` names."""
        asked = await read_json(request, _LoadAsked)
        given = asked.parameters
        wanted = {"model": given.model, "version": given.version, "shadow": given.shadow or None}
        return await self._change(request, "model_load", {k: v for k, v in wanted.items() if v is not None})

    async def unload(self, request: Request) -> Response:
        await read_json(request, dict[str, Any])
        return await self._change(request, "model_unload", {})

    async def _change(self, request: Request, op: str, arguments: Mapping[str, object]) -> Response:
        if not request.scope["caller"].permission.may(op):
            self._app_state.refuse("permission")
            raise HttpFault(403, f"{op}: expected the token of an operator")
        name = request.path_params["model"]
        answer = await self._app_state.operator.call(op, timeout_s=_LOADS_WITHIN_S, model_name=name, **arguments)
        return json_answer({key: value for key, value in answer.items() if key == "shadow"})

    async def no_tracing(self, _: Request) -> Response:
        raise HttpFault(501, "there are no trace settings; what the daemon does is told by its events and metrics")

    async def no_logging(self, _: Request) -> Response:
        raise HttpFault(501, "there are no log settings")

    async def _health(self, op: str, field: str, request: Request | None = None) -> Response:
        """Answer a health question by the status: 200 for yes. A daemon that does not answer counts as not there."""
        try:
            is_so = bool((await self._ask(op, request))[field])
        except ShishaError:
            is_so = False
        return json_answer({field: is_so}, 200 if is_so else 503)

    async def _check(self, request: Request) -> Signature:
        signature = await self._app_state.client_of(request.path_params).signature(timeout_s=PATIENCE_S)
        check_path(request.path_params, signature)
        return signature

    async def _ask(self, op: str, request: Request | None = None) -> dict[str, Any]:
        """Ask the daemon of the model that the request's path names, or of all."""
        client = self._app_state.client if request is None else self._app_state.client_of(request.path_params)
        return await client.call(op, timeout_s=PATIENCE_S)


def json_answer(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


async def read_json(request: Request, kind: type[_Asked]) -> _Asked:
    """The body of a small request; an empty one is `{}`. Raises `InvalidArgument` and HttpFault."""
    headers: Mapping[bytes, bytes] = request.scope["headers_by_name"]
    data = await Body(request.scope, request.receive, headers.get(b"content-encoding"), None).whole(MOST_BYTES)
    try:
        return msgspec.json.decode(data or b"{}", type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise error_for(Error.MALFORMED_REQUEST, f"the request's JSON: {str(error).partition(chr(10))[0]}") from None


def _config(signature: Signature, platform: str) -> Mapping[str, object]:
    """The model's configuration, in the form of Triton's.

    Where requests may have several frames the first axis of a tensor, of one for each, is no size of its own.
    """
    batched = signature.has_batches
    return {
        "name": signature.model_name,
        "platform": platform,
        "backend": "shisha-rt",
        "version_policy": {"latest": {"num_versions": 1}},
        "max_batch_size": signature.most_frames if batched else 0,
        "input": [_tensor(tensor, batched) | {"format": "FORMAT_NONE"} for tensor in signature.inputs],
        "output": [_tensor(output, batched) | {"label_filename": ""} for output in signature.outputs],
        "instance_group": [],
        "default_model_filename": "model.onnx",
        "parameters": {},
        "model_warmup": [],
    }


def _tensor(tensor: Tensor, batched: bool) -> dict[str, object]:
    """Metadata of a tensor, with -1 for each size that varies.

    No model here has Triton's TYPE_STRING, which differs.
    """
    dims = [-1 if axis in tensor.open_axes else size for axis, size in enumerate(tensor.shape)]
    return {"name": tensor.name, "data_type": f"TYPE_{tensor.datatype}", "dims": dims[batched:]}
