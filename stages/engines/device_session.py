"""A segment on a device becomes a session of the device's engine, in the device's precision."""

from __future__ import annotations

from shisha_rt.machine.device import Device
from shisha_rt.placement.segments import Segment
from stages.built.clean_model import CleanModel
from stages.engines.onnxruntime.session import bfloat16_session, float32_session
from stages.engines.openvino.session import openvino_session
from stages.engines.session import Session


def build_session(model: CleanModel, segment: Segment, device: Device, threads: int) -> Session:
    """The segment on `threads` threads. Raises Failure where the device's engine is not installed."""
    if device.engine == "openvino":
        return openvino_session(model, segment, device.precision, threads)
    if device.precision == "bf16":
        return bfloat16_session(model, segment, threads)
    return float32_session(model, segment, threads)
