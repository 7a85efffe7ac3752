"""A request for inference, from JSON or gRPC: what is asked for, and where its tensors are.

Names, shapes and datatypes are checked against the model's signature before any tensor is read, as they determine how
many bytes may come: by the same rules as those of the wire protocol (`protocol/signature.py`). Pure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta, Struct

from shisha_rt.errors import Error
from shisha_rt.model.input_sizes import MOST_INPUTS
from shisha_rt.protocol.exceptions import error_for, malformed
from shisha_rt.protocol.header import DeadlineMs, DescribedTensor, Label, Priority, TensorData
from shisha_rt.protocol.limits import MAX_DEADLINE_MS, MAX_INTEGER, MAX_NAME_LENGTH
from shisha_rt.protocol.operations import Count
from shisha_rt.protocol.signature import Signature, arrange, check_outputs
from shisha_rt.tensors import NUMPY_OF

MAX_HEADER_BYTES: Final = 1 << 20
MAX_JSON_BYTES_A_VALUE: Final = 32
"""The longest reasonable number in JSON, with its separators."""

_FLAT: Final = re.compile(rb"\s*\[\s*[^\[\s]")
_Name = Annotated[str, Meta(max_length=MAX_NAME_LENGTH)]


class FilePiece(Struct, frozen=True):
    """A piece of a region of shared memory that the caller has registered."""

    name: str
    offset: int
    size_bytes: int


class _TensorParameters(TensorData, frozen=True):
    binary_data_size: Count | None = None
    binary_data: bool | None = None
    classification: Count = 0
    shared_memory_region: _Name | None = None

    @property
    def region(self) -> FilePiece | None:
        if self.shared_memory_region is None:
            return None
        if self.shared_memory_byte_size is None:
            raise malformed("shared_memory_byte_size is missing beside shared_memory_region")
        return FilePiece(self.shared_memory_region, self.shared_memory_offset or 0, self.shared_memory_byte_size)


class InputTensor(DescribedTensor, frozen=True):
    """An input, whose values are in one place: `binary_bytes` of the body, `data` (JSON) in the header, a `region`."""

    name: _Name
    shape: Annotated[tuple[Count, ...], Meta(max_length=32)]
    parameters: _TensorParameters | None = None
    data: msgspec.Raw = msgspec.Raw()  # empty: not given

    @property
    def dtype(self) -> np.dtype[Any]:
        return NUMPY_OF[self.datatype]

    @property
    def binary_bytes(self) -> int | None:
        return None if self.parameters is None else self.parameters.binary_data_size

    @property
    def region(self) -> FilePiece | None:
        return None if self.parameters is None else self.parameters.region


class _Output(Struct, frozen=True):
    name: _Name
    parameters: _TensorParameters | None = None

    def wanted(self, of_all: AskedParameters) -> WantedOutput:
        given = self.parameters or _TensorParameters()
        region = given.region
        if region is not None and given.classification:
            what = "classification in shared memory is not supported"
            raise error_for(Error.NOT_OFFERED, f"output {self.name!r}: {what}")
        is_binary = of_all.binary_data_output if given.binary_data is None else given.binary_data
        return WantedOutput(self.name, is_binary, given.classification, region)


class AskedParameters(Struct, frozen=True):
    """`timeout` (microseconds), `sequence_id` (up to 64 bits) and `priority` are Triton's; its others are ignored."""

    binary_data_output: bool = False
    stream: Label | None = None
    sequence: Count | None = None
    deadline_ms: DeadlineMs | None = None
    timeout: Count | None = 0
    priority: Priority | None = 0
    sequence_id: Annotated[int, Meta(ge=0)] | Annotated[str, Meta(max_length=128)] | None = 0

    @property
    def stream_name(self) -> str | None:
        """The stream. A sequence of Triton's counts as one, as its requests are to be answered in order."""
        if self.stream is not None or not self.sequence_id:
            return self.stream
        return f"sequence-{self.sequence_id}"

    @property
    def deadline_s(self) -> float | None:
        if self.deadline_ms is not None:
            return self.deadline_ms / 1e3
        return min(self.timeout / 1e6, MAX_DEADLINE_MS / 1e3) if self.timeout else None


class _Header(Struct, frozen=True):
    """An optional field may also be null, as MLServer's types write it."""

    inputs: Annotated[tuple[InputTensor, ...], Meta(min_length=1, max_length=MOST_INPUTS)]
    outputs: Annotated[tuple[_Output, ...], Meta(max_length=MOST_INPUTS)] | None = None
    id: _Name | None = None
    parameters: AskedParameters | None = None


_DECODER: Final = msgspec.json.Decoder(_Header)


class WantedOutput(Struct, frozen=True):
    """`classes`: return only so many of the largest values, as strings; 0: all values. `region`: where to write it."""

    name: str
    binary: bool
    classes: int = 0
    region: FilePiece | None = None


class InferenceAsked(Struct, frozen=True):
    """`outputs` empty: all of them."""

    id: str
    inputs: tuple[InputTensor, ...]
    outputs: tuple[WantedOutput, ...] = ()
    parameters: AskedParameters = AskedParameters()

    @property
    def binary_bytes(self) -> int:
        """The bytes of all tensors in the body after the header."""
        return sum(tensor.binary_bytes or 0 for tensor in self.inputs)


def read_header(data: bytes | bytearray | memoryview, signature: Signature) -> InferenceAsked:
    """Read the JSON of a request. Raises `InvalidArgument`, with what is wrong in one line."""
    try:
        return _checked(_DECODER.decode(data), signature)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise malformed(f"the request's JSON: {_line(error)}") from None


def read_fields(fields: Mapping[str, object], signature: Signature) -> InferenceAsked:
    """Read a request whose header comes as fields and not as JSON. Raises `InvalidArgument`."""
    try:
        return _checked(msgspec.convert(fields, _Header), signature)
    except msgspec.ValidationError as error:
        raise malformed(f"the request: {_line(error)}") from None


def _checked(header: _Header, signature: Signature) -> InferenceAsked:
    parameters, outputs = header.parameters or AskedParameters(), header.outputs or ()
    arrange(header.inputs, signature)
    check_outputs([output.name for output in outputs], signature)
    wanted = tuple(output.wanted(parameters) for output in outputs)
    for tensor in header.inputs:
        _check_location(tensor)
    return InferenceAsked(header.id or "", header.inputs, wanted, parameters)


def raw_request(size_bytes: int | None, signature: Signature) -> InferenceAsked:
    """A request whose body is only the single input's bytes, as Triton accepts with a header length of 0."""
    if len(signature.inputs) != 1 or signature.shapes:
        raise malformed("a body without a header is for models of one input of one shape")
    (signature_input,) = signature.inputs
    expected, shape = signature_input.size_bytes, signature_input.shape
    frames = size_bytes // expected if size_bytes and expected else 1
    if 1 < frames <= signature.most_frames and size_bytes == frames * expected:
        expected, shape = size_bytes, (frames * shape[0], *shape[1:])
    if size_bytes != expected:
        several = f", or up to {signature.most_frames} times that" if signature.most_frames > 1 else ""
        wanted = f"expected Content-Length: {expected}{several}"
        raise error_for(Error.WRONG_SIZE, f"a body without a header is input {signature_input.name!r} alone; {wanted}")
    parameters = _TensorParameters(binary_data_size=size_bytes)
    tensor = InputTensor(signature_input.name, shape, signature_input.datatype, parameters)
    return InferenceAsked("", (tensor,), parameters=AskedParameters(binary_data_output=True))


def longest_body(signature: Signature) -> int:
    """Return the most bytes that a request may have: as many frames as are allowed, as bytes or in JSON."""
    values = max(sum(math.prod(tensor.shape) for tensor in inputs) for inputs in signature.each)
    frame_bytes = max(*map(sum, signature.sizes), MAX_JSON_BYTES_A_VALUE * values)
    return MAX_HEADER_BYTES + signature.most_frames * frame_bytes


def array_of(input_tensor: InputTensor) -> npt.NDArray[Any]:
    """Decode a tensor from JSON: a flat list of all values, or lists nested by its shape. Raises `InvalidArgument`."""
    dtype = input_tensor.dtype
    flat, nested = _values_decoders(dtype, len(input_tensor.shape))
    try:
        values = (flat if _FLAT.match(input_tensor.data) else nested).decode(input_tensor.data)
        with np.errstate(over="raise"):
            array = np.array(values, dtype)
    except msgspec.MsgspecError as error:
        raise malformed(f"input {input_tensor.name!r}: its data: {_line(error)}") from None
    except (ValueError, OverflowError, FloatingPointError):
        raise malformed(f"input {input_tensor.name!r}: its data is ragged, or has what is no {dtype}") from None
    if array.size != math.prod(input_tensor.shape) or (array.ndim > 1 and array.shape != input_tensor.shape):
        expected = f"expected {list(input_tensor.shape)}, or all in a row"
        raise error_for(
            Error.WRONG_SHAPE, f"input {input_tensor.name!r}: its data has shape {list(array.shape)}; {expected}"
        )
    return array.reshape(input_tensor.shape)


@cache
def _values_decoders(dtype: np.dtype[Any], rank: int) -> tuple[msgspec.json.Decoder[Any], msgspec.json.Decoder[Any]]:
    """Decoders of flat lists, and of lists nested `rank` deep. Integers out of range are refused; UINT64 by numpy."""
    of: Any = bool if dtype.kind == "b" else float
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        of = Annotated[int, Meta(ge=int(bounds.min), le=min(int(bounds.max), MAX_INTEGER))]
        if bounds.max > MAX_INTEGER:
            of = Annotated[int, Meta(ge=0)]
    nested: Any = of
    for _ in range(rank):
        nested = list[nested]
    return msgspec.json.Decoder(list[of]), msgspec.json.Decoder(nested)


def _check_location(given: InputTensor) -> None:
    """Raises `InvalidArgument` unless the values are in one place, of as many bytes as shape and datatype take."""
    size_bytes = math.prod(given.shape) * given.dtype.itemsize
    region, binary_bytes = given.region, given.binary_bytes
    if (region is not None) + (binary_bytes is not None) + bool(given.data) != 1:
        raise malformed(f"input {given.name!r}: expected one of data, binary_data_size, shared_memory_region")
    if given.data and given.dtype == np.float16:
        raise error_for(Error.NO_JSON_FORM, f"input {given.name!r}: FP16 has no form in JSON; expected it as bytes")
    for size in (binary_bytes, None if region is None else region.size_bytes):
        if size is not None and size != size_bytes:
            raise error_for(
                Error.WRONG_SIZE,
                f"input {given.name!r}: {size} bytes; expected {size_bytes} for its shape and datatype",
            )


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0]
