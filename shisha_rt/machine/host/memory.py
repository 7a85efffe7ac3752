"""Memory of this host, as far as this process may have it, and what the kernel does where there is none left."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from shisha_rt.machine.host.cgroups import ControlGroups

_PART_FOR_FRAMES: Final = 2
_VMSTAT: Final = Path("/proc/vmstat")


def own_memory_bytes() -> int:
    """The host's memory, or the limit of this process's control groups if that is less."""
    host_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(host_bytes, ControlGroups().memory_limit_bytes() or host_bytes)


def frames_memory_bytes(said: int | None) -> int:
    """What frames may take in one worker beyond its stages: as is `said`, or half of the memory that there is."""
    return own_memory_bytes() // _PART_FOR_FRAMES if said is None else said


def kernel_kills() -> int:
    """How many processes the kernel has killed so far as memory had run out, here or in a control group.

    0 where it does not say.
    """
    try:
        lines = _VMSTAT.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
