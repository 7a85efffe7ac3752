"""Builds a segment as a session of its device's engine, in the device's precision."""

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
    """A session of the segment on these threads, which inherit the niceness of the one that builds and first runs it.

    Raises Failure if the device's engine is not installed, and ValueError for an operator that cannot be computed in
    the device's precision.
    """
    if _is_openvino(device):
        return openvino_session(model, segment, device.precision, threads)
    return ort_session(model, segment, device.precision, threads)


def device_model(model: CleanModel, segment: Segment, device: Device) -> onnx.ModelProto:
    """The model of that session, with its weights embedded, to be run elsewhere. Raises ValueError as above.

    Serialising it fails beyond 2 GiB, protobuf's limit.
    """
    cut = model.cut(segment) if _is_openvino(device) else session_model(model, segment, device.precision)
    return model.with_weights(cut)


def _is_openvino(device: Device) -> bool:
    return device.engine == "openvino" and device.precision != "int8"


def load_engines(devices: Iterable[Device]) -> None:
    """Load the engines of devices; to be called before the process is pinned.

    OpenVINO's threads are limited to the number of cores that are usable at that moment. An engine that is not
    installed is reported later, when it is to build a session.
    """
    if any(device.engine == "openvino" for device in devices):
        with contextlib.suppress(Failure):
            load_openvino()
