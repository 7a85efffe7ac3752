"""Times of a segment's operators, by the profiler of the device's own engine.

Engines run fewer nodes than there are operators. The time of a fused node counts for its first heavy operator, or else
its first one; its other operators show 0. Profiling takes time itself and rounds down to microseconds, so only the
proportions can be trusted; the segment's true time is measured without it.
"""

from __future__ import annotations

from shisha_rt.machine.device import Device
from shisha_rt.placement.segments import Segment
from stages.built.clean_model import CleanModel
from stages.engines.onnxruntime.profiler import ort_operator_times
from stages.engines.openvino.profiler import openvino_operator_times
from stages.engines.session import Threads


def operator_times(
    model: CleanModel, segment: Segment, device: Device, threads: Threads, rounds: int
) -> tuple[float, ...]:
    """Seconds of each operator of the segment by the engine's own profiler, a mean over `rounds` runs on noise.

    An operator that was fused into another shows 0: its time counts for the other. Raises ValueError for a described
    device, whose costs are its formulas.
    """
    if device.described:
        raise ValueError(f"device {device.name!r} is described; expected one whose costs are measured")
    if device.engine == "openvino":
        return openvino_operator_times(model, segment, device.precision, threads.count, rounds)
    if device.precision != "fp32":
        raise ValueError(f"device {device.name!r}: ONNX Runtime only emulates {device.precision}; expected fp32")
    return ort_operator_times(model, segment, threads, rounds)
