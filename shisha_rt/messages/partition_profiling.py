"""What the daemon asks of a profile of partitions, and what it answers: JSON lines, as `calibration` has them."""

from __future__ import annotations

import msgspec

from shisha_rt.machine.device import Device
from shisha_rt.messages.calibration import Rounds, SpanTime


class PartitionProfilingJob(Rounds, frozen=True):
    """Run each of `partitions` of the cleaned model in `model_folder` by itself on each of `devices`, on `cores`.

    A partition is its operators, ascending. Devices have `threads` threads at most. Each core of `neighbours` is kept
    busy with the model meanwhile. `lead` is a team's (see `CalibrationJob`).
    """

    model_folder: str
    cores: tuple[int, ...]
    threads: int
    devices: tuple[Device, ...]
    partitions: tuple[tuple[int, ...], ...]
    neighbours: tuple[int, ...] = ()
    lead: tuple[int, ...] = ()


class PartitionsTimed(msgspec.Struct, frozen=True, tag="partitions_timed"):
    """The last line: (partitions,) of (devices,), in the order of the job; None where a device cannot run one."""

    times: tuple[tuple[SpanTime | None, ...], ...]
