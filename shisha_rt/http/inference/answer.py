"""An answer of inference: its metadata, its JSON, and its raw tensors. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from shisha_rt.errors import Error
from shisha_rt.http.inference.request import InferenceAsked, WantedOutput
from shisha_rt.protocol.exceptions import error_for
from shisha_rt.protocol.frame_tensors import Answer, raw_bytes
from shisha_rt.protocol.signature import Signature
from shisha_rt.tensors import NAME_OF


def wanted(asked: InferenceAsked, answer: Answer) -> Sequence[WantedOutput]:
    """The requested outputs, or all if none was named."""
    return asked.outputs or [WantedOutput(name, asked.parameters.binary_data_output) for name in answer.outputs]


def answer_parts(signature: Signature, asked: InferenceAsked, answer: Answer) -> tuple[bytes, list[memoryview]]:
    """The header, and the tensors that follow as bytes. Raises `InvalidArgument` for values that JSON does not have."""
    outputs, raw = told_outputs(asked, answer)
    header: dict[str, Any] = {"model_name": signature.model_name, "model_version": answer.model_version}
    if asked.id:
        header["id"] = asked.id
    return msgspec.json.encode(header | {"parameters": told_parameters(answer), "outputs": outputs}), raw


def told_parameters(answer: Answer) -> dict[str, Any]:
    """An answer's parameters: numbers and times of its frame."""
    parameters: dict[str, Any] = {
        "epoch": answer.epoch,
        "frame": answer.frame,
        "queue_ms": round(answer.queue_s * 1e3, 3),
        "compute_ms": round(answer.compute_s * 1e3, 3),
    }
    if answer.sequence is not None:
        parameters["sequence"] = answer.sequence
    if answer.epochs is not None:
        parameters["epochs"] = answer.epochs
    return parameters


def told_outputs(asked: InferenceAsked, answer: Answer) -> tuple[list[Mapping[str, Any]], list[memoryview]]:
    """Metadata of each output, and the bytes of binary outputs, in order. Raises `InvalidArgument`."""
    raw: list[memoryview] = []
    return [_told(output, answer.outputs[output.name], raw) for output in wanted(asked, answer)], raw


def _told(wanted_output: WantedOutput, array: npt.NDArray[Any], raw: list[memoryview]) -> Mapping[str, Any]:
    if wanted_output.classes:
        array = _classes(array, wanted_output.classes)
    metadata: dict[str, object] = {
        "name": wanted_output.name,
        "datatype": "BYTES" if wanted_output.classes else NAME_OF[array.dtype],
        "shape": array.shape,
    }
    if wanted_output.region is not None:
        return metadata  # as Triton: its C++ client expects parameters only with raw tensors
    if wanted_output.binary:
        data = _strings(array) if wanted_output.classes else raw_bytes(array)
        raw.append(data)
        metadata["parameters"] = {"binary_data_size": len(data)}
    else:
        if array.dtype == np.float16:
            raise error_for(
                Error.NO_JSON_FORM,
                f"output {wanted_output.name!r}: FP16 has no form in JSON; ask for bytes (binary_data)",
            )
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise error_for(
                Error.NO_JSON_FORM,
                f"output {wanted_output.name!r} has NaN or infinity, which JSON has not; ask for bytes",
            )
        metadata["data"] = array.reshape(-1).tolist()
    return metadata


def _classes(array: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
    """The largest values as Triton writes them, "value:index", largest first, by row if there are several axes."""
    several = array.ndim > 1
    rows = array.reshape(array.shape[0], math.prod(array.shape[1:])) if several else array.reshape(1, -1)
    ascending = np.argsort(rows[:, ::-1], axis=1, kind="stable")  # reversed, so that the first of equals wins
    order = rows.shape[1] - 1 - ascending[:, ::-1][:, :count]
    form = "{:f}:{}" if array.dtype.kind == "f" else "{:d}:{}"
    words = [
        [form.format(row[index].item(), index) for index in indices] for row, indices in zip(rows, order, strict=True)
    ]
    return np.array(words, dtype=object).reshape(order.shape if several else -1)


def _strings(array: npt.NDArray[Any]) -> memoryview:
    """Encode strings as the binary extension does: each after its length in 4 bytes, little-endian."""
    texts = [text.encode() for text in array.reshape(-1)]
    return memoryview(b"".join(len(text).to_bytes(4, "little") + text for text in texts))
