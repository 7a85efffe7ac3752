"""The JSON headers, in the terms of the KServe Open Inference Protocol v2, and their bytes.

Headers are small and tensors are not: a header is readable JSON, and the tensors follow as raw parts in the order in
which the header lists them. Unknown keys are ignored when reading, so a KServe client can send its header unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, TypeAlias

import msgspec
import numpy as np
from msgspec import Meta, Struct

from shisha_rt.model.graph import Tensor
from shisha_rt.protocol.exceptions import ShishaError, malformed
from shisha_rt.protocol.limits import MAX_DEADLINE_MS, MAX_NAME_LENGTH, MAX_PRIORITY
from shisha_rt.protocol.operations import INFER, Count

Buffer: TypeAlias = bytes | bytearray | memoryview
"""One part of a message, as bytes (a memoryview has format B)."""

Label: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_LENGTH)]
DeadlineMs: TypeAlias = Annotated[float, Meta(ge=0, le=MAX_DEADLINE_MS)]
Priority: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_PRIORITY)]


class TensorData(Struct, frozen=True, omit_defaults=True):
    """Location of a tensor's bytes: a raw part of `binary_data_size` bytes, or memory that the client lends."""

    binary_data_size: int | None = None
    shared_memory_region: str | None = None
    shared_memory_byte_size: Count | None = None
    shared_memory_offset: Count | None = 0


class DescribedTensor(Struct, frozen=True):
    """What one tensor of a message is."""

    name: str
    shape: tuple[int, ...]
    datatype: str


class TensorHeader(DescribedTensor, frozen=True):
    """One tensor of a message; its bytes are a part of their own, unless they are in lent memory."""

    parameters: TensorData

    @classmethod
    def of(cls, tensor: Tensor) -> TensorHeader:
        return cls(tensor.name, tensor.shape, tensor.datatype, TensorData(tensor.size_bytes))


class WantedAs(TensorData, frozen=True, omit_defaults=True):
    """Where an output is to go: to a raw part, or to memory that the client lends."""

    binary_data: Any = True


class RequestedOutput(Struct, frozen=True, omit_defaults=True):
    """An output that the request asks for, and where the output is to go."""

    name: str
    parameters: WantedAs | None = None


class InferParameters(Struct, frozen=True, omit_defaults=True):
    """A request's `parameters`: of its stream, its deadline in ms, its urgency, its trace and its caller."""

    stream: Label | None = None
    sequence: Count | None = None
    deadline_ms: DeadlineMs | None = None
    priority: Priority | None = 0
    traceparent: Annotated[str, Meta(max_length=MAX_NAME_LENGTH)] | None = None
    caller: Label | None = None


class InferHeader(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The header of an `infer` request. No `outputs`, or an empty list, asks for all of them."""

    op: str
    id: str
    model_name: str
    parameters: InferParameters | None = None
    inputs: tuple[TensorHeader, ...]
    outputs: tuple[RequestedOutput, ...] | None = None


class RequestHead(Struct, frozen=True):
    """What every request has: enough to address an answer."""

    id: str


class AnswerParameters(Struct, frozen=True, omit_defaults=True):
    """`epoch`: the plan that computed the answer. `frame`: the daemon's number of the (first) frame.

    `epochs`: the epoch of each frame, in order, if several plans computed them; `epoch` is then the latest.
    """

    epoch: int
    frame: int
    queue_ms: float
    compute_ms: float
    sequence: int | None = None
    epochs: tuple[int, ...] | None = None


class InferAnswerHeader(Struct, frozen=True):
    """The header of a frame's answer; binary tensors follow in the order of `outputs`.

    `model_version`: of the model that computed it; "" from a daemon that does not say it.
    """

    id: str
    model_name: str
    outputs: tuple[TensorHeader, ...]
    parameters: AnswerParameters
    model_version: str = ""


class _WrittenAnswer(Struct, frozen=True):
    """An `InferAnswerHeader` to be sent; its outputs may already be encoded as JSON."""

    id: str
    model_name: str
    model_version: str
    outputs: Sequence[TensorHeader] | msgspec.Raw
    parameters: AnswerParameters


class ErrorBody(Struct, frozen=True):
    """`code`: the gRPC code. `kind`: the stable name of `shisha_rt.errors.Error`."""

    code: str
    message: str
    kind: str = ""


class AnswerHead(Struct, frozen=True):
    """Enough of every answer to find its request. `moved`: not an answer: the notice that another daemon takes over."""

    id: str | None
    error: ErrorBody | None = None
    moved: bool = False


def _number_of(value: object) -> object:
    """A numpy scalar as Python's own number or text. Raises `TypeError` for anything else."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} has no place in JSON")


_ENCODER: Final = msgspec.json.Encoder(enc_hook=_number_of)
decode_head: Final = msgspec.json.Decoder(AnswerHead).decode
"""Decode an answer's id, and its error if it is one. Raises `msgspec.MsgspecError` if it is no answer."""
decode_infer_answer: Final = msgspec.json.Decoder(InferAnswerHeader).decode
decode_fields: Final = msgspec.json.Decoder(dict[str, Any]).decode
"""Decode all fields of an answer that is not a result."""


def encode_infer(
    request_id: str,
    model_name: str,
    inputs: Sequence[TensorHeader],
    parameters: InferParameters | None = None,
    outputs: Sequence[RequestedOutput] = (),
) -> bytes:
    """The header of an `infer` request; the raw parts of `inputs` follow, in order. Raises `InvalidArgument`."""
    return _encode(
        InferHeader(
            op=INFER,
            id=request_id,
            model_name=model_name,
            parameters=parameters,
            inputs=tuple(inputs),
            outputs=tuple(outputs) or None,
        )
    )


def encode_operation(op: str, request_id: str, arguments: Mapping[str, object] | None = None) -> bytes:
    """The header of any other request, its arguments (not `op` or `id`) at the top. Raises `InvalidArgument`."""
    return _encode({**(arguments or {}), "op": op, "id": request_id})


def _encode(header: object) -> bytes:
    try:
        return _ENCODER.encode(header)
    except (TypeError, ValueError, RecursionError) as error:
        raise malformed(f"{error}; expected plain data") from None


def encode_outputs(outputs: Sequence[TensorHeader]) -> msgspec.Raw:
    """Encode outputs for results' headers: the same for every frame, unless shapes vary or clients lend memory."""
    return msgspec.Raw(_ENCODER.encode(outputs))


def encode_infer_answer(
    request_id: str,
    model_name: str,
    model_version: str,
    outputs: Sequence[TensorHeader] | msgspec.Raw,
    parameters: AnswerParameters,
) -> bytes:
    """The header of a result; its raw parts follow in the order of `outputs` (or of what `encode_outputs` made)."""
    return _ENCODER.encode(_WrittenAnswer(request_id, model_name, model_version, outputs, parameters))


def encode_answer(request_id: str, fields: Mapping[str, object]) -> bytes:
    """The answer to any other request: its fields are at the top level, beside `id`."""
    return _ENCODER.encode({"id": request_id, **fields})


def error_body(error: ShishaError) -> ErrorBody:
    return ErrorBody(error.code.value, error.message, error.kind)


def encode_error(request_id: str | None, error: ShishaError) -> bytes:
    """Return an error's message; `request_id` None: the request had no readable id."""
    return _ENCODER.encode({"id": request_id, "error": error_body(error)})


def encode_moved() -> bytes:
    """Tell clients that another daemon takes over: those referred to this one connect to the public address again."""
    return _ENCODER.encode({"id": None, "moved": True})
