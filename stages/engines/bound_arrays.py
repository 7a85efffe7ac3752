"""What must hold of arrays before an engine gets their addresses, which it takes on trust."""

from __future__ import annotations

from collections.abc import Sequence

from shisha_rt.graph.datatypes import NUMPY_OF
from shisha_rt.graph.graph import Tensor
from stages.engines.session import Array


def check_fits(tensors: Sequence[Tensor], arrays: Sequence[Array]) -> None:
    """Raises ValueError unless there is one array for each tensor, of its shape and datatype, and row-major."""
    for tensor, array in zip(tensors, arrays, strict=True):
        fits = array.shape == tensor.shape and array.dtype == NUMPY_OF[tensor.datatype]
        if not fits or not array.flags.c_contiguous:
            layout = "row-major" if array.flags.c_contiguous else "not row-major"
            raise ValueError(f"tensor {tensor.name!r} is {tensor.datatype} {tensor.shape}, row-major; "
                             f"its array is {array.dtype} {array.shape}, {layout}")  # fmt: skip
