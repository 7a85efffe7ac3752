"""The CPU time of another process, of its main thread and of others, with a resolution of nanoseconds."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROCESS_CLOCK: Final = 2  # of clock_getcpuclockid(3): scheduler's time of a process


@dataclass(frozen=True, slots=True)
class CpuTime:
    """`main_s`: of the main thread. `rest_s`: of all others, above all ZeroMQ's I/O thread."""

    main_s: float
    rest_s: float

    def since(self, earlier: CpuTime) -> CpuTime:
        return CpuTime(self.main_s - earlier.main_s, self.rest_s - earlier.rest_s)


def cpu_time(pid: int) -> CpuTime:
    """CPU time of the threads of `pid` so far, with threads that have ended."""
    main_s = int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9
    return CpuTime(main_s, max(0.0, whole_cpu_s(pid) - main_s))


def whole_cpu_s(pid: int) -> float:
    """CPU time of a process so far, with threads that have ended. Raises OSError if there is no such process."""
    return time.clock_gettime((~pid << 3) | _PROCESS_CLOCK)
