"""Who used the CPU time of cores: our own processes, or others.

The kernel counts how long each core was busy, but not for which process. The rest, after subtracting the CPU time of
our own processes, was used by others: other programs, and other guests of the same hypervisor (stolen time). Busy time
is counted in ticks of 10 ms, so a figure over less than a second is rough.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

from shisha_rt.machine.host.kernel_files import text_of

_PROC: Final = Path("/proc")
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_IDLE_FIELDS: Final = frozenset({3, 4})  # idle and iowait, of a line of /proc/stat
_COUNTED_FIELDS: Final = 8  # the two behind them are guests' time, which is counted as user time already
_PROCESS_FIELDS: Final = slice(11, 15)  # utime, stime, and both of the children that were waited for


@dataclass(frozen=True, slots=True)
class CpuReading:
    """CPU times at `at_s` of a monotonic clock. `busy_s`: of some cores; `own_s`: of our processes.

    `clients_s`: of other processes that work for us (clients), by pid; they may come and go.
    """

    at_s: float
    core_count: int
    busy_s: float
    own_s: float
    clients_s: Mapping[int, float] = field(default_factory=dict)

    def others_s(self, before: CpuReading) -> float:
        """CPU seconds on these cores that others took since an earlier reading, stolen time included.

        Too low by what our own processes ran on different cores meanwhile, but never below 0.
        """
        known = self.clients_s.keys() & before.clients_s.keys()
        clients_s = sum(self.clients_s[pid] - before.clients_s[pid] for pid in known)
        return max(0.0, self.busy_s - before.busy_s - max(0.0, self.own_s - before.own_s) - max(0.0, clients_s))

    def others_ratio(self, before: CpuReading) -> float:
        """`others_s` as a share of all CPU time that the cores had, 0 to 1."""
        possible_s = (self.at_s - before.at_s) * self.core_count
        return min(1.0, self.others_s(before) / possible_s) if possible_s > 0 else 0.0


def read_cpu_use(
    cores: Collection[int], processes: Iterable[int], at_s: float, proc: Path = _PROC, *, clients: Iterable[int] = ()
) -> CpuReading:
    """Read the CPU times so far. `processes`: pids of ours; each counts with the children that it has waited for, and
    not at all once it has ended. `clients`: pids of other processes that work for us.
    """
    own_s = sum(_process_s(pid, proc) for pid in processes)
    return CpuReading(at_s, len(cores), _busy_s(cores, proc), own_s, {pid: _process_s(pid, proc) for pid in clients})


def family(root: int, proc: Path = _PROC) -> Iterator[int]:
    """Yield the pids of `root` and its descendants, as far as each was started from its parent's main thread."""
    yield root
    listed = proc / str(root) / "task" / str(root) / "children"
    if not listed.exists() and proc == _PROC:  # a kernel without these lists: search all processes
        with contextlib.suppress(psutil.Error):
            yield from (child.pid for child in psutil.Process(root).children(recursive=True))
        return
    for child in text_of(listed).split():
        yield from family(int(child), proc)


def _busy_s(cores: Collection[int], proc: Path) -> float:
    ticks = 0
    for line in text_of(proc / "stat").splitlines():
        if not line.startswith("cpu"):
            break  # lists of interrupts follow, which are long
        name, *fields = line.split()
        if name[3:].isdigit() and int(name[3:]) in cores:
            ticks += sum(int(field) for i, field in enumerate(fields[:_COUNTED_FIELDS]) if i not in _IDLE_FIELDS)
    return ticks / _TICKS_PER_S


def _process_s(pid: int, proc: Path) -> float:
    fields = text_of(proc / str(pid) / "stat").rpartition(")")[2].split()  # a name may hold spaces and brackets
    return sum(map(int, fields[_PROCESS_FIELDS])) / _TICKS_PER_S
