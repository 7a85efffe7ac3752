"""Segments of the cleaned model as sessions of their device's engine, in the device's precision.

In fp32 the engine optimises each segment by itself. In bf16 on ONNX Runtime, whose kernels compute in float32, nodes
are added that round every value. In int8 a segment computes integers, and is not optimised. Unlike a segment of the
engine's own graph of the model, such a segment may begin and end anywhere; but its session has private copies of its
weights, in the form that the engine's kernels need.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import onnx

from shisha_rt.errors import Failure
from shisha_rt.machine.device import Device, Precision
from shisha_rt.placement.segments import Segment
from shisha_rt.plan.engine import EngineName, is_openvino
from stages.built.clean_model import CleanModel
from stages.engines.bfloat16 import with_casts, with_rounding
from stages.engines.int8 import in_integers
from stages.engines.onnxruntime.options import as_built_options, open_session, optimising_options
from stages.engines.onnxruntime.session import OrtSession
from stages.engines.openvino.session import CompiledNetwork, OpenVinoSession, load_openvino, read_network
from stages.engines.session import ONE_THREAD, EngineSession, Threads


def build_session(model: CleanModel, segment: Segment, device: Device, threads: Threads = ONE_THREAD) -> EngineSession:
    """A session of the segment on `threads`, which inherit the niceness of the thread that builds and first runs it.

    Raises Failure if the device's engine is not installed or the processor does not have the precision, and ValueError
    for an operator that cannot be computed in the device's precision.
    """
    ends, weight_bytes = model.ends(segment), model.weight_bytes(segment)
    if _is_openvino(device):

        def compiled() -> CompiledNetwork:
            return CompiledNetwork(read_network(model.with_weights(model.cut(segment))), device.precision, threads)

        return OpenVinoSession(compiled, ends, weight_bytes)
    to_options = as_built_options if device.precision == "int8" else optimising_options
    cut = _ort_model(model, segment, device.precision).SerializeToString()
    return OrtSession(open_session(cut, to_options(str(model.folder), threads)), ends, weight_bytes)


def device_model(model: CleanModel, segment: Segment, device: Device) -> onnx.ModelProto:
    """The model that `build_session` opens, with its weights embedded, to be run elsewhere.

    Serialising the model fails beyond 2 GiB, protobuf's limit. Raises ValueError as `build_session` does.
    """
    cut = model.cut(segment) if _is_openvino(device) else _ort_model(model, segment, device.precision)
    return model.with_weights(cut)


def _ort_model(model: CleanModel, segment: Segment, precision: Precision) -> onnx.ModelProto:
    """The model that ONNX Runtime opens. In fp32 large weights stay in files of the model's folder."""
    cut = model.cut(segment)
    if precision == "fp32":
        return cut
    if precision == "int8":
        return in_integers(model.with_weights(cut), model.scales, model.partial)
    floats = {tensor.name for tensor in model.graph.tensors.values() if tensor.datatype == "FP32"}
    return with_rounding(model.with_weights(with_casts(cut)), floats)


def _is_openvino(device: Device) -> bool:
    return device.engine == "openvino" and device.precision != "int8"


def load_engines(engines: Iterable[EngineName]) -> None:
    """Load engines. Call this before the process is pinned: OpenVINO has at most as many threads as there are usable
    cores when it is loaded.

    Ignores an engine that is not installed; `build_session` raises Failure for it.
    """
    if any(map(is_openvino, engines)):
        with contextlib.suppress(Failure):
            load_openvino()
