"""The jobs of profiles of devices and of partitions, and their answers: JSON lines, as in `calibration`."""

from __future__ import annotations

import msgspec

from shisha_rt.machine.device import Device
from shisha_rt.messages.calibration import MeasuringJob, SpanTime
from shisha_rt.placement.device_profile import Run


class DeviceProfilingJob(MeasuringJob, frozen=True, kw_only=True):
    """Run the whole cleaned model in `model_folder`, its operators divided among `devices`.

    A run is (operators,) indices of devices. `node_runs` is (devices,), or empty: in each device's run the engine's
    profiler also times the operators of that device.
    """

    model_folder: str
    devices: tuple[Device, ...]
    node_runs: tuple[tuple[int, ...], ...]
    edge_runs: tuple[tuple[int, ...], ...]


class Profiled(msgspec.Struct, frozen=True, tag="profiled"):
    """The last line: times of the runs, in the order of the job; medians over all rounds.

    If `incapable` is not empty, nothing was run: it is (devices,), the operators of each device's own run that the
    device cannot run, or computes wrong. `reasons` (devices,): why, in words; empty for a device without any.
    """

    node_runs: tuple[Run, ...] = ()
    edge_runs: tuple[Run, ...] = ()
    incapable: tuple[tuple[int, ...], ...] = ()
    reasons: tuple[str, ...] = ()


class PartitionProfilingJob(MeasuringJob, frozen=True, kw_only=True):
    """Run each of `partitions` (operators, ascending) of the model in `model_folder` alone on each of `devices`."""

    model_folder: str
    devices: tuple[Device, ...]
    partitions: tuple[tuple[int, ...], ...]


class PartitionsTimed(msgspec.Struct, frozen=True, tag="partitions_timed"):
    """The last line: `times` (partitions, devices), in the job's order; None if a device cannot run a partition."""

    times: tuple[tuple[SpanTime | None, ...], ...]
