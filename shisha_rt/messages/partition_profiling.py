"""What the daemon asks of a profile of partitions, and what it answers: JSON lines, as `calibration` has them."""

from __future__ import annotations

import msgspec

from shisha_rt.machine.device import Device
from shisha_rt.messages.calibration import MeasuringJob, SpanTime


class PartitionProfilingJob(MeasuringJob, frozen=True, kw_only=True):
    """Run each of `partitions` of the cleaned model in `model_folder` by itself on each of `devices`.

    A partition is its operators, ascending.
    """

    model_folder: str
    devices: tuple[Device, ...]
    partitions: tuple[tuple[int, ...], ...]


class PartitionsTimed(msgspec.Struct, frozen=True, tag="partitions_timed"):
    """The last line: (partitions,) of (devices,), in the order of the job; None where a device cannot run one."""

    times: tuple[tuple[SpanTime | None, ...], ...]
