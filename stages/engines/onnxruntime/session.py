"""A segment as ONNX Runtime runs it: a cut of the cleaned model that the engine optimises for itself.

In fp32 as it stands; in bf16 with every value rounded, which the engine's own kernels could not do: they compute in
float32; in int8 as integers, which is not optimised. Other than a stage of ONNX Runtime's optimised graph (`segment`),
a session has private copies of its weights, in the form that its kernels want; in exchange it may begin and end
anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import onnxruntime as ort

from shisha_rt.graph.datatypes import NUMPY_OF
from shisha_rt.graph.graph import Tensor
from shisha_rt.placement.segments import Segment
from stages.built.clean_model import CleanModel
from stages.engines.bfloat16 import with_casts, with_rounding
from stages.engines.bound_arrays import SegmentEnds
from stages.engines.int8 import in_integers
from stages.engines.onnxruntime.options import as_built_options, optimising_options
from stages.engines.session import Array, Bound

PROVIDERS: Final = ["CPUExecutionProvider"]


def float32_session(model: CleanModel, segment: Segment, threads: int, cores: Sequence[int] = ()) -> OrtSession:
    cut = model.cut(segment).SerializeToString()
    return _session(cut, model, segment, threads, cores)


def bfloat16_session(model: CleanModel, segment: Segment, threads: int, cores: Sequence[int] = ()) -> OrtSession:
    floats = {tensor.name for tensor in model.graph.tensors.values() if tensor.datatype == "FP32"}
    cut = with_rounding(model.with_weights(with_casts(model.cut(segment))), floats).SerializeToString()
    return _session(cut, model, segment, threads, cores)


def int8_session(model: CleanModel, segment: Segment, threads: int, cores: Sequence[int] = ()) -> OrtSession:
    """Raises ValueError for an operator that is not computed in int8."""
    cut = in_integers(model.with_weights(model.cut(segment)), model.scales).SerializeToString()
    options = as_built_options(threads, str(model.folder), cores)
    return OrtSession(ort.InferenceSession(cut, options, PROVIDERS), model, segment)


def _session(cut: bytes, model: CleanModel, segment: Segment, threads: int, cores: Sequence[int]) -> OrtSession:
    options = optimising_options(threads, str(model.folder), cores)
    return OrtSession(ort.InferenceSession(cut, options, PROVIDERS), model, segment)


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
    """The engine knows the arrays by their addresses alone, so they are kept here."""

    session: ort.InferenceSession
    binding: ort.IOBinding
    arrays: tuple[Array, ...]

    def __call__(self) -> None:
        self.session.run_with_iobinding(self.binding)


def _place(tensor: Tensor, array: Array) -> tuple[object, ...]:
    return tensor.name, "cpu", 0, NUMPY_OF[tensor.datatype].type, tensor.shape, array.ctypes.data
