"""A segment on a device becomes a session of the device's engine, in the device's precision."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence

from shisha_rt.errors import Failure
from shisha_rt.machine.device import Device
from shisha_rt.placement.segments import Segment
from stages.built.clean_model import CleanModel
from stages.engines.onnxruntime.session import bfloat16_session, float32_session, int8_session
from stages.engines.openvino.session import load_openvino, openvino_session
from stages.engines.session import Session


def build_session(
    model: CleanModel, segment: Segment, device: Device, threads: int, cores: Sequence[int] = ()
) -> Session:
    """The segment on `threads` threads, of which one is the caller's; `cores` are for all of them, the caller's first.

    Without `cores` they run where the process may. Threads inherit the niceness of who builds and first runs it.
    Raises Failure where the device's engine is not installed, and ValueError for an operator that is not computed in
    its precision.
    """
    if device.precision == "int8":
        return int8_session(model, segment, threads, cores)
    if device.engine == "openvino":
        return openvino_session(model, segment, device.precision, threads, cores)
    if device.precision == "bf16":
        return bfloat16_session(model, segment, threads, cores)
    return float32_session(model, segment, threads, cores)


def load_engines(devices: Iterable[Device]) -> None:
    """To be called before the process is pinned: OpenVINO has threads for the cores that it then may use, no more.

    One that is not installed is told of when it is to build something.
    """
    if any(device.engine == "openvino" for device in devices):
        with contextlib.suppress(Failure):
            load_openvino()
