"""Builds a segment of the cleaned model as a session of its device's engine, in the device's precision.

In fp32 the engine optimises the segment for itself. In bf16 on ONNX Runtime nodes that round every value are added, as
its own kernels compute in float32. In int8 the segment computes integers, and is not optimised. Unlike a segment of the
engine's own graph of the model, such a session has private copies of its weights, in the form that its kernels need; in
exchange it may begin and end anywhere.
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
    """A session of the segment on these threads, which inherit the niceness of the one that builds and first runs it.

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
    """The model of that session, with its weights embedded, to be run elsewhere. Raises ValueError as above.

    Serialising it fails beyond 2 GiB, protobuf's limit.
    """
    cut = model.cut(segment) if _is_openvino(device) else _ort_model(model, segment, device.precision)
    return model.with_weights(cut)


def _ort_model(model: CleanModel, segment: Segment, precision: Precision) -> onnx.ModelProto:
    """The model of a session of ONNX Runtime. In fp32 its weights may be in the model's folder."""
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
    """Load engines; to be called before the process is pinned.

    OpenVINO's threads are limited to the number of cores that are usable at that moment. An engine that is not
    installed is reported later, when it is to build a session.
    """
    if any(map(is_openvino, engines)):
        with contextlib.suppress(Failure):
            load_openvino()
