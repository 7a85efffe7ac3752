"""The JSON headers, in the terms of the KServe Open Inference Protocol v2, and their bytes.

Headers are small and tensors are not: a header travels as JSON that anyone can read, and the tensors beside it as
raw parts in the order in which the header lists them. Keys that we do not know are ignored when reading, so that a
KServe client's header needs no thinning out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta, Struct

from shisha_rt.model.graph import Tensor
from shisha_rt.protocol.exceptions import ShishaError
from shisha_rt.protocol.limits import MAX_DEADLINE_MS, MAX_INTEGER, MAX_NAME_LENGTH, MAX_PRIORITY
from shisha_rt.protocol.operations import INFER

Buffer: TypeAlias = bytes | bytearray | memoryview
"""One part of a message, as bytes (a memoryview has format B)."""


class TensorData(Struct, frozen=True, omit_defaults=True):
    """Place of a tensor's bytes: in a raw part of `binary_data_size`, or in memory that the client lends."""

    binary_data_size: int | None = None
    shared_memory_region: str | None = None
    shared_memory_byte_size: Annotated[int, Meta(ge=0, le=MAX_INTEGER)] | None = None
    shared_memory_offset: Annotated[int, Meta(ge=0, le=MAX_INTEGER)] = 0


class TensorHeader(Struct, frozen=True):
    """One tensor of a message; its bytes are a part of their own, unless they are lent."""

    name: str
    shape: tuple[int, ...]
    datatype: str
    parameters: TensorData

    @classmethod
    def of(cls, tensor: Tensor) -> TensorHeader:
        """Header of a tensor with a static shape."""
        return cls(tensor.name, tensor.shape, tensor.datatype, TensorData(tensor.size_bytes))


class WantedAs(TensorData, frozen=True, omit_defaults=True):
    """How an output is wanted: as a raw part, or in memory that the client lends."""

    binary_data: Any = True


class RequestedOutput(Struct, frozen=True, omit_defaults=True):
    name: str
    parameters: WantedAs = WantedAs()


class InferParameters(Struct, frozen=True, omit_defaults=True):
    stream: Annotated[str, Meta(min_length=1, max_length=MAX_NAME_LENGTH)] | None = None
    sequence: Annotated[int, Meta(ge=0, le=MAX_INTEGER)] | None = None
    deadline_ms: Annotated[float, Meta(ge=0, le=MAX_DEADLINE_MS)] | None = None
    priority: Annotated[int, Meta(ge=0, le=MAX_PRIORITY)] = 0
    traceparent: Annotated[str, Meta(max_length=MAX_NAME_LENGTH)] | None = None
    caller: Annotated[str, Meta(min_length=1, max_length=MAX_NAME_LENGTH)] | None = None


class InferHeader(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The header of an `infer` request. No `outputs`, or an empty list, asks for all of them."""

    op: str
    id: str
    model_name: str
    parameters: InferParameters | None = None
    inputs: tuple[TensorHeader, ...]
    outputs: tuple[RequestedOutput, ...] | None = None


class RequestHead(Struct, frozen=True):
    """What every request has, whatever it asks for: enough to answer it."""

    id: str


class AnswerParameters(Struct, frozen=True, omit_defaults=True):
    """`epoch` and `frame` say which plan made the answer and which frame of the daemon's it was.

    `epochs`: of an answer of several frames that several plans made, each one's, in their order; `frame` is the first.
    """

    epoch: int
    frame: int
    queue_ms: float
    compute_ms: float
    sequence: int | None = None
    epochs: tuple[int, ...] | None = None


class InferAnswerHeader(Struct, frozen=True):
    id: str
    model_name: str
    outputs: tuple[TensorHeader, ...]
    parameters: AnswerParameters


class _WrittenAnswer(Struct, frozen=True):
    """An `InferAnswerHeader` on its way out, with its outputs in JSON already."""

    id: str
    model_name: str
    outputs: msgspec.Raw
    parameters: AnswerParameters


class ErrorBody(Struct, frozen=True):
    code: str
    message: str
    kind: str = ""


class AnswerHead(Struct, frozen=True):
    """What every answer has, whatever was asked: enough to find the request that it answers.

    `moved`: it answers none, but says that another daemon takes over.
    """

    id: str | None
    error: ErrorBody | None = None
    moved: bool = False


class _ErrorHeader(Struct, frozen=True):
    id: str | None
    error: ErrorBody


_ENCODER: Final = msgspec.json.Encoder()
_HEAD_DECODER: Final = msgspec.json.Decoder(AnswerHead)
_INFER_ANSWER_DECODER: Final = msgspec.json.Decoder(InferAnswerHeader)
_FIELDS_DECODER: Final = msgspec.json.Decoder(dict[str, Any])


def encode_infer(
    request_id: str,
    model_name: str,
    inputs: Sequence[TensorHeader],
    parameters: InferParameters | None = None,
    outputs: Sequence[RequestedOutput] = (),
) -> bytes:
    """The header of an `infer` request. The raw parts of those `inputs` that are not lent follow in their order."""
    return _ENCODER.encode(
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
    """The header of any other request. Arguments stand at the top level."""
    return _ENCODER.encode({"op": op, "id": request_id, **(arguments or {})})


def encode_outputs(outputs: Sequence[TensorHeader]) -> msgspec.Raw:
    """Outputs as the header of a result has them: the same for every frame, unless shapes vary or clients lend room."""
    return msgspec.Raw(_ENCODER.encode(outputs))


def encode_infer_answer(
    request_id: str,
    model_name: str,
    outputs: Sequence[TensorHeader] | msgspec.Raw,
    *,
    epoch: int,
    frame: int,
    queue_ms: float,
    compute_ms: float,
    sequence: int | None = None,
    epochs: tuple[int, ...] | None = None,
) -> bytes:
    """The header of a result; its raw parts follow in the order of `outputs` (or of what `encode_outputs` made)."""
    written = outputs if isinstance(outputs, msgspec.Raw) else encode_outputs(outputs)
    parameters = AnswerParameters(epoch, frame, queue_ms, compute_ms, sequence, epochs)
    return _ENCODER.encode(_WrittenAnswer(request_id, model_name, written, parameters))


def encode_answer(request_id: str, fields: Mapping[str, object]) -> bytes:
    """The answer to any other request: its fields stand at the top level, beside `id`."""
    return _ENCODER.encode({"id": request_id, **fields})


def error_body(error: ShishaError) -> ErrorBody:
    return ErrorBody(error.code.value, error.message, error.kind)


def encode_error(request_id: str | None, error: ShishaError) -> bytes:
    return _ENCODER.encode(_ErrorHeader(request_id, error_body(error)))


def encode_moved() -> bytes:
    """What a daemon says to its clients when another takes over: whoever was led here asks the public address again."""
    return _ENCODER.encode({"id": None, "moved": True})


def decode_head(header: Buffer) -> AnswerHead:
    """Who an answer is for, and its error if it is one. Raises `msgspec.MsgspecError` for anything else."""
    return _HEAD_DECODER.decode(header)


def decode_infer_answer(header: Buffer) -> InferAnswerHeader:
    return _INFER_ANSWER_DECODER.decode(header)


def decode_fields(header: Buffer) -> dict[str, Any]:
    """All fields of an answer that is no result."""
    return _FIELDS_DECODER.decode(header)
