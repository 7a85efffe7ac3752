"""A segment on a device becomes a session of the device's engine, in the device's precision."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import onnx

from shisha_rt.errors import Failure
from shisha_rt.machine.device import Device
from shisha_rt.placement.segments import Segment
from stages.built.clean_model import CleanModel
from stages.engines.onnxruntime.session import ort_session, session_model
from stages.engines.openvino.session import load_openvino, openvino_session
from stages.engines.session import ONE_THREAD, Session, Threads


def build_session(model: CleanModel, segment: Segment, device: Device, threads: Threads = ONE_THREAD) -> Session:
    """The segment on these threads, which inherit the niceness of who builds and first runs it.

    Raises Failure where the device's engine is not installed, and ValueError for an operator that is not computed in
    its precision.
    """
    if _is_openvino(device):
        return openvino_session(model, segment, device.precision, threads)
    return ort_session(model, segment, device.precision, threads)


def device_model(model: CleanModel, segment: Segment, device: Device) -> onnx.ModelProto:
    """What that session computes, for anybody who has the engine: its weights are inside. Raises ValueError as above.

    Serialising it fails beyond 2 GiB, where protobuf ends.
    """
    cut = model.cut(segment) if _is_openvino(device) else session_model(model, segment, device.precision)
    return model.with_weights(cut)


def _is_openvino(device: Device) -> bool:
    return device.engine == "openvino" and device.precision != "int8"


def load_engines(devices: Iterable[Device]) -> None:
    """Load the engines of devices before the process is pinned.

    OpenVINO has threads for the cores usable at that moment.

    An engine that is not installed is reported when it is asked to build something.
    """
    if any(device.engine == "openvino" for device in devices):
        with contextlib.suppress(Failure):
            load_openvino()
