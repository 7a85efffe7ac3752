"""Checks of arrays before an engine gets their addresses, which it does not check."""

from __future__ import annotations

from collections.abc import Sequence

from shisha_rt.placement.segments import Segment
from shisha_rt.tensors import NUMPY_OF, Tensor
from stages.built.clean_model import CleanModel
from stages.engines.session import Array


class SegmentEnds:
    """The tensors at both ends of a segment, in the order in which arrays are bound to its session."""

    def __init__(self, model: CleanModel, segment: Segment) -> None:
        self.input_names, self.output_names = segment.inputs, segment.outputs
        self.inputs = [model.graph.tensors[name] for name in segment.inputs]
        self.outputs = [model.graph.tensors[name] for name in segment.outputs]

    def check(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Raises ValueError unless the arrays fit (see `check_fits`)."""
        check_fits(self.inputs, inputs)
        check_fits(self.outputs, outputs)


def check_fits(tensors: Sequence[Tensor | Tensor], arrays: Sequence[Array]) -> None:
    """Raises ValueError unless there is one array for each tensor, of its shape and datatype, and row-major."""
    for tensor, array in zip(tensors, arrays, strict=True):
        fits = array.shape == tensor.shape and array.dtype == NUMPY_OF[tensor.datatype]
        if not fits or not array.flags.c_contiguous:
            layout = "row-major" if array.flags.c_contiguous else "not row-major"
            raise ValueError(f"tensor {tensor.name!r} is {tensor.datatype} {tensor.shape}, row-major; "
                             f"its array is {array.dtype} {array.shape}, {layout}")  # fmt: skip
