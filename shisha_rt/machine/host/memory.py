"""Memory that this process may use, and processes that the kernel has killed for lack of memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from shisha_rt.machine.host.cgroups import ControlGroups
from shisha_rt.machine.host.kernel_files import text_of

_PART_FOR_FRAMES: Final = 2
_MEMINFO: Final = Path("/proc/meminfo")
_VMSTAT: Final = Path("/proc/vmstat")


def own_memory_bytes() -> int:
    """The host's memory, or the limit of this process's control groups if that is less."""
    host_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(host_bytes, ControlGroups().memory_limit_bytes() or host_bytes)


def available_memory_bytes() -> int:
    """What may be taken without anything being killed: of the host's memory, or, if less, of the control groups'.

    0 if the kernel does not report the host's, as when no descriptor is to be had.
    """
    lines = text_of(_MEMINFO).splitlines()
    available = next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), 0)
    left = ControlGroups().memory_left_bytes()
    return available if left is None else min(available, left)


def free_memory_ratio() -> float:
    return available_memory_bytes() / own_memory_bytes()


def frames_memory_bytes(said: int | None) -> int:
    """Memory that frames may use in one worker beyond its stages: `said`, by default half of `own_memory_bytes`."""
    return own_memory_bytes() // _PART_FOR_FRAMES if said is None else said


def kernel_kills() -> int:
    """How many processes the kernel has killed for lack of memory of the host or a control group; 0: unknown."""
    lines = text_of(_VMSTAT).splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
