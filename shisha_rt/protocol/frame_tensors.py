"""A frame's arrays, and how they are sent: as raw parts, or as locations in memory that the client lends.

Small tensors always go as raw parts. Of a large array in lent memory only the location is sent; any other is copied
there first, or sent as bytes if no lent memory is free. Large outputs come back the same way, if their shape is known
beforehand.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import astuple
from numpy.typing import DTypeLike, NDArray

from shisha_rt.errors import Error
from shisha_rt.model.graph import Tensor
from shisha_rt.protocol.exceptions import error_for
from shisha_rt.protocol.header import (
    Buffer,
    InferAnswerHeader,
    InferParameters,
    RequestedOutput,
    TensorData,
    TensorHeader,
    WantedAs,
    encode_infer,
)
from shisha_rt.protocol.signature import Signature
from shisha_rt.tensors import NAME_OF, NUMPY_OF

Array: TypeAlias = NDArray[Any]
Inputs: TypeAlias = Array | Mapping[str, Array]
"""The input of a frame: one array if the model has one input, else an array for each name."""

Shape: TypeAlias = int | tuple[int, ...]

LEAST_LENT_BYTES: Final = 64 << 10
"""Sending a smaller tensor's bytes is faster than finding its location and having the daemon look it up and copy it."""


class Lender(Protocol):
    """Memory that client and daemon share."""

    def empty(self, shape: Shape, dtype: DTypeLike) -> Array | None:
        """Return a new array there; None if no memory is free. Its memory is reused once nothing refers to it."""

    def copy(self, array: Array) -> tuple[TensorData, object] | None:
        """Copy an array; return the copy's location, valid while the object is kept; None if no memory is free."""

    def find(self, array: Array) -> TensorData | None:
        """Return an array's location in lent memory; None if it is elsewhere, or not contiguous."""

    def want(self, size_bytes: int) -> None:
        """Announce that `size_bytes` will be needed at once."""

    def meet(self, path: str | None, instance: str | None) -> None:
        """Begin with a new daemon, `instance`, whose socket to ask for memory is at `path`; None: it has none."""

    def forget(self) -> None:
        """Give up all that was shared, as the daemon is gone."""


class Answer(Struct, frozen=True, eq=False):
    """A request's result: read-only arrays, in the shapes that the daemon sent.

    `epoch`: the plan that computed it. `frame`: the daemon's own number. `sequence`: as given in the request. `epochs`:
    that of each frame, if a request of several frames was computed by several plans. `model_version`: of the model that
    computed it.
    """

    request_id: str
    outputs: Mapping[str, Array]
    epoch: int
    frame: int
    sequence: int | None
    queue_s: float
    compute_s: float
    epochs: tuple[int, ...] | None = None
    model_version: str = ""

    @property
    def output(self) -> Array:
        """The only output. Raises `ValueError` if there are several."""
        if len(self.outputs) != 1:
            raise ValueError(f"the answer has {len(self.outputs)} outputs: {', '.join(self.outputs)}; choose one")
        return next(iter(self.outputs.values()))


class LentTensors(Struct, frozen=True, eq=False):
    """The lent memory of a frame in flight, which is not reused as long as this object is kept.

    `inputs`: arrays of the caller in lent memory. `copies`: keep the copies of other inputs. `rooms`: by output's name,
    the location and array that the output goes to.
    """

    inputs: list[Array] = []
    copies: list[object] = []
    rooms: dict[str, tuple[TensorData, Array]] = {}

    def __bool__(self) -> bool:
        return bool(self.inputs or self.copies or self.rooms)


class FrameTensors:
    """Makes requests for one model. `lender`: shares memory with the daemon; None: none is shared."""

    def __init__(self, signature: Signature, lender: Lender | None) -> None:
        self.signature = signature
        self._lender = lender
        self._headers = [tuple(map(TensorHeader.of, tensors)) for tensors in signature.each]
        self._outputs = tuple(tensor.name for tensor in signature.outputs)
        self._large = {
            tensor.name: tensor
            for tensor in signature.outputs
            if not tensor.open_axes and tensor.datatype in NUMPY_OF and tensor.size_bytes >= LEAST_LENT_BYTES
        }
        if lender is not None:
            inputs_bytes = [tensor.size_bytes for tensor in signature.each[0]]
            outputs_bytes = [tensor.size_bytes for tensor in self._large.values()]
            large_bytes = sum(size for size in inputs_bytes + outputs_bytes if size >= LEAST_LENT_BYTES)
            if large_bytes:
                lender.want(large_bytes)

    def request(
        self, request_id: str, inputs: Inputs, parameters: InferParameters | None, outputs: Sequence[str]
    ) -> tuple[list[Buffer], LentTensors]:
        """The message's parts and lent memory. Raises `InvalidArgument` for inputs that do not fit the model."""
        arrays = arrays_of(inputs, self.signature)
        layout, frames = self.signature.number_of([array.shape for array in arrays]), 1
        if layout is None:
            names = (tensor.name for tensor in self.signature.inputs)
            layout, frames = self.signature.layout_of(
                {name: array.shape for name, array in zip(names, arrays, strict=True)}
            )
        headers = self._headers[layout]
        if frames > 1:
            headers = tuple(
                TensorHeader(header.name, array.shape, header.datatype, TensorData(array.nbytes))
                for header, array in zip(headers, arrays, strict=True)
            )
        lent = LentTensors()
        if self._lender is None:
            raw: list[Buffer] = list(map(raw_bytes, arrays))
            wanted = tuple(map(RequestedOutput, outputs))
        else:
            headers, raw = self._lend(self._lender, headers, arrays, lent)
            wanted = self._wanted(self._lender, outputs, lent, frames)
        header = encode_infer(request_id, self.signature.model_name, headers, parameters, wanted)
        return [header, *raw], lent

    def _lend(
        self, lender: Lender, headers: Sequence[TensorHeader], arrays: Sequence[Array], lent: LentTensors
    ) -> tuple[tuple[TensorHeader, ...], list[Buffer]]:
        placed: list[TensorHeader] = []
        raw: list[Buffer] = []
        for header, array in zip(headers, arrays, strict=True):
            place = _place(lender, array, lent) if array.nbytes >= LEAST_LENT_BYTES else None
            if place is None:
                placed.append(header)
                raw.append(raw_bytes(array))
            else:
                placed.append(TensorHeader(header.name, header.shape, header.datatype, place))
        return tuple(placed), raw

    def _wanted(
        self, lender: Lender, outputs: Sequence[str], lent: LentTensors, frames: int
    ) -> tuple[RequestedOutput, ...]:
        """The requested outputs, large ones in lent memory if some is free; if any is, all outputs are named."""
        for name in outputs or self._large:
            if name in self._large:
                tensor = self._large[name]
                shape = tensor.shape if frames == 1 else (frames * tensor.shape[0], *tensor.shape[1:])
                room = lender.empty(shape, NUMPY_OF[tensor.datatype])
                place = None if room is None else lender.find(room)
                if room is not None and place is not None:
                    lent.rooms[name] = place, room
        if not lent.rooms:
            return tuple(map(RequestedOutput, outputs))
        lent_to = {name: RequestedOutput(name, WantedAs(*astuple(place))) for name, (place, _) in lent.rooms.items()}
        return tuple(lent_to.get(name) or RequestedOutput(name) for name in outputs or self._outputs)


def is_large(shape: Shape, dtype: DTypeLike) -> bool:
    """Whether a tensor is large enough to be worth lending, and of a dtype that a model can have."""
    return np.dtype(dtype) in NAME_OF and bytes_of(shape, dtype) >= LEAST_LENT_BYTES


def bytes_of(shape: Shape, dtype: DTypeLike) -> int:
    """The size of an array. Raises `TypeError` for what is no shape."""
    # Not `SupportsIndex`: whether a value is of a protocol takes tens of microseconds to find out.
    sizes = shape if isinstance(shape, Iterable) else (shape,)
    return math.prod(map(operator.index, sizes)) * np.dtype(dtype).itemsize


def _place(lender: Lender, array: Array, lent: LentTensors) -> TensorData | None:
    place = lender.find(array)
    if place is not None:
        lent.inputs.append(array)
        return place
    copied = lender.copy(array)
    if copied is None:
        return None
    place, copy = copied
    lent.copies.append(copy)
    return place


def arrays_of(inputs: Inputs, signature: Signature) -> list[Array]:
    """`inputs` in the model's order, booleans made 0 or 1; shapes are not checked. Raises `InvalidArgument`."""
    tensors = signature.inputs
    if not isinstance(inputs, Mapping):
        if len(tensors) != 1:
            names = ", ".join(tensor.name for tensor in tensors)
            raise error_for(Error.MISSING_TENSOR, f"the model has {len(tensors)} inputs; give a mapping with {names}")
        return [_checked(inputs, tensors[0])]
    if len(inputs) != len(tensors) or any(tensor.name not in inputs for tensor in tensors):
        expected = sorted(tensor.name for tensor in tensors)
        given = sorted(map(str, inputs))
        raise error_for(Error.MISSING_TENSOR, f"inputs {given} do not match the model's; expected {expected}")
    return [_checked(inputs[tensor.name], tensor) for tensor in tensors]


def _checked(array: Array, tensor: Tensor) -> Array:
    if not isinstance(array, np.ndarray):
        raise error_for(Error.WRONG_DATATYPE, f"input {tensor.name!r}: {type(array).__name__}; expected a numpy array")
    # A masked array's mask would be lost. Numpy loads the module once it is named, which takes a descriptor and time.
    if "numpy.ma" in sys.modules and isinstance(array, np.ma.MaskedArray):
        expected = "expected a numpy array, as from array.filled()"
        raise error_for(Error.WRONG_DATATYPE, f"input {tensor.name!r}: a masked array; {expected}")
    dtype = NUMPY_OF[tensor.datatype]
    if array.dtype != dtype:
        expected = f"expected {dtype}, as in array.astype({dtype.name!r})"
        raise error_for(Error.WRONG_DATATYPE, f"input {tensor.name!r}: dtype {array.dtype}; {expected}")
    if dtype == np.bool_:
        values: Array = array.view(np.uint8)
        if values.max(initial=0) > 1:  # as of a mask of 0 and 255: true for numpy, anything for an engine
            return np.not_equal(values, 0)
    return array


def raw_bytes(array: Array) -> memoryview:
    """The bytes of an array of any shape (scalar and empty, too) in C order; not copied if the array is in C order."""
    return np.asarray(array, order="C").reshape(-1).view(np.uint8).data


def answer_of(
    header: InferAnswerHeader, raw: Sequence[Buffer], rooms: Mapping[str, tuple[TensorData, Array]], version: str
) -> Answer:
    """Make an answer. `version`: of the model, for daemons that do not say it with each answer.

    Raises `ValueError` if parts do not match the header, or outputs are not where requested.
    """
    parts = iter(raw)
    parameters = header.parameters
    answer = Answer(
        request_id=header.id,
        outputs={
            tensor.name: _raw_array(tensor, next(parts, None))
            if tensor.parameters.shared_memory_region is None
            else _lent_array(tensor, rooms.get(tensor.name))
            for tensor in header.outputs
        },
        epoch=parameters.epoch,
        frame=parameters.frame,
        sequence=parameters.sequence,
        queue_s=parameters.queue_ms * 1e-3,
        compute_s=parameters.compute_ms * 1e-3,
        epochs=parameters.epochs,
        model_version=header.model_version or version,
    )
    if next(parts, None) is not None:
        raise ValueError("more raw parts than outputs")
    return answer


def _raw_array(tensor: TensorHeader, part: Buffer | None) -> Array:
    if part is None or tensor.datatype not in NUMPY_OF:
        raise ValueError("an output has no bytes, or is of an unknown datatype")
    try:
        array = np.ndarray(tensor.shape, NUMPY_OF[tensor.datatype], part)
    except TypeError:  # too few bytes
        raise ValueError("an output's bytes are not those of its shape and datatype") from None
    if array.nbytes != len(part):
        raise ValueError("an output's bytes are not those of its shape and datatype")
    array.flags.writeable = False
    return array


def _lent_array(tensor: TensorHeader, room: tuple[TensorData, Array] | None) -> Array:
    if room is None:
        raise ValueError("an output is in a region, and was not asked for there")
    place, array = room
    if (tensor.parameters, tensor.shape, tensor.datatype) != (place, array.shape, NAME_OF[array.dtype]):
        raise ValueError("an output is not where it was asked for, or has another shape or datatype")
    array.flags.writeable = False
    return array
