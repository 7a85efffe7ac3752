"""CPU time and memory of other processes, observed from outside."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

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


def family(pid: int) -> list[psutil.Process]:
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


def family_cpu_s(pid: int) -> float:
    """CPU time of a process and its present descendants so far."""
    spent_s = 0.0
    for process in family(pid):
        with contextlib.suppress(OSError):  # it has ended
            spent_s += whole_cpu_s(process.pid)
    return spent_s


def whole_pss_bytes(pid: int) -> int:
    """Memory of a process and all its descendants, with shared pages counted once."""
    pss_bytes = 0
    for process in family(pid):
        with contextlib.suppress(psutil.NoSuchProcess):  # a job that has just ended
            pss_bytes += process.memory_full_info().pss
    return pss_bytes


def private_mib(pid: int) -> float:
    """Private memory of a process. Raises as `/proc` does, or ProcessLookupError, if it has ended."""
    status = Path(f"/proc/{pid}/status").read_text()
    private = [line.split()[1] for line in status.splitlines() if line.startswith("RssAnon:")]
    if not private:  # the process has no memory any more
        raise ProcessLookupError(pid)
    return int(private[0]) / 1024
