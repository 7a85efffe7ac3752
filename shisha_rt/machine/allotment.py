"""Which cores of a host a daemon takes for its places, and which places it takes or gives up as its limits change.

Under a CPU quota, one core too many makes all of them wait: once the quota of a period (usually 100 ms) is used up,
every thread stands still until the next period. So there are as many places as cores that can be kept full: the quota
less the daemon's own share, rounded down. There is always at least one place, which is throttled if the quota is less
than that place and the daemon need. A quota of at least as many cores as may be used limits nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

DAEMON_SHARE_CORES: Final = 0.15
"""For the daemon's loop, its clients and builds of stages; `MAX_PINNED_SPEED_PER_CORE` leaves as much of a core."""

GROW_AFTER: Final = 3
"""Places are taken back only if so many looks in a row find more cores allowed, as each change costs a new plan."""


@dataclass(frozen=True, slots=True)
class HostCore:
    """A core as the scheduler counts them: a hardware thread. `siblings`: all hardware threads of its physical core.

    `rank`: of its class, 1 the fastest. `node` (of memory) and `top_hz` are None if the kernel does not report them.
    """

    number: int
    rank: int = 1
    siblings: tuple[int, ...] = ()
    node: int | None = None
    top_hz: float | None = None


@dataclass(frozen=True, slots=True)
class CpuLimits:
    """What the host allows a process now: the cores of its affinity mask, and the quota (in cores; None: no limit)."""

    cores: frozenset[int]
    quota_cores: float | None = None

    @property
    def is_limited(self) -> bool:
        return self.quota_cores is not None and self.quota_cores < len(self.cores)

    @property
    def place_count(self) -> int:
        """How many cores can be kept full."""
        if self.quota_cores is None or not self.is_limited:
            return len(self.cores)
        return max(1, math.floor(round(self.quota_cores - DAEMON_SHARE_CORES, 6)))  # 16.15 - 0.15 is below 16

    @property
    def is_throttled(self) -> bool:
        """Whether even one place and the daemon together use more than the quota."""
        return self.quota_cores is not None and self.quota_cores < min(len(self.cores), 1 + DAEMON_SHARE_CORES)

    def __str__(self) -> str:
        """Reason for the number of places, in words."""
        cores = f"{len(self.cores)} core{'s' if len(self.cores) > 1 else ''} may be used"
        if self.quota_cores is None or not self.is_limited:
            return f"{cores}, no CPU quota below that"
        places = f"{self.place_count} place{'s' if self.place_count > 1 else ''}"
        throttled = ", throttled where it needs more" if self.is_throttled else ""
        return (
            f"{cores}, a CPU quota of {self.quota_cores:g}, less {DAEMON_SHARE_CORES:g} for the daemon itself: "
            f"{places}{throttled}"
        )


def by_preference(cores: Iterable[HostCore]) -> list[int]:
    """Cores as they are taken: by rank, then untaken physical cores, the first one's memory node, and number."""
    left, taken = list(cores), list[HostCore]()

    def merit(core: HostCore) -> tuple[int, int, bool, int]:
        busy = len({other.number for other in taken} & {*core.siblings})
        return core.rank, busy, bool(taken) and core.node != taken[0].node, core.number

    while left:
        best = min(left, key=merit)
        left.remove(best)
        taken.append(best)
    return [core.number for core in taken]


def pick(order: Sequence[int], count: int, lease: Callable[[int], bool]) -> tuple[list[int], list[int]]:
    """(leased, shared) cores, `count` in all: the first of `order` that `lease` grants, then the first others."""
    alone: list[int] = []
    for core in order:
        if len(alone) == count:
            break
        if lease(core):
            alone.append(core)
    return alone, [core for core in order if core not in alone][: count - len(alone)]


@dataclass(frozen=True, slots=True)
class Change:
    """First take back `take` places, the first possible of `candidates`; then give up the places of `release`."""

    release: tuple[str, ...] = ()
    take: int = 0
    candidates: tuple[str, ...] = ()


class Allotting:
    """Follows changing limits: which places to give up or take back. `cores`: of each place, by preference."""

    def __init__(self, cores: Mapping[str, Collection[int]]) -> None:
        self._cores = {place: frozenset(core) for place, core in cores.items()}
        self._room_seen = 0

    def look(self, limits: CpuLimits, in_use: Collection[str]) -> Change:
        """The change that fits the present limits. Places are given up at once, and taken after `GROW_AFTER` looks.

        Places whose cores may not be used any more are given up first; the last place is never given up.
        """
        usable = [place for place, cores in self._cores.items() if cores <= limits.cores]
        wanted = min(limits.place_count, len(usable))
        kept = [place for place in usable if place in in_use][: max(1, wanted)]
        release = tuple(place for place in self._cores if place in in_use and place not in kept)
        free = tuple(place for place in usable if place not in in_use)
        missing = min(wanted - len(kept), len(free))
        if missing <= 0:
            self._room_seen = 0
            return Change(release if kept else release[1:])
        self._room_seen += 1
        if kept and self._room_seen < GROW_AFTER:
            return Change(release)
        self._room_seen = 0
        return Change(release, missing, free)
