"""Limits of this process's control groups, and how long they kept it waiting; versions 1, 2, or both at once.

A group is also limited by its ancestors, so the folders of all of them are read. In a container only some are visible:
the group's own path may not exist there, and the mounted root is then the group itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shisha_rt.machine.host.kernel_files import number_in, text_of

_MOUNTED: Final = Path("/sys/fs/cgroup")
_OWN: Final = Path("/proc/self/cgroup")
_PRESSURE: Final = Path("/proc/pressure")
_NO_MEMORY_LIMIT: Final = 1 << 60  # version 1 writes none as the largest number of pages


@dataclass(frozen=True, slots=True)
class Throttling:
    """Since the groups were made: periods in which anything ran, how many of them were throttled, and for how long.

    `throttled_s` adds up the cores that stood still, so it may grow faster than the clock.
    """

    periods: int = 0
    throttled_periods: int = 0
    throttled_s: float = 0.0


class ControlGroups:
    """A process's control groups, as listed at construction. Each method reads the present values.

    `own`: file with the list of the process's groups; `mounted`: where controllers are mounted; `pressure`: folder of
    the whole host's pressure files.
    """

    def __init__(self, own: Path = _OWN, mounted: Path = _MOUNTED, pressure: Path = _PRESSURE) -> None:
        self._cpu_v1, self._memory_v1, self._v2 = list[Path](), list[Path](), list[Path]()
        for line in text_of(own).splitlines():
            _, controllers, path = line.split(":", 2)
            names = controllers.split(",")
            if controllers == "":
                hybrid = mounted / "unified"
                self._v2 = list(_upwards(hybrid if hybrid.is_dir() else mounted, path))
            if "cpu" in names:
                self._cpu_v1 = list(_upwards(mounted / "cpu", path))
            if "memory" in names:
                self._memory_v1 = list(_upwards(mounted / "memory", path))
        self._pressure = [folder / "cpu.pressure" for folder in self._v2[:1]] + [pressure / "cpu"]

    def quota_cores(self) -> float | None:
        """The lowest CPU quota of the group and its ancestors, in cores; None if there is none."""
        quotas = [quota for folder in self._v2 for quota in _ratio(*text_of(folder / "cpu.max").partition(" ")[::2])]
        for folder in self._cpu_v1:
            quotas += _ratio(text_of(folder / "cpu.cfs_quota_us"), text_of(folder / "cpu.cfs_period_us"))
        return min(quotas, default=None)

    def memory_limit_bytes(self) -> int | None:
        """The lowest memory limit of the group and its ancestors; None if there is none."""
        return min((limit for _, limit in self._memory_limits()), default=None)

    def memory_left_bytes(self) -> int | None:
        """The least that the group or an ancestor may still take below its limit; None if there is no limit.

        File pages that were not used lately do not count as taken: the kernel drops them first.
        """
        left = []
        for folder, limit in self._memory_limits():
            taken = number_in(folder / "memory.current") or number_in(folder / "memory.usage_in_bytes") or 0
            rows = dict(row for row in map(str.split, text_of(folder / "memory.stat").splitlines()) if len(row) == 2)
            # In version 1 only `total_` fields count the groups below, as both versions' sizes do.
            old = rows.get("total_inactive_file", rows.get("inactive_file", "0"))
            left.append(max(0, limit - max(0, taken - int(old))))
        return min(left, default=None)

    def _memory_limits(self) -> Iterator[tuple[Path, int]]:
        """The group and its ancestors as far as they limit memory, each with its limit in bytes."""
        files = [(folder, folder / "memory.max") for folder in self._v2]
        files += [(folder, folder / "memory.limit_in_bytes") for folder in self._memory_v1]
        for folder, file in files:
            limit = number_in(file)
            if limit is not None and limit < _NO_MEMORY_LIMIT:
                yield folder, limit

    def throttling(self) -> Throttling:
        """Sum the throttling counters of this group and all groups above it, as each may stop this process."""
        periods = throttled = 0
        throttled_s = 0.0
        for folder in (*self._v2, *self._cpu_v1):
            rows = (line.split() for line in text_of(folder / "cpu.stat").splitlines())
            counts = {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}
            periods += counts.get("nr_periods", 0)
            throttled += counts.get("nr_throttled", 0)
            throttled_s += counts.get("throttled_usec", 0) / 1e6 + counts.get("throttled_time", 0) / 1e9
        return Throttling(periods, throttled, throttled_s)

    def pressure_s(self) -> float | None:
        """Total seconds during which some thread of the group waited for a core; the host's if the group has no count.

        None if the kernel does not count that (pressure stall information, PSI).
        """
        for file in self._pressure:
            for line in text_of(file).splitlines():
                kind, *fields = line.split()
                values = dict(field.split("=", 1) for field in fields)
                if kind == "some" and values.get("total", "").isdigit():
                    return int(values["total"]) / 1e6
        return None


def _upwards(root: Path, path: str) -> Iterator[Path]:
    """The group's own folder and its ancestors, up to `root`."""
    folder = root / path.strip("/")
    while folder != root and root in folder.parents:
        yield folder
        folder = folder.parent
    yield root


def _ratio(quota: str, period: str) -> Iterator[float]:
    """The quota in cores; nothing if there is no limit, written as "max" (version 2) or -1 (version 1)."""
    if quota.strip().isdigit() and period.strip().isdigit() and int(period) > 0:
        yield int(quota) / int(period)
