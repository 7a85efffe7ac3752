"""What the daemon asks of a profile of devices, and what it answers: JSON lines, as `calibration` has them."""

from __future__ import annotations

import msgspec

from shisha_rt.machine.device import Device
from shisha_rt.messages.calibration import MeasuringJob
from shisha_rt.placement.device_profile import Run


class DeviceProfilingJob(MeasuringJob, frozen=True, kw_only=True):
    """Run the whole cleaned model in `model_folder`, some operators on one of `devices`, some on another.

    A run is (operators,) indices of devices. `node_runs` is (devices,), or empty: in each the engine's profiler times
    the operators of that device too.
    """

    model_folder: str
    devices: tuple[Device, ...]
    node_runs: tuple[tuple[int, ...], ...]
    edge_runs: tuple[tuple[int, ...], ...]


class Profiled(msgspec.Struct, frozen=True, tag="profiled"):
    """The last line: what the runs took, in the order of the job; medians over `rounds` rounds.

    Nothing was run if there is `incapable`: (devices,) of the operators that each has in its own run and cannot run, or
    computes wrong. `reasons`: (devices,) why, in words; empty of a device that has none.
    """

    node_runs: tuple[Run, ...] = ()
    edge_runs: tuple[Run, ...] = ()
    rounds: int = 0
    incapable: tuple[tuple[int, ...], ...] = ()
    reasons: tuple[str, ...] = ()
