"""The job of a profile of partitions, and its answers: JSON lines, as in `calibration`."""

from __future__ import annotations

import msgspec

from shisha_rt.machine.device import Device
from shisha_rt.messages.calibration import MeasuringJob, SpanTime


class PartitionProfilingJob(MeasuringJob, frozen=True, kw_only=True):
    """Run each of `partitions` of the cleaned model in `model_folder` by itself on each of `devices`.

    A partition is the indices of its operators, ascending.
    """

    model_folder: str
    devices: tuple[Device, ...]
    partitions: tuple[tuple[int, ...], ...]


class PartitionsTimed(msgspec.Struct, frozen=True, tag="partitions_timed"):
    """The last line: `times` (partitions, devices), in the job's order; None if a device cannot run a partition."""

    times: tuple[tuple[SpanTime | None, ...], ...]
