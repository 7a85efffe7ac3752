"""Requests for inference over gRPC, read to the same values as those in HTTP's JSON; and messages of answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from shisha_rt.http.grpc.messages import MESSAGES
from shisha_rt.http.inference.answer import told_outputs, told_parameters
from shisha_rt.http.inference.request import InferenceAsked, read_fields
from shisha_rt.protocol.exceptions import malformed
from shisha_rt.protocol.frame_tensors import Answer
from shisha_rt.protocol.signature import Signature
from shisha_rt.tensors import NUMPY_OF

_CHOICE: Final = "parameter_choice"
_CONTENTS: Final = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
}
"""The field that has a datatype's values. FP16 is sent as raw bytes only."""


def read_request(request: Any, signature: Signature) -> tuple[InferenceAsked, list[bytes]]:
    """What is asked for, and the bytes of the inputs that are in no region, in order. Raises `InvalidArgument`."""
    parameters = [given_parameters(tensor.parameters) for tensor in request.inputs]
    sent = [index for index, given in enumerate(parameters) if "shared_memory_region" not in given]
    pieces: list[bytes] = list(request.raw_input_contents)
    if not pieces:
        pieces = [_contents(request.inputs[index]) for index in sent]
    elif len(pieces) != len(sent) or any(tensor.HasField("contents") for tensor in request.inputs):
        raise malformed(
            f"raw_input_contents has {len(pieces)} tensors; expected {len(sent)}, one for each input that lies in no "
            "region, and then no contents beside"
        )
    for index, piece in zip(sent, pieces, strict=True):
        parameters[index]["binary_data_size"] = len(piece)
    fields = {
        "id": request.id,
        "parameters": given_parameters(request.parameters) | {"binary_data_output": True},
        "inputs": [
            {"name": tensor.name, "shape": tuple(tensor.shape), "datatype": tensor.datatype, "parameters": given}
            for tensor, given in zip(request.inputs, parameters, strict=True)
        ],
        "outputs": [
            {"name": output.name, "parameters": given_parameters(output.parameters) | {"binary_data": True}}
            for output in request.outputs
        ],
    }
    return read_fields(fields, signature), pieces


def given_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    choices = {name: given.WhichOneof(_CHOICE) for name, given in parameters.items()}
    return {name: getattr(parameters[name], choice) for name, choice in choices.items() if choice is not None}


def _contents(tensor: Any) -> bytes:
    """The bytes of a tensor whose values are in a typed field of its message."""
    field = _CONTENTS.get(tensor.datatype)
    if field is None:
        return b""  # a wrong size, which the check of sizes refuses
    dtype, values = NUMPY_OF[tensor.datatype], list(getattr(tensor.contents, field))
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        if values and not int(bounds.min) <= min(values) <= max(values) <= int(bounds.max):
            raise malformed(f"input {tensor.name!r}: its contents have what is no {tensor.datatype}")
    return np.array(values, dtype).tobytes()


def _parameter(value: float | tuple[int, ...]) -> tuple[str, float | str]:
    """The field of a parameter's message, and its value there: numbers of a list are text, as there are no lists."""
    if isinstance(value, tuple):
        return "string_param", ",".join(map(str, value))
    return ("int64_param" if isinstance(value, int) else "double_param"), value


def answer_message(signature: Signature, asked: InferenceAsked, answer: Answer) -> Any:
    """The message of an answer. As with Triton, an output that went to a region has an empty raw content."""
    message = MESSAGES["ModelInferResponse"](
        model_name=signature.model_name, model_version=answer.model_version, id=asked.id
    )
    for name, value in told_parameters(answer).items():
        field, scalar = _parameter(value)
        setattr(message.parameters[name], field, scalar)
    outputs, raw = told_outputs(asked, answer)
    pieces = iter(raw)
    for output in outputs:
        message.outputs.add(name=output["name"], datatype=output["datatype"], shape=output["shape"])
        message.raw_output_contents.append(bytes(next(pieces)) if "parameters" in output else b"")
    return message
