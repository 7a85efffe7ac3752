"""What only a run of the model shows: shapes that inference does not find, and whether it runs at some sizes at all.

The control plane loads no engine, so a separate process runs the model, as it is, on made-up values.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import onnx

from shisha_rt.errors import BadInput, Error, Failure
from shisha_rt.model.open_shapes import SeenTensor
from shisha_rt.model.reader.external_data import save_with_external_weights
from shisha_rt.process.job import JobFailed, run_job
from shisha_rt.tensors import NUMPY_OF

_FILE: Final = "model.onnx"
RUN_LIMIT_S: Final = 300.0  # far more than any model has taken; some loop for ever
_TRYING_LIMIT_S: Final = 30.0


class RunAsked(msgspec.Struct, frozen=True):
    """`tries`: shapes of all inputs; the first with which the model runs is used. `wanted`: names to look at."""

    file: str
    tries: tuple[tuple[tuple[int, ...], ...], ...]
    wanted: tuple[str, ...] = ()


class RunSeen(msgspec.Struct, frozen=True):
    """`taken`: index of the try with which it ran, None if it ran with none; `reason`: why the last one failed."""

    taken: int | None
    shapes: dict[str, SeenTensor]
    reason: str = ""


def shapes_seen(model: onnx.ModelProto, wanted: Sequence[str]) -> dict[str, SeenTensor]:
    """Shapes and datatypes of the tensors `wanted` in one run; the inputs of `model` have static shapes.

    Raises BadInput if the engine cannot run it, or not within `RUN_LIMIT_S`.
    """
    shape = tuple(tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim) for value in model.graph.input)
    seen = _run(model, (shape,), RUN_LIMIT_S, wanted)
    if seen.taken is None:
        raise BadInput(f"the engine cannot run it: {seen.reason}", Error.ENGINE_REFUSES)
    unknown = next((name for name, tensor in seen.shapes.items() if tensor.datatype not in NUMPY_OF), None)
    if unknown is not None:
        raise BadInput(
            f"tensor {unknown!r} is of no datatype served; expected one of {', '.join(NUMPY_OF)}",
            Error.MODEL_UNSUPPORTED,
        )
    return seen.shapes


def first_that_runs(model: onnx.ModelProto, tries: Sequence[tuple[tuple[int, ...], ...]]) -> int | None:
    """Index of the first of `tries`, shapes of all inputs, with which the model runs; None: with none."""
    return _run(model, tries, _TRYING_LIMIT_S).taken


def _run(
    model: onnx.ModelProto, tries: Sequence[tuple[tuple[int, ...], ...]], limit_s: float, wanted: Sequence[str] = ()
) -> RunSeen:
    with tempfile.TemporaryDirectory(prefix="shisha-rt-run-") as folder:
        path = Path(folder) / _FILE
        try:
            save_with_external_weights(model, path)
        except OSError as error:
            raise Failure(
                f"{folder}: the model cannot be written there, to be run once ({error.strerror or error}), "
                "expected room for its weights; TMPDIR chooses another folder",
                Error.CACHE_UNUSABLE,
            ) from None
        asked = RunAsked(str(path), tuple(tries), tuple(wanted))
        try:
            job, failed = msgspec.json.encode(asked), "the model could not be run"
            said = run_job("stages.jobs.one_run", failed=failed, given=job, limit_s=limit_s)
        except JobFailed as error:
            return RunSeen(None, {}, error.reason)
    return msgspec.json.decode(said, type=RunSeen)
