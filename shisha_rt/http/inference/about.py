"""The protocol's methods other than inference, for both HTTP and gRPC: health, metadata, configuration, statistics, the
repository; and the errors for those that are not offered (tracing, logging).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from shisha_rt.errors import Error
from shisha_rt.http.app_state import AppState, Caller, Path
from shisha_rt.model.graph import Tensor
from shisha_rt.protocol.exceptions import ShishaError, Unavailable, error_for, malformed
from shisha_rt.protocol.signature import Signature

PATIENCE_S: Final = 5.0
"""Timeout for the daemon's answers: a daemon answers at once, and one that is being restarted may be back in time."""
_LOADS_WITHIN_S: Final = 600.0
"""Timeout of a load, as the model may have to be compiled first."""
_EXTENSIONS: Final = (
    "binary_tensor_data",
    "classification",
    "parameters",
    "model_configuration",
    "model_repository",
    "statistics",
    "streams",
)
_LOAD_PARAMETERS: Final = ("model", "version", "shadow")
NO_TRACING: Final = "there are no trace settings; what the daemon does is told by its events and metrics"
NO_LOGGING: Final = "there are no log settings"
NO_CUDA: Final = "there is no CUDA shared memory; expected system shared memory, or bytes"
_ENDS: Final = ("inputs", "outputs")
_NO_PATH: Final[Path] = {}


class About:
    """The answers, as plain values under the protocol's names."""

    def __init__(self, app_state: AppState) -> None:
        self._app_state = app_state

    async def server(self) -> dict[str, Any]:
        metadata = await self._ask("server_metadata")
        shared = ("system_shared_memory",) if self._app_state.settings.shared_memory else ()
        return {"name": metadata["name"], "version": metadata["version"], "extensions": [*_EXTENSIONS, *shared]}

    async def live(self) -> bool:
        return await self._health("server_live", "live")

    async def ready(self) -> bool:
        return await self._health("server_ready", "ready")

    async def model_ready(self, path: Path) -> bool:
        """Whether the model is ready; False also if it has just been unloaded, or its daemon is not there."""
        try:
            await self._described(path)
        except Unavailable:
            return False
        return await self._health("model_ready", "ready", path)

    async def model(self, path: Path) -> dict[str, Any]:
        metadata, signature = await self._described(path)
        if signature.has_batches:  # as Triton: the axis of frames is open
            ends = {ends: [end | {"shape": [-1, *end["shape"][1:]]} for end in metadata[ends]] for ends in _ENDS}
            metadata |= ends | {"max_batch_size": signature.most_frames}
        return metadata

    async def config(self, path: Path) -> dict[str, Any]:
        metadata, signature = await self._described(path)
        return _config(signature, metadata["platform"])

    async def statistics(self, path: Path) -> dict[str, Any]:
        if path:
            await self._described(path)
        return {"model_stats": (await self._ask("model_statistics", path))["model_stats"]}

    async def index(self, *, only_ready: bool) -> list[dict[str, Any]]:
        answer = await self._app_state.client.call("repository_index", ready=only_ready, timeout_s=PATIENCE_S)
        models: list[dict[str, Any]] = answer["models"]
        return models

    async def change(
        self, caller: Caller, op: str, model: str, parameters: Mapping[str, object | None]
    ) -> dict[str, Any]:
        """Load or unload a model; return its shadow's result, if any.

        Raises `PermissionDenied` for non-operators, and `InvalidArgument` for a parameter that would have no effect,
        such as Triton's `config` and `file:...`.
        """
        if not caller.permission.may(op):
            self._app_state.refuse(f"{caller.way}_permission")
            raise error_for(Error.NOT_AN_OPERATOR, f"{op}: expected the token of an operator")
        given = {name: value for name, value in parameters.items() if value is not None}
        unknown = given.keys() - {*_LOAD_PARAMETERS}
        if unknown:
            expected = " or ".join(_LOAD_PARAMETERS)
            raise malformed(f"{op}: parameter {min(unknown)!r}; expected {expected}")
        answer = await self._app_state.operator.call(op, timeout_s=_LOADS_WITHIN_S, model_name=model, **given)
        return {key: value for key, value in answer.items() if key == "shadow"}

    async def _health(self, op: str, field: str, path: Path = _NO_PATH) -> bool:
        """A field of a health answer; False if the daemon does not answer, or answers with an error."""
        try:
            return bool((await self._ask(op, path))[field])
        except ShishaError:
            return False

    async def _described(self, path: Path) -> tuple[dict[str, Any], Signature]:
        """The metadata of the model's version that serves now, and its signature. Raises `NotFound` and `Unavailable`.

        The client's signature from before may be of a version that does not serve any more, so it is read once more.
        """
        client, _ = await self._app_state.model_of(path, PATIENCE_S)
        metadata = await client.call("model_metadata", timeout_s=PATIENCE_S)
        _, signature = await self._app_state.model_of(path, PATIENCE_S)
        return metadata, signature

    async def _ask(self, op: str, path: Path = _NO_PATH) -> dict[str, Any]:
        """Ask the daemon of the model that `path` names; the public address if it names none."""
        return await self._app_state.client_of(path).call(op, timeout_s=PATIENCE_S)


def _config(signature: Signature, platform: str) -> dict[str, Any]:
    """The configuration in Triton's form: if requests may have several frames, tensors are without their batch axis."""
    first = 1 if signature.has_batches else 0
    return {
        "name": signature.model_name,
        "platform": platform,
        "backend": "shisha-rt",
        "version_policy": {"latest": {"num_versions": 1}},
        "max_batch_size": signature.most_frames if signature.has_batches else 0,
        "input": [_tensor(tensor, first) | {"format": "FORMAT_NONE"} for tensor in signature.inputs],
        "output": [_tensor(output, first) | {"label_filename": ""} for output in signature.outputs],
        "instance_group": [],
        "default_model_filename": "model.onnx",
        "parameters": {},
        "model_warmup": [],
    }


def _tensor(tensor: Tensor, first: int) -> dict[str, object]:
    """A tensor from its axis `first` on; -1: the size varies. No model here has BYTES, which would be TYPE_STRING."""
    return {"name": tensor.name, "data_type": f"TYPE_{tensor.datatype}", "dims": tensor.sizes[first:]}
