"""Whether a model's tensors can fit this host at all, told before anything is allocated for them."""

from __future__ import annotations

import math
import os
from typing import Final

import onnx

from shisha_rt.errors import BadInput, Error
from shisha_rt.model.open_shapes import all_values, static_shape
from shisha_rt.model.reader.open_dims import runtime_inputs

_GB: Final = 1e9


def check_room(graph: onnx.GraphProto, sizes: str) -> None:
    """Raise BadInput if the inputs together, or any one tensor of known shape, are larger than this host's memory.

    Every engine has to hold these at once. `sizes`, in words, are those of the dimensions that the file leaves open; ''
    if there are none.
    """
    host_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    largest = max(all_values(graph), key=_bytes_of, default=onnx.ValueInfoProto())
    inputs_bytes = sum(_bytes_of(value) for value in runtime_inputs(graph))
    what, size_bytes = "its inputs", inputs_bytes
    if _bytes_of(largest) > inputs_bytes:
        what, size_bytes = f"tensor {largest.name!r}", _bytes_of(largest)
    with_sizes = f" with {sizes}" if sizes else ""
    if size_bytes > host_bytes:
        raise BadInput(
            f"{what} would take {size_bytes / _GB:.1f} GB{with_sizes};"
            f" expected at most {host_bytes / _GB:.1f} GB, this host's memory",
            Error.WRONG_SIZES if sizes else Error.MODEL_UNSUPPORTED,
        )


def _bytes_of(value: onnx.ValueInfoProto) -> int:
    """Bytes of a tensor; 0 if its shape or its datatype is not known."""
    datatype, shape = value.type.tensor_type.elem_type, static_shape(value)
    if shape is None or not datatype:
        return 0
    return math.prod(shape) * int(onnx.helper.tensor_dtype_to_np_dtype(datatype).itemsize)
