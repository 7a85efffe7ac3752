"""A segment as ONNX Runtime runs it: a cut of the cleaned model that the engine optimises for itself.

In fp32 the cut is run as it stands. In bf16 nodes that round every value are added, as the engine's own kernels compute
in float32. In int8 it computes integers, and is not optimised. Unlike a stage of ONNX Runtime's optimised graph
(`segment`), a session has private copies of its weights, in the form that its kernels need; in exchange it may begin
and end anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import onnx
import onnxruntime as ort

from shisha_rt.machine.device import Precision
from shisha_rt.model.graph import Tensor
from shisha_rt.placement.segments import Segment
from shisha_rt.tensors import NUMPY_OF
from stages.built.clean_model import CleanModel
from stages.engines.bfloat16 import with_casts, with_rounding
from stages.engines.bound_arrays import SegmentEnds
from stages.engines.int8 import in_integers
from stages.engines.onnxruntime.options import as_built_options, optimising_options
from stages.engines.session import ONE_THREAD, Array, Bound, Threads

PROVIDERS: Final = ["CPUExecutionProvider"]


def ort_session(model: CleanModel, segment: Segment, precision: Precision, threads: Threads = ONE_THREAD) -> OrtSession:
    """Build a session. Raises ValueError for an operator that cannot be computed in the precision."""
    cut = session_model(model, segment, precision).SerializeToString()
    to_options = as_built_options if precision == "int8" else optimising_options
    options = to_options(str(model.folder), threads)
    return OrtSession(ort.InferenceSession(cut, options, PROVIDERS), model, segment)


def session_model(model: CleanModel, segment: Segment, precision: Precision) -> onnx.ModelProto:
    """The model of a session. In fp32 its weights may be in the model's folder; in int8 it must not be optimised.

    Raises ValueError as above.
    """
    cut = model.cut(segment)
    if precision == "fp32":
        return cut
    if precision == "int8":
        return in_integers(model.with_weights(cut), model.scales, model.partial)
    floats = {tensor.name for tensor in model.graph.tensors.values() if tensor.datatype == "FP32"}
    return with_rounding(model.with_weights(with_casts(cut)), floats)


class OrtSession(SegmentEnds):
    """A built segment."""

    def __init__(self, session: ort.InferenceSession, model: CleanModel, segment: Segment) -> None:
        super().__init__(model, segment)
        self._session = session

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Bound:
        self.check(inputs, outputs)
        binding = self._session.io_binding()
        for tensor, array in zip(self.inputs, inputs, strict=True):
            binding.bind_input(*_place(tensor, array))
        for tensor, array in zip(self.outputs, outputs, strict=True):
            binding.bind_output(*_place(tensor, array))
        return _Binding(self._session, binding, (*inputs, *outputs))


@dataclass(frozen=True, slots=True)
class _Binding:
    """A bound session. It keeps the arrays alive, as the engine has only their addresses."""

    session: ort.InferenceSession
    binding: ort.IOBinding
    arrays: tuple[Array, ...]

    def __call__(self) -> None:
        self.session.run_with_iobinding(self.binding)


def _place(tensor: Tensor, array: Array) -> tuple[object, ...]:
    return tensor.name, "cpu", 0, NUMPY_OF[tensor.datatype].type, tensor.shape, array.ctypes.data
