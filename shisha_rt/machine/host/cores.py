"""The cores of this host as the kernel shows them: which this process may use, their classes, siblings and nodes."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from shisha_rt.errors import Failure
from shisha_rt.machine.allotment import HostCore
from shisha_rt.machine.host.kernel_files import number_in, text_of

# Favoured cores of one kind differ by a few percent in their top frequency; kinds of cores by much more.
_SAME_CLASS_RATIO: Final = 0.9

_CPUS: Final = Path("/sys/devices/system/cpu")


def usable_cores() -> tuple[int, ...]:
    """The cores of this process's affinity mask, ascending."""
    return tuple(sorted(os.sched_getaffinity(0)))


def pin(cores: Iterable[int]) -> None:
    """Have the calling thread run on these cores. Raises Failure, in which they are named, if it may not use them all.

    A control group may be moved to other cores at any time.
    """
    wanted = {*cores}
    with contextlib.suppress(OSError):  # it may use none of them
        os.sched_setaffinity(0, wanted)
    lost = sorted(wanted - os.sched_getaffinity(0))
    if lost:
        raise Failure(
            f"cores {', '.join(map(str, lost))} may not be used any more; expected no change of cores meanwhile"
        )


def host_cores(cores: Sequence[int], cpus: Path = _CPUS) -> tuple[HostCore, ...]:
    """`cores`, in their order, with what the kernel reports about each."""
    ranks = core_ranks(cores, cpus)
    return tuple(_host_core(core, ranks[core], cpus / f"cpu{core}") for core in cores)


def core_ranks(cores: Sequence[int], cpus: Path = _CPUS) -> Mapping[int, int]:
    """Core -> rank of its class, 1 the fastest; all 1 unless the kernel reports a figure for every core."""
    for file in ("cpu_capacity", "cpufreq/cpuinfo_max_freq"):
        figures = {core: number_in(cpus / f"cpu{core}" / file) for core in cores}
        known = {core: figure for core, figure in figures.items() if figure is not None}
        if len(known) == len(cores):
            return _classes(known)
    return dict.fromkeys(cores, 1)


def _host_core(core: int, rank: int, folder: Path) -> HostCore:
    siblings = _cpu_list(text_of(folder / "topology" / "thread_siblings_list"))
    nodes = [int(path.name[4:]) for path in folder.glob("node[0-9]*") if path.name[4:].isdigit()]
    top_khz = number_in(folder / "cpufreq" / "cpuinfo_max_freq")
    return HostCore(
        core, rank, siblings or (core,), min(nodes, default=None), None if top_khz is None else top_khz * 1e3
    )


def _cpu_list(text: str) -> tuple[int, ...]:
    """Parse a list of cores as the kernel writes it, `0-3,8`; () if it is malformed."""
    cores: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        if not (first.isdigit() and (last or first).isdigit()):
            return ()
        cores += range(int(first), int(last or first) + 1)
    return tuple(cores)


def _classes(figures: Mapping[int, float]) -> dict[int, int]:
    ranks: dict[int, int] = {}
    rank, fastest = 0, math.inf
    for core, figure in sorted(figures.items(), key=lambda item: -item[1]):
        if figure < fastest * _SAME_CLASS_RATIO:
            rank, fastest = rank + 1, figure
        ranks[core] = rank
    return ranks
