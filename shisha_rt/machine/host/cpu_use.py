"""Whose CPU time cores were busy with: that of a family of processes, or that of others.

The kernel counts how long each core was busy, for whom it does not say. What is left of that after subtracting the CPU
time of our own processes was taken by others: programs beside ours, and other guests of the same hypervisor (stolen
time). The first is counted in ticks of 10 ms, so that a figure over less than a second is rough.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_IDLE_FIELDS: Final = frozenset({3, 4})  # idle and iowait, of a line of /proc/stat
_COUNTED_FIELDS: Final = 8  # the two behind them are guests' time, which is counted as user time already
_PROCESS_FIELDS: Final = slice(11, 15)  # utime, stime, and both of the children that were waited for


@dataclass(frozen=True, slots=True)
class CpuReading:
    """At `at_s` of a monotonic clock: seconds that some cores have been busy, and that our processes have run."""

    at_s: float
    core_count: int
    busy_s: float
    own_s: float

    def others_s(self, before: CpuReading) -> float:
        """CPU seconds on these cores that others took since an earlier reading, stolen time included.

        Too little by what our own processes ran on other cores meanwhile, never below 0.
        """
        return max(0.0, self.busy_s - before.busy_s - max(0.0, self.own_s - before.own_s))

    def others_ratio(self, before: CpuReading) -> float:
        """The same as a part of all that the cores could have given, 0 to 1."""
        possible_s = (self.at_s - before.at_s) * self.core_count
        return min(1.0, self.others_s(before) / possible_s) if possible_s > 0 else 0.0


def read_cpu_use(cores: Collection[int], processes: Iterable[int], at_s: float, proc: Path = _PROC) -> CpuReading:
    """What `cores` were busy with so far. `processes`: pids of ours; the time of children that they have waited for
    counts as theirs, and those that have ended do not count.
    """
    return CpuReading(at_s, len(cores), _busy_s(cores, proc), sum(_process_s(pid, proc) for pid in processes))


def family(root: int, proc: Path = _PROC) -> Iterator[int]:
    """The process `root`, its children and theirs: those that each has started from its main thread."""
    yield root
    for child in _text(proc / str(root) / "task" / str(root) / "children").split():
        yield from family(int(child), proc)


def _busy_s(cores: Collection[int], proc: Path) -> float:
    ticks = 0
    for line in _text(proc / "stat").splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in cores:
            ticks += sum(int(field) for i, field in enumerate(fields[:_COUNTED_FIELDS]) if i not in _IDLE_FIELDS)
    return ticks / _TICKS_PER_S


def _process_s(pid: int, proc: Path) -> float:
    fields = _text(proc / str(pid) / "stat").rpartition(")")[2].split()  # a name may hold spaces and brackets
    return sum(map(int, fields[_PROCESS_FIELDS])) / _TICKS_PER_S


def _text(path: Path) -> str:
    """Empty where there is no such file, or no more, or it may not be read."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
