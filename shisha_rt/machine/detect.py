"""A machine as the operating system shows it: one unthrottled place for each core that we may use.

What a process may use is less than what the host has: the affinity mask says which cores, the cgroup's
quota how many at a time. A place too many would only make two stages take turns. Its processors may also count the
energy that they use. Shell.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shisha_rt.machine.machine import Machine, Memory, Place

# Favoured cores of one kind differ by a few percent in their top frequency; kinds of cores by much more.
_SAME_CLASS_RATIO: Final = 0.9

_CPUS: Final = Path("/sys/devices/system/cpu")
_CGROUPS: Final = Path("/sys/fs/cgroup")
_OWN_CGROUPS: Final = Path("/proc/self/cgroup")
_POWERCAP: Final = Path("/sys/class/powercap")


def usable_cores() -> tuple[int, ...]:
    """The cores of this process's affinity mask, ascending."""
    return tuple(sorted(os.sched_getaffinity(0)))


def this_machine(available: Collection[int] | None = None) -> Machine:
    """One place for each core of `available` (default: the affinity mask), within the cgroup's quota.

    Places are named after their cores, and ranked where the kernel tells fast cores from slow ones.
    Where the quota allows fewer places than there are cores, the fastest cores are taken.
    """
    cores = usable_cores() if available is None else tuple(sorted(available))
    ranks = core_ranks(cores)
    chosen = sorted(sorted(cores, key=lambda core: (ranks[core], core))[: place_count(len(cores), quota_cores())])
    places = tuple(
        Place(f"core{core}", cores=(core,), core_count=1, threads=1, speed=1.0, rank=ranks[core], memory="ram")
        for core in chosen
    )
    return Machine("this-machine", "this-machine", (Memory("ram"),), places)


def place_count(core_count: int, quota: float | None) -> int:
    """How many cores are worth a place of their own under a quota (in cores; None: no limit)."""
    return core_count if quota is None else max(1, min(core_count, math.ceil(quota)))


def core_ranks(cores: Sequence[int], cpus: Path = _CPUS) -> Mapping[int, int]:
    """Core -> rank of its class, 1 the fastest; all 1 where the kernel does not say for every core."""
    for file in ("cpu_capacity", "cpufreq/cpuinfo_max_freq"):
        figures = {core: _number(cpus / f"cpu{core}" / file) for core in cores}
        known = {core: figure for core, figure in figures.items() if figure is not None}
        if len(known) == len(cores):
            return _classes(known)
    return dict.fromkeys(cores, 1)


@dataclass(frozen=True, slots=True)
class EnergyCounter:
    """Of a processor package; after `wraps_at_j` it begins at 0 again."""

    used_j: float
    wraps_at_j: float


def energy_counters(powercap: Path = _POWERCAP) -> Mapping[str, EnergyCounter]:
    """The packages' own counters (RAPL), all that runs on them included; {} where there are none that we may read."""
    found = {}
    for zone in sorted(powercap.glob("intel-rapl:*")):
        if _text(zone / "name").startswith("package"):
            used_uj, wraps_at_uj = _number(zone / "energy_uj"), _number(zone / "max_energy_range_uj")
            if used_uj is not None and wraps_at_uj:
                found[zone.name] = EnergyCounter(1e-6 * used_uj, 1e-6 * wraps_at_uj)
    return found


def joules_between(before: Mapping[str, EnergyCounter], after: Mapping[str, EnergyCounter]) -> float:
    """What all packages used from one reading to a later one, less than one round of a counter later."""
    return math.fsum((its.used_j - before[zone].used_j) % its.wraps_at_j for zone, its in after.items())


def quota_cores(own: Path = _OWN_CGROUPS, root: Path = _CGROUPS) -> float | None:
    """The CPU quota of this process's cgroup, in cores; None where there is none."""
    return min(_quotas(own, root), default=None)


def _classes(figures: Mapping[int, float]) -> dict[int, int]:
    ranks: dict[int, int] = {}
    rank, fastest = 0, math.inf
    for core, figure in sorted(figures.items(), key=lambda item: -item[1]):
        if figure < fastest * _SAME_CLASS_RATIO:
            rank, fastest = rank + 1, figure
        ranks[core] = rank
    return ranks


def _quotas(own: Path, root: Path) -> Iterator[float]:
    """Every limit on the way up: a group's quota is also bounded by its parents'."""
    for line in _text(own).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            for folder in _upwards(root, path):
                quota, _, period = _text(folder / "cpu.max").partition(" ")
                yield from _ratio(quota, period)
        elif "cpu" in controllers.split(","):
            for folder in _upwards(root / "cpu", path):
                yield from _ratio(_text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us"))


def _upwards(root: Path, path: str) -> Iterator[Path]:
    """From the group's own folder up to the root's; in a container only some of them can be seen."""
    folder = root / path.strip("/")
    while folder != root and root in folder.parents:
        yield folder
        folder = folder.parent
    yield root


def _ratio(quota: str, period: str) -> Iterator[float]:
    """No limit is written "max" (cgroup v2) or -1 (v1)."""
    if quota.strip().isdigit() and period.strip().isdigit() and int(period) > 0:
        yield int(quota) / int(period)


def _number(path: Path) -> float | None:
    text = _text(path).strip()
    return float(text) if text.isdigit() else None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
