"""Tensors by name, shape and datatype; datatypes have the names of the KServe Open Inference Protocol v2. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np

NUMPY_OF: Final[dict[str, np.dtype[Any]]] = {
    "BOOL": np.dtype(np.bool_),
    "INT8": np.dtype("<i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "UINT8": np.dtype("<u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
}
NAME_OF: Final[dict[np.dtype[Any], str]] = {dtype: name for name, dtype in NUMPY_OF.items()}
OF_WEIGHTS_ALONE: Final[dict[str, int]] = {
    "BFLOAT16": 16,
    "FLOAT8E4M3FN": 8,
    "FLOAT8E4M3FNUZ": 8,
    "FLOAT8E5M2": 8,
    "FLOAT8E5M2FNUZ": 8,
    "INT4": 4,
    "UINT4": 4,
    "INT2": 2,
    "UINT2": 2,
}
"""Bits of a value of the datatypes, by ONNX's names, that weights may have and tensors of run time may not."""
_BITS: Final = {name: 8 * dtype.itemsize for name, dtype in NUMPY_OF.items()} | OF_WEIGHTS_ALONE


def size_bytes(datatype: str, shape: Sequence[int]) -> int:
    """Bytes of a dense tensor; `datatype` is a key of `NUMPY_OF` or `OF_WEIGHTS_ALONE`."""
    return -(-math.prod(shape) * _BITS[datatype] // 8)


def is_packed(datatype: str) -> bool:
    """Whether several values share a byte."""
    return _BITS[datatype] < 8


class Tensor(msgspec.Struct, frozen=True):
    """A dense tensor of a graph: its name there, shape and datatype.

    The shape is static except along `open_axes`, where sizes depend on the data and `shape` has what one run showed.
    `made_up`: for an input that is one integer, the value with which the model runs if no real values are at hand.
    """

    name: str
    shape: tuple[int, ...]
    datatype: str
    open_axes: tuple[int, ...] = ()
    made_up: int = 0

    @property
    def sizes(self) -> list[int]:
        """The shape with -1 along open axes, as metadata has it."""
        return [-1 if axis in self.open_axes else size for axis, size in enumerate(self.shape)]

    @property
    def size_bytes(self) -> int:
        return size_bytes(self.datatype, self.shape)


def of_no_size(name: str) -> Tensor:
    """What stands for a sequence or an optional: no stage hands it on, as it does no tensor whose size is open."""
    return Tensor(name, (0,), "UINT8", open_axes=(0,))
