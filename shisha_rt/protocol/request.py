"""From the parts of a message to a validated request, or a `ShishaError` that says what is wrong. Pure.

No allocation depends on a client's claims: a shape is compared with those that are served, never multiplied, and the
size of every part is checked against that shape before it is read. For any input, `parse` either returns or raises
`ShishaError`, with the request's id if that could be read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

import msgspec

from shisha_rt.errors import Error
from shisha_rt.protocol.exceptions import ShishaError, error_for, malformed
from shisha_rt.protocol.header import (
    Buffer,
    InferHeader,
    InferParameters,
    RequestedOutput,
    RequestHead,
    TensorData,
    TensorHeader,
    WantedAs,
)
from shisha_rt.protocol.limits import MAX_NAME_LENGTH, REFUSED_BYTES, Limits
from shisha_rt.protocol.operations import INFER, LOADING_OPS, OPERATIONS, PATTERNS, Arguments
from shisha_rt.protocol.signature import Signature, arrange, as_sent, check_outputs, tensor_at

_Part = TypeVar("_Part", bytes, bytearray, memoryview, Buffer)
_Header = TypeVar("_Header")
_FRAME: Final = msgspec.json.Decoder(InferHeader)
_ID: Final = msgspec.json.Decoder(RequestHead)
_NO_PARAMETERS: Final = InferParameters()
_WANTED_AS_USUAL: Final = WantedAs()


class Lent(NamedTuple):
    """A piece of a region that the client lends, named by its token; the daemon checks whether that region exists."""

    token: str
    size_bytes: int
    offset_bytes: int = 0


class InferRequest(msgspec.Struct, frozen=True):
    """A request for inference. `tensors`: raw inputs in the model's order, removed once copied. `outputs`: names of the
    outputs to return.

    `stream` None means unordered. `deadline_ms` counts from receipt. `size_bytes`: of all raw parts. `layout`: index of
    its shape among the served ones. `lent_in`: inputs in memory that the client lends, by name; `lent_out`: outputs to
    be written there. `frames`: how many it has, one after the other in each tensor. `priority`: 1 is the most urgent;
    0: none given. `traceparent`: its trace (W3C), not parsed. `caller`: on whose behalf a proxy sends it.
    """

    id: str
    stream: str | None
    sequence: int | None
    deadline_ms: float | None
    tensors: dict[str, memoryview]
    outputs: tuple[str, ...]
    size_bytes: int
    layout: int = 0
    lent_in: Mapping[str, Lent] = {}
    lent_out: Mapping[str, Lent] = {}
    frames: int = 1
    priority: int = 0
    traceparent: str | None = None
    caller: str | None = None

    def each(self, signature: Signature) -> list[InferRequest]:
        """Split it into requests of one frame each. Only the first has the sequence number."""
        outputs = {tensor.name: tensor.size_bytes for tensor in signature.outputs}
        inputs = {name: lent.size_bytes // self.frames for name, lent in self.lent_in.items()}
        return [
            msgspec.structs.replace(
                self,
                sequence=self.sequence if number == 0 else None,
                tensors={
                    name: data[number * size : (number + 1) * size]
                    for name, data in self.tensors.items()
                    for size in (data.nbytes // self.frames,)
                },
                size_bytes=self.size_bytes // self.frames,
                lent_in={name: _piece(lent, number, inputs[name]) for name, lent in self.lent_in.items()},
                lent_out={name: _piece(lent, number, outputs[name]) for name, lent in self.lent_out.items()},
                frames=1,
            )
            for number in range(self.frames)
        ]


def _piece(lent: Lent, number: int, size_bytes: int) -> Lent:
    return Lent(lent.token, size_bytes, lent.offset_bytes + number * size_bytes)


@dataclass(frozen=True, slots=True)
class OpRequest:
    """Any other request: `arguments` is of the type that `OPERATIONS` names for `op`."""

    op: str
    id: str
    arguments: Arguments


def split_envelope(parts: Sequence[_Part]) -> tuple[bool, Sequence[_Part]]:
    """Return whether the first part is a delimiter, and the parts after it.

    `parts`: those after the connection's identity. A REQ socket puts an empty part before a message, and needs it back
    in the answer; a DEALER does not. No header is empty, so an empty first part is a delimiter.
    """
    if parts and len(parts[0]) == 0:
        return True, parts[1:]
    return False, parts


class RequestRoute(NamedTuple):
    """What is needed to route a request to its model. `model_name` is None if the request names none."""

    id: str
    op: str
    model_name: str | None


class _NamesModel(msgspec.Struct, frozen=True):
    model_name: str | None = None


class _RouteHeader(_NamesModel, frozen=True, kw_only=True):
    id: str
    op: str
    parameters: _NamesModel | None = None


_ROUTE: Final = msgspec.json.Decoder(_RouteHeader)


def read_route(parts: Sequence[Buffer], limits: Limits) -> RequestRoute:
    """Read a request's route. Raises `ShishaError` if it is no request; the model's daemon checks everything else."""
    _check_parts(parts, limits)
    try:
        header = _ROUTE.decode(parts[0])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        fields = _read_header(parts[0])
        request_id = _read_id(fields)
        try:
            header = _convert(fields, _RouteHeader)
        except ShishaError as error:
            error.request_id = request_id
            raise
    nested = None if header.parameters is None else header.parameters.model_name
    name = nested if header.model_name is None else header.model_name
    return RequestRoute(_read_id({"id": header.id}), header.op, name)


def read_operation(parts: Sequence[Buffer]) -> OpRequest:
    """Read a request other than `infer`, for any model. Raises `ShishaError`."""
    header = _read_header(parts[0])
    return _read_operation(_read_op(header), _read_id(header), header, parts)


def check_operation(header: bytes) -> None:
    """Check a request other than `infer` before it is sent. Raises `ShishaError`, in words for who gave its arguments.

    An operation that is not known here is left to the daemon.
    """
    try:
        read_operation([header])
    except ShishaError as error:
        if error.kind != Error.UNKNOWN_OPERATION:
            raise type(error)(_OF_HEADER.sub("", error.message), None, error.kind) from None


def parse(parts: Sequence[Buffer], signature: Signature, limits: Limits) -> InferRequest | OpRequest:
    """Read one request from its `parts`: header, then raw tensors. Raises `ShishaError`."""
    _check_parts(parts, limits)
    frame = _frame_header(parts[0])
    if frame is not None:
        return _read_infer(frame, parts[1:], signature)
    header = _read_header(parts[0])
    request_id = _read_id(header)
    try:
        op = _read_op(header)
        if op == INFER:
            return _read_infer(_convert(header, InferHeader), parts[1:], signature)
        request = _read_operation(op, request_id, header, parts)
        named = header.get("model_name")  # whatever the operation is: who names another model means another daemon
        if isinstance(named, str) and named != signature.model_name and op not in LOADING_OPS:
            _refuse_model(named, signature)
        return request
    except ShishaError as error:
        error.request_id = request_id
        raise


def _check_parts(parts: Sequence[Buffer], limits: Limits) -> None:
    if not parts:
        raise malformed("message: it is empty; expected a JSON header, then raw tensors")
    size_bytes = sum(map(len, parts))
    if len(parts) > limits.max_parts:
        too_much = f"message: {len(parts)} parts; expected at most {limits.max_parts}"
    elif len(parts[0]) > limits.max_header_bytes:
        too_much = f"header: {len(parts[0])} bytes; expected at most {limits.max_header_bytes}"
    elif size_bytes > limits.max_message_bytes:
        too_much = f"message: {size_bytes} bytes; expected at most {limits.max_message_bytes}"
    else:
        return
    raise error_for(Error.REQUEST_TOO_LARGE, too_much, _id_alone(parts[0]))


def _id_alone(header: Buffer) -> str | None:
    """Read only the id of a request that is refused for its size; None if there is none."""
    if len(header) > REFUSED_BYTES:  # a larger one would take more than a millisecond
        return None
    try:
        request_id = _ID.decode(header).id
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return request_id if len(request_id) <= MAX_NAME_LENGTH else None


def _frame_header(header: Buffer) -> InferHeader | None:
    """Decode the header of an `infer` request at once; None for any other, or one that needs detailed checks."""
    try:
        frame = _FRAME.decode(header)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return frame if frame.op == INFER and len(frame.id) <= MAX_NAME_LENGTH else None


def _read_header(part: Buffer) -> dict[str, Any]:
    fault = None
    try:
        header = msgspec.json.decode(part)
    except RecursionError:
        fault = "header: it is nested too deeply; expected one flat JSON object"
    except (msgspec.MsgspecError, ValueError):  # also a number that is out of range
        fault = "header: it is not JSON; expected one JSON object in UTF-8"
    if fault is not None:
        raise malformed(fault, _id_alone(part))
    if not isinstance(header, dict):
        raise malformed("header: it is JSON but no object; expected one JSON object")
    return header


def _read_id(header: Mapping[str, Any]) -> str:
    request_id = header.get("id")
    if not isinstance(request_id, str):
        raise malformed("header at id: missing or not a string; expected a string that no other waiting request has")
    if len(request_id) > MAX_NAME_LENGTH:
        message = f"header at id: {len(request_id)} characters; expected at most {MAX_NAME_LENGTH}"
        raise error_for(Error.REQUEST_TOO_LARGE, message, request_id)
    return request_id


def _read_op(header: Mapping[str, Any]) -> str:
    op = header.get("op")
    if not isinstance(op, str):
        raise malformed("header at op: missing or not a string; expected 'infer' or another operation")
    if op != INFER and op not in OPERATIONS:
        expected = ", ".join((INFER, *OPERATIONS))
        raise error_for(Error.UNKNOWN_OPERATION, f"header at op: {as_sent(op)} is unknown; expected one of {expected}")
    return op


def _read_operation(op: str, request_id: str, header: Mapping[str, Any], parts: Sequence[Buffer]) -> OpRequest:
    if len(parts) > 1:
        had = f"message: {op} has no raw parts; expected the header alone, got {len(parts) - 1} more"
        raise malformed(had)
    nested = header.get("parameters")
    if nested is None:
        nested = {}
    if not isinstance(nested, dict):
        raise malformed("header at parameters: expected an object")
    kind = OPERATIONS[op]
    given: dict[str, Any] = {}
    for name in kind.__struct_fields__:
        values = [fields[name] for fields in (header, nested) if fields.get(name) is not None]  # null: left out
        if len(values) > 1:
            raise malformed(f"header at {name}: given twice; expected it at the top level or in parameters")
        if values:
            (given[name],) = values
    return OpRequest(op, request_id, _convert(given, kind))


def _read_infer(header: InferHeader, raw: Sequence[Buffer], signature: Signature) -> InferRequest:
    try:
        if header.model_name != signature.model_name:
            _refuse_model(header.model_name, signature)
        usual = _usual_tensors(header.inputs, raw, signature)
        layout, frames, tensors, lent_in = usual or _read_tensors(header.inputs, raw, signature)
        outputs, lent_out = (
            _read_outputs(header.outputs, signature, frames) if header.outputs else (signature.output_names, {})
        )
    except ShishaError as error:
        error.request_id = header.id
        raise
    parameters = header.parameters or _NO_PARAMETERS
    asked = header.id, parameters.stream, parameters.sequence, parameters.deadline_ms
    size_bytes, priority, further = (
        sum(map(len, raw)),
        parameters.priority or 0,
        (parameters.traceparent, parameters.caller),
    )
    return InferRequest(*asked, tensors, outputs, size_bytes, layout, lent_in, lent_out, frames, priority, *further)


def _read_tensors(
    headers: Sequence[TensorHeader], raw: Sequence[Buffer], signature: Signature
) -> tuple[int, int, dict[str, memoryview], dict[str, Lent]]:
    """Return the layout, the number of frames, and the inputs in the model's order: those in parts, and those lent."""
    are_lent = [header.parameters.shared_memory_region is not None for header in headers]
    if len(raw) + sum(are_lent) != len(headers):
        in_memory = f", {sum(are_lent)} of them in shared memory" if any(are_lent) else ""
        had = f"{len(raw)} raw parts for {len(headers)} inputs{in_memory}"
        raise malformed(f"message: {had}; expected one for each, in their order")
    layout, frames, order = arrange(headers, signature)
    parts = iter(raw)
    part_of = [None if is_lent else next(parts) for is_lent in are_lent]
    tensors: dict[str, memoryview] = {}
    lent: dict[str, Lent] = {}
    for i, frame_bytes in zip(order, signature.sizes[layout], strict=True):
        header, part, size_bytes = headers[i], part_of[i], frames * frame_bytes
        if part is None:
            lent[header.name] = _lent("inputs", i, header.name, header.parameters)
            if lent[header.name].size_bytes != size_bytes:
                what = "shared_memory_byte_size is not that of its shape and datatype"
                raise error_for(
                    Error.WRONG_SIZE, f"{tensor_at('inputs', i, header.name)}: {what}; expected {size_bytes}"
                )
        else:
            if not header.parameters.binary_data_size == len(part) == size_bytes:
                _refuse_size(i, header, part, size_bytes)
            tensors[header.name] = memoryview(part)
    return layout, frames, tensors, lent


def _usual_tensors(
    headers: Sequence[TensorHeader], raw: Sequence[Buffer], signature: Signature
) -> tuple[int, int, dict[str, memoryview], dict[str, Lent]] | None:
    """`_read_tensors` of the usual request, of one frame with inputs in the model's order; None for any other."""
    if signature.usual is None or len(headers) != len(signature.usual):
        return None
    tensors: dict[str, memoryview] = {}
    lent: dict[str, Lent] = {}
    for header, (name, shape, datatype, size_bytes) in zip(headers, signature.usual, strict=True):
        if header.name != name or header.shape != shape or header.datatype != datatype:
            return None
        data = header.parameters
        if data.shared_memory_region is not None:
            if data.shared_memory_byte_size != size_bytes or data.binary_data_size is not None:
                return None
            lent[name] = Lent(data.shared_memory_region, size_bytes, data.shared_memory_offset or 0)
        elif len(tensors) < len(raw) and data.binary_data_size == len(raw[len(tensors)]) == size_bytes:
            tensors[name] = memoryview(raw[len(tensors)])
        else:
            return None
    return (0, 1, tensors, lent) if len(tensors) == len(raw) else None


def _refuse_size(i: int, header: TensorHeader, part: Buffer, size_bytes: int) -> NoReturn:
    where = tensor_at("inputs", i, header.name)
    if header.parameters.binary_data_size != size_bytes:
        raise error_for(
            Error.WRONG_SIZE, f"{where}: binary_data_size is not that of its shape and datatype; expected {size_bytes}"
        )
    raise error_for(Error.WRONG_SIZE, f"{where}: its raw part has {len(part)} bytes; expected {size_bytes}")


def _lent(ends: str, i: int, name: str, said: TensorData) -> Lent:
    if said.shared_memory_byte_size is None or said.binary_data_size is not None:
        where = tensor_at(ends, i, name)
        raise malformed(f"{where}: in shared memory it has shared_memory_byte_size, and no binary_data_size")
    assert said.shared_memory_region is not None
    return Lent(said.shared_memory_region, said.shared_memory_byte_size, said.shared_memory_offset or 0)


def _read_outputs(
    requested: Sequence[RequestedOutput], signature: Signature, frames: int
) -> tuple[tuple[str, ...], dict[str, Lent]]:
    """Return the outputs' names, and the lent memory of those that go to it."""
    tensors = {tensor.name: tensor for tensor in signature.outputs}
    lent: dict[str, Lent] = {}
    chosen = check_outputs([output.name for output in requested], signature)
    for i, output in enumerate(requested):
        wanted_as = output.parameters or _WANTED_AS_USUAL
        if wanted_as.binary_data is not None and wanted_as.binary_data is not True:
            raise malformed(f"outputs[{i}]: binary_data is not true; expected true, as answers are always raw")
        if wanted_as.shared_memory_region is not None:
            tensor, piece = tensors[output.name], _lent("outputs", i, output.name, wanted_as)
            lent[output.name] = piece
            if not tensor.open_axes and piece.size_bytes < frames * tensor.size_bytes:
                what = f"shared_memory_byte_size is {piece.size_bytes}; expected {frames * tensor.size_bytes} or more"
                raise error_for(Error.REGION_TOO_SMALL, f"{tensor_at('outputs', i, output.name)}: {what}")
    return chosen, lent


def _refuse_model(name: str, signature: Signature) -> NoReturn:
    message = f"model_name: no model {as_sent(name)} is served; expected {as_sent(signature.model_name)}"
    raise error_for(Error.UNKNOWN_MODEL, message)


def _convert(fields: Mapping[str, Any], kind: type[_Header]) -> _Header:
    """Convert `fields` to a `kind`. Raises `ShishaError`."""
    try:
        return msgspec.convert(fields, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise malformed(_in_our_words(error)) from None


_OF_HEADER: Final = re.compile("^header( at |: )")
_WHERE: Final = re.compile(r" - at `\$\.?(?P<path>.*)`$")


def _in_our_words(error: Exception) -> str:
    """Reword msgspec's message, which has only JSON paths, types and bounds, so that the path comes first."""
    text = " ".join(str(error).split())  # it repeats keys as sent, so there may be line breaks
    match = _WHERE.search(text)
    what = text[: match.start()] if match else text
    for pattern, words in PATTERNS.items():
        what = what.replace(f"matching regex {pattern!r}", words)
    where = f"header at {match['path']}" if match and match["path"] else "header"
    return f"{where}: {what[:1].lower()}{what[1:]}".replace("`", "").replace(" | null", "")
