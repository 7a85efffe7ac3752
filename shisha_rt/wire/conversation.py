"""The client's side of the protocol without a socket: what to send, and what a reply means.

The law: every request put in flight has exactly one outcome (a result, the fields of an answer, or an error), or is
abandoned and has none. A reply that matches nothing in flight is ignored; nothing is ever sent twice. Both faces of
the client, blocking and asyncio, drive this one class.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from shisha_rt.graph.datatypes import NUMPY_OF
from shisha_rt.graph.datatypes import size_bytes as tensor_size_bytes
from shisha_rt.graph.graph import Tensor
from shisha_rt.graph.input_sizes import shapes_in_words
from shisha_rt.plan.form import written
from shisha_rt.plan.plan import Plan
from shisha_rt.wire.exceptions import Internal, InvalidArgument, ShishaError, Unavailable, error_of
from shisha_rt.wire.header import (
    Buffer,
    InferParameters,
    TensorHeader,
    decode_fields,
    decode_head,
    decode_infer_answer,
    encode_infer,
    encode_operation,
)
from shisha_rt.wire.limits import MAX_DEADLINE_MS
from shisha_rt.wire.operations import INFER
from shisha_rt.wire.request import Signature

Array: TypeAlias = NDArray[Any]
Inputs: TypeAlias = Array | Mapping[str, Array]
"""The input of a frame: one array where the model has one input, else an array for each name."""


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """One frame's result. The arrays are read-only views of the message that came, each in the shape that it came in.

    `epoch` is the plan that made it, `frame` the daemon's own number, `sequence` what the request gave.
    """

    request_id: str
    outputs: Mapping[str, Array]
    epoch: int
    frame: int
    sequence: int | None
    queue_s: float
    compute_s: float

    @property
    def output(self) -> Array:
        """The output, where there is one; `ValueError` where there are several."""
        if len(self.outputs) != 1:
            raise ValueError(f"the answer has {len(self.outputs)} outputs: {', '.join(self.outputs)}; choose one")
        return next(iter(self.outputs.values()))


Stages: TypeAlias = Plan | Sequence[Mapping[str, Any]]
"""A plan, or its stages as `shisha-rt plan --json` prints them."""


def stages_of(plan: Stages) -> list[Mapping[str, Any]]:
    """What `plan_set` takes."""
    if isinstance(plan, Plan):
        return list(written(plan))
    return list(plan)


Fields: TypeAlias = dict[str, Any]
Outcome: TypeAlias = Answer | Fields | ShishaError
Settled: TypeAlias = tuple[str, Outcome]
"""A request's id and its one outcome."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request that is ready to be sent; it is in flight only after `Conversation.sent`."""

    id: str
    op: str
    parts: Sequence[Buffer]


class _MetadataTensor(Struct, frozen=True):
    name: str
    datatype: str
    shape: tuple[int, ...]

    def tensor(self) -> Tensor:
        """Axes whose size is -1 are open."""
        open_axes = tuple(axis for axis, size in enumerate(self.shape) if size < 0)
        return Tensor(self.name, tuple(max(0, size) for size in self.shape), self.datatype, open_axes)


class _ModelMetadata(Struct, frozen=True):
    name: str
    inputs: tuple[_MetadataTensor, ...]
    outputs: tuple[_MetadataTensor, ...]
    shapes: tuple[dict[str, tuple[int, ...]], ...] = ()

    def signature(self) -> Signature:
        inputs, outputs = (tuple(its.tensor() for its in ends) for ends in (self.inputs, self.outputs))
        if any(shapes.keys() != {tensor.name for tensor in inputs} for shapes in self.shapes):
            raise ValueError("a shape is for every input")
        shapes = tuple(tuple(replace(its, shape=of[its.name], open_axes=()) for its in inputs) for of in self.shapes)
        return Signature(self.name, inputs, outputs, shapes)


_SERVER_METADATA: Final = "server_metadata"
_MODEL_METADATA: Final = "model_metadata"
_PROBE: Final = "probe"
"""Not an operation but our mark on a `server_metadata` whose outcome is nobody's."""


class Conversation:
    """Requests in flight on one connection to one daemon, by id.

    `instance` (of the daemon) and `signature` (of its model) are None until `server_metadata` and `model_metadata`
    were answered, and again after a loss: whoever answers next may be another daemon with another model.
    """

    def __init__(self) -> None:
        self.instance: str | None = None
        self.signature: Signature | None = None
        self._in_flight: dict[str, str] = {}  # id -> op
        self._numbers = itertools.count(1)
        self._stream_numbers = itertools.count(1)

    @property
    def in_flight(self) -> int:
        """Requests without an outcome, a probe left out."""
        return sum(op != _PROBE for op in self._in_flight.values())

    def ask(self, op: str, arguments: Mapping[str, object] | None = None) -> Outgoing:
        """Any request but `infer`."""
        request_id = self._new_id()
        return Outgoing(request_id, op, [encode_operation(op, request_id, arguments)])

    def infer(
        self,
        inputs: Inputs,
        *,
        stream: str | None = None,
        sequence: int | None = None,
        deadline_s: float | None = None,
        outputs: Sequence[str] = (),
        request_id: str | None = None,
    ) -> Outgoing:
        """A frame. `signature` must be known. Raises `InvalidArgument` for inputs that the model does not take."""
        if self.signature is None:
            raise RuntimeError("the model's signature is not known yet")
        if request_id in self._in_flight:
            raise InvalidArgument(f"request id {request_id!r} is already in flight")
        if deadline_s is not None and not 0 <= deadline_s <= MAX_DEADLINE_MS / 1e3:
            raise InvalidArgument(f"deadline_s {deadline_s}; expected 0 to {MAX_DEADLINE_MS / 1e3:g}")
        arrays = arrays_of(inputs, self.signature)
        parameters = InferParameters(stream, sequence, None if deadline_s is None else deadline_s * 1e3)
        request_id = self._new_id() if request_id is None else request_id
        tensors = self.signature.each[_number(arrays, self.signature)]
        header = encode_infer(request_id, self.signature.model_name, tensors, parameters, outputs)
        return Outgoing(request_id, INFER, [header, *map(_raw, arrays)])

    def probe(self) -> Outgoing | None:
        """A question whose answer shows whether the daemon is still the same one, unless one is under way.

        Its outcome is nobody's. A daemon behind a proxy can be replaced without any connection being lost.
        """
        if _PROBE in self._in_flight.values():
            return None
        request_id = self._new_id()
        return Outgoing(request_id, _PROBE, [encode_operation(_SERVER_METADATA, request_id)])

    def sent(self, outgoing: Outgoing) -> None:
        self._in_flight[outgoing.id] = outgoing.op

    def abandon(self, request_id: str) -> Outgoing | None:
        """Nobody waits for it any more. Gives the request that tells the daemon so, where there is a point."""
        op = self._in_flight.pop(request_id, None)
        return self.ask("cancel", {"target": request_id}) if op == INFER else None

    def receive(self, parts: Sequence[Buffer]) -> list[Settled]:
        """What one message settles: nothing, its request, or with a changed instance all that was in flight."""
        try:
            head = decode_head(parts[0])
        except (IndexError, msgspec.MsgspecError, ValueError, RecursionError):
            return []
        op = self._in_flight.pop(head.id, None) if head.id is not None else None
        if head.id is None or op is None:
            return []
        outcome: Outcome
        lost: list[Settled] = []
        if head.error is not None:
            outcome = error_of(head.error.code, head.error.message, head.id)
        else:
            try:
                outcome = _answer(head.id, parts) if op == INFER else _fields(parts)
                lost = self._learn(op, outcome)
            except (msgspec.MsgspecError, ValueError, RecursionError):
                outcome = Internal("the daemon's answer does not follow the protocol", head.id)
        return lost if op == _PROBE else [*lost, (head.id, outcome)]

    def lose(self, reason: str) -> list[Settled]:
        """The daemon that had the requests in flight is gone: each ends `Unavailable`."""
        lost: list[Settled] = [
            (request_id, Unavailable(reason, request_id)) for request_id, op in self._in_flight.items() if op != _PROBE
        ]
        self._in_flight.clear()
        self.instance = self.signature = None
        return lost

    def _learn(self, op: str, outcome: Answer | Fields) -> list[Settled]:
        if isinstance(outcome, Answer):
            return []
        if op == _MODEL_METADATA:
            signature = msgspec.convert(outcome, _ModelMetadata).signature()
            if any(tensor.datatype not in NUMPY_OF for tensor in signature.inputs):
                raise ValueError("unknown datatype")
            self.signature = signature
            return []
        instance = outcome.get("instance") if op in (_SERVER_METADATA, _PROBE) else None
        if instance is None or instance == self.instance:
            return []
        changed = self.instance is not None
        lost = self.lose("the daemon was restarted while it had the request; it may have been run") if changed else []
        self.instance = instance
        return lost

    def new_stream(self) -> str:
        """A name that no other stream of this connection has got here."""
        return f"stream-{next(self._stream_numbers)}"

    def _new_id(self) -> str:
        return next(name for name in map(str, self._numbers) if name not in self._in_flight)


def arrays_of(inputs: Inputs, signature: Signature) -> list[Array]:
    """`inputs` in the model's order, C-contiguous. Values are never converted. Raises `InvalidArgument`."""
    expected = {tensor.name: tensor for tensor in signature.inputs}
    if not isinstance(inputs, Mapping):
        if len(expected) != 1:
            raise InvalidArgument(f"the model has {len(expected)} inputs; give a mapping with {', '.join(expected)}")
        inputs = dict.fromkeys(expected, inputs)
    if inputs.keys() != expected.keys():
        raise InvalidArgument(f"inputs {sorted(inputs)} do not match the model's; expected {sorted(expected)}")
    return [_checked(inputs[name], tensor) for name, tensor in expected.items()]


def _number(arrays: Sequence[Array], signature: Signature) -> int:
    """Of the shape that the arrays, in the order of the model, have together. Raises `InvalidArgument` for another."""
    if not signature.shapes:
        return 0
    number = signature.number_of([array.shape for array in arrays])
    if number is None:
        given = shapes_in_words({its.name: array.shape for its, array in zip(signature.inputs, arrays, strict=True)})
        raise InvalidArgument(f"shapes {given} are not served; expected one of {signature.served}")
    return number


def _checked(array: Array, tensor: Tensor) -> Array:
    where = f"input {tensor.name!r}"
    if not isinstance(array, np.ndarray):
        raise InvalidArgument(f"{where}: {type(array).__name__}; expected a numpy array")
    dtype = NUMPY_OF[tensor.datatype]
    if array.dtype != dtype:
        raise InvalidArgument(f"{where}: dtype {array.dtype}; expected {dtype}, as in array.astype({dtype.name!r})")
    if not tensor.open_axes and array.shape != tensor.shape:
        raise InvalidArgument(f"{where}: shape {array.shape}; expected {tensor.shape}")
    return np.asarray(array, order="C")


def _raw(array: Array) -> memoryview:
    """The bytes of a C-contiguous array, of any shape (none and empty too), without a copy."""
    return array.reshape(-1).view(np.uint8).data


def _answer(request_id: str, parts: Sequence[Buffer]) -> Answer:
    header = decode_infer_answer(parts[0])
    if len(parts) - 1 != len(header.outputs):
        raise ValueError("one raw part for each output")
    parameters = header.parameters
    return Answer(
        request_id=request_id,
        outputs={tensor.name: _array(tensor, part) for tensor, part in zip(header.outputs, parts[1:], strict=True)},
        epoch=parameters.epoch,
        frame=parameters.frame,
        sequence=parameters.sequence,
        queue_s=parameters.queue_ms * 1e-3,
        compute_s=parameters.compute_ms * 1e-3,
    )


def _array(tensor: TensorHeader, part: Buffer) -> Array:
    if tensor.datatype not in NUMPY_OF or tensor_size_bytes(tensor.datatype, tensor.shape) != len(part):
        raise ValueError("an output's bytes are not those of its shape and datatype")
    array = np.frombuffer(part, NUMPY_OF[tensor.datatype]).reshape(tensor.shape)
    array.flags.writeable = False
    return array


def _fields(parts: Sequence[Buffer]) -> Fields:
    fields = decode_fields(parts[0])
    del fields["id"]
    return fields
