"""A daemon's share of this host: which places it may keep up, which cores are leased, how busy other processes are.

Affinity, quota and other processes' CPU use are read every two seconds, a few small files at a time (R10). If the
daemon has chosen its cores itself, places come up and go down with the limits; if a machine file names the cores, the
places stay up, and are throttled.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from shisha_rt.core.event_log import PlacesAllotted
from shisha_rt.errors import BadInput, Error
from shisha_rt.machine.allotment import Allotting, CpuLimits
from shisha_rt.machine.host.cgroups import ControlGroups, Throttling
from shisha_rt.machine.host.cores import host_cores, usable_cores
from shisha_rt.machine.host.cpu_use import CpuReading, read_cpu_use
from shisha_rt.machine.host.energy import EnergyCounters
from shisha_rt.machine.host.leases import CoreLeases
from shisha_rt.machine.host.this_machine import THIS_MACHINE, host_object, own_cores, this_limits
from shisha_rt.machine.machine import Machine

if TYPE_CHECKING:
    from shisha_rt.daemon.settings import Settings

log = logging.getLogger(__name__)

READ_EVERY_S: Final = 2.0
RELEASED: Final = "released"
"""State, as reported, of a place that is not up because of the limits."""


def share_of(settings: Settings) -> HostShare:
    """Take a daemon's cores: those of its machine file, else preferably cores that nobody leases. Raises BadInput."""
    leases = CoreLeases(None if settings.leases is None else Path(settings.leases))
    if settings.leases is not None and leases.fault:
        raise BadInput(f"leases {leases.fault}; expected a folder that may be written to", Error.LEASES_UNUSABLE)
    if settings.machine == THIS_MACHINE:
        own = own_cores(leases, this_limits())
        return HostShare(own.machine, leases, own.limits, own.shared)
    from shisha_rt.machine.config.machine_file import check_runnable, load_machine  # most daemons need neither

    machine = load_machine(settings.machine)
    check_runnable(machine)
    return HostShare(machine, leases, shared=leases.hold(core for place in machine.places for core in place.cores))


class HostShare:
    """`machine`: the daemon's, with spare places if the daemon chose its cores (see `own_cores`). `leases`: holds them.

    `limits`: the limits by which places were chosen; None: the places do not follow limits, as a machine file names
    them or, if `is_dealt`, a host process deals them. `shared`: cores that another daemon has leased, too. `released`:
    places that are not up because of the limits. `withheld`: cores of places that were taken down, which this process
    may use but keeps its threads off.
    """

    def __init__(
        self,
        machine: Machine,
        leases: CoreLeases,
        limits: CpuLimits | None = None,
        shared: frozenset[int] = frozenset(),
        *,
        is_dealt: bool = False,
    ) -> None:
        self.machine = machine
        self.leases = leases
        self.shared = shared
        self.is_fixed = limits is None
        self.released = set() if self.is_fixed else set(machine.spare)
        self.withheld = frozenset[int]()
        self._is_dealt = is_dealt
        self.others_s = self.others_ratio = 0.0
        self.energy = EnergyCounters()
        self._groups = ControlGroups()
        self._cores = {place.name: place.cores for place in machine.places}
        self._all_cores = frozenset(core for cores in self._cores.values() for core in cores)
        self.known = {core.number: core for core in host_cores(sorted(self._all_cores))}
        self.limits = limits or self._read_limits()
        self.memory_limit_bytes = self._groups.memory_limit_bytes()
        self.throttling, self.pressure_s = self._groups.throttling(), self._groups.pressure_s()
        usual = [place.name for place in machine.usual]
        self._allotting = Allotting({name: self._cores[name] for name in (*usual, *sorted(machine.spare))})
        self._reading: CpuReading | None = None
        self._limits_at_s = self._use_at_s = -math.inf

    def say(self) -> None:
        """Log which cores were taken and why; as a warning if the host's limits or other daemons leave fewer."""
        if not self.is_fixed:
            up = ", ".join(place.name for place in self.machine.usual)
            log.log(logging.WARNING if self.limits.is_limited else logging.INFO, "%s; taken: %s", self.limits, up)
        elif self.limits.is_limited:
            log.warning("%s, though the machine file names %d cores", self.limits, len(self._all_cores))
        if self.shared:
            cores = ", ".join(map(str, sorted(self.shared)))
            log.warning("cores shared with another daemon, as none is free: %s (%s)", cores, self.leases.folder)
        if self.leases.fault:
            log.warning("cores cannot be leased, so another daemon may take the same: %s", self.leases.fault)

    @property
    def why(self) -> str:
        if self._is_dealt:
            return "the host process deals the places"
        return "the machine file names them" if self.is_fixed else str(self.limits)

    def withhold(self, cores: frozenset[int]) -> None:
        """Note the cores that this process keeps its threads off; if places are dealt to it, it holds the others.

        Who uses these cores is no concern of this daemon's: they are another model's, say.
        """
        if cores != self.withheld:
            self._reading = None  # of other cores
        self.withheld = cores
        if self._is_dealt:
            self.leases.release(cores)
            self.leases.hold(self._all_cores - cores)

    def periods(self) -> Throttling | None:
        """Read the counters of the CPU quota's periods; None without limits."""
        if not self.limits.is_limited:
            return None
        self.throttling = self._groups.throttling()
        return self.throttling

    def is_due(self, now_s: float) -> bool:
        return now_s >= min(self._limits_at_s, self._use_at_s) + READ_EVERY_S

    def look(
        self,
        now_s: float,
        processes: Callable[[], tuple[Iterable[int], Iterable[int]]],
        runs: Callable[[str], bool],
    ) -> PlacesAllotted | None:
        """Read either the limits or the CPU use, if due; return which places come up and go down, if any do.

        `processes`: pids of the daemon and its children, and of clients of this host. `runs`: whether a place still has
        a process: until that has ended, the place's cores stay leased.
        """
        if now_s >= self._limits_at_s + READ_EVERY_S:
            self._limits_at_s = now_s
            return self._follow(processes, runs)
        if now_s >= self._use_at_s + READ_EVERY_S:
            self._use_at_s = now_s
            self._measure(now_s, *processes())
        return None

    def _read_limits(self) -> CpuLimits:
        return CpuLimits(frozenset(usable_cores()) | self.withheld, self._groups.quota_cores())

    def _follow(
        self, processes: Callable[[], tuple[Iterable[int], Iterable[int]]], runs: Callable[[str], bool]
    ) -> PlacesAllotted | None:
        self.limits, self.memory_limit_bytes = self._read_limits(), self._groups.memory_limit_bytes()
        if self.is_fixed:
            self.shared = self.leases.hold(self._all_cores - self.withheld)
            return None
        for name in self.released:
            if not runs(name):
                self.leases.release(self._cores[name])
        up = [name for name in self._cores if name not in self.released]
        still = self.shared & {core for name in up for core in self._cores[name]}
        own = {*processes()[0]} if still else ()  # of a host process: its models' daemons hold their cores themselves
        self.shared = frozenset(
            core for core in still if not self.leases.take(core) and not self.leases.hold_beside(core, own)
        )
        change = self._allotting.look(self.limits, up)
        leased = [name for name in change.candidates if all(map(self.leases.take, self._cores[name]))]
        taken = (leased + [name for name in change.candidates if name not in leased])[: change.take]
        self.leases.release(core for name in leased if name not in taken for core in self._cores[name])
        self.shared |= {core for name in taken if name not in leased for core in self._cores[name]}
        self.released -= {*taken}
        self.released |= {*change.release}
        if not taken and not change.release:
            return None
        return PlacesAllotted(taken=tuple(taken), released=change.release, why=self.why)

    def _measure(self, now_s: float, own: Iterable[int], clients: Iterable[int]) -> None:
        self.throttling, self.pressure_s = self._groups.throttling(), self._groups.pressure_s()
        self.energy.look()
        reading = read_cpu_use(self._all_cores - self.withheld, own, now_s, clients=clients)
        if self._reading is not None:
            self.others_s += reading.others_s(self._reading)
            self.others_ratio = reading.others_ratio(self._reading)
        self._reading = reading

    def described(self) -> Mapping[str, object]:
        return {
            **host_object(self.limits, self.known.values(), self.memory_limit_bytes),
            "why": self.why,
            "released": sorted(self.released),
            "leases": None if self.leases.fault else str(self.leases.folder),
            "leased": sorted(self.leases.cores),
            "shared": sorted(self.shared),
            "throttled_s": self.throttling.throttled_s,
            "pressure_s": self.pressure_s,
            "others_s": self.others_s,
            "others_ratio": self.others_ratio,
            "energy_j": self.energy.joules or None,
        }

    def close(self) -> None:
        self.leases.close()
