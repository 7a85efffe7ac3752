"""A machine as the operating system shows it: one unthrottled place for each core that can be kept full.

Places are named after their cores, and ranked if the kernel distinguishes fast cores from slow ones. Hardware threads
of one physical core are separate places: a host with only two of them must still have two places.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from shisha_rt.machine.allotment import CpuLimits, HostCore, by_preference, pick
from shisha_rt.machine.host.cgroups import ControlGroups
from shisha_rt.machine.host.cores import host_cores, usable_cores
from shisha_rt.machine.host.leases import CoreLeases
from shisha_rt.machine.machine import Machine, Memory, Place

THIS_MACHINE = "this-machine"


@dataclass(frozen=True, slots=True)
class OwnCores:
    """The part of this host that a daemon begins with. `shared`: cores of it that another daemon has leased too."""

    machine: Machine
    limits: CpuLimits
    shared: frozenset[int]


def host_object(limits: CpuLimits, cores: Iterable[HostCore], memory_limit_bytes: int | None) -> dict[str, object]:
    """What a host has and allows, for JSON. `quota_cores`, `memory_limit_bytes`: None if there is no limit."""
    return {
        "usable_cores": len(limits.cores),
        "quota_cores": limits.quota_cores,
        "memory_limit_bytes": memory_limit_bytes,
        "cores": [
            {"core": core.number, "siblings": core.siblings, "node": core.node, "top_hz": core.top_hz} for core in cores
        ],
    }


def host_in_words(limits: CpuLimits, cores: Sequence[HostCore], memory_limit_bytes: int | None) -> list[str]:
    """Lines that say what limits places, and what the kernel reports about cores."""
    lines = [str(limits)]
    if memory_limit_bytes is not None:
        lines.append(f"at most {memory_limit_bytes / 2**30:.1f} GiB of memory")
    pairs = sorted({core.siblings for core in cores if len(core.siblings) > 1})
    if pairs:
        lines.append(f"threads of one core: {', '.join('+'.join(map(str, pair)) for pair in pairs)}")
    for what, groups in (
        ("memory node", {core.number: core.node for core in cores if core.node is not None}),
        ("GHz at most", {core.number: round(core.top_hz / 1e9, 1) for core in cores if core.top_hz is not None}),
    ):
        values = sorted({*groups.values()})
        if len(values) > 1:
            listed = (
                f"{value:g}: {', '.join(str(c) for c, own in groups.items() if own == value)}" for value in values
            )
            lines.append(f"cores by {what}: {'; '.join(listed)}")
    return lines


def this_limits() -> CpuLimits:
    """The cores and quota that this process may use now."""
    return CpuLimits(frozenset(usable_cores()), ControlGroups().quota_cores())


def this_machine() -> Machine:
    """One place for each usable core, as many as the quota keeps full; nothing is leased: for planning only."""
    limits = this_limits()
    cores = host_cores(sorted(limits.cores))
    return _machine(cores, by_preference(cores)[: limits.place_count])


def own_cores(leases: CoreLeases, limits: CpuLimits) -> OwnCores:
    """Choose a daemon's cores: lease free ones, and if they are too few, share cores that other daemons have.

    Up to as many further cores become spare places, which come up if limits are raised.
    """
    cores = host_cores(sorted(limits.cores))
    order = by_preference(cores)
    alone, shared = pick(order, limits.place_count, leases.take)
    chosen = [*alone, *shared]
    spare = [core for core in order if core not in chosen][: len(chosen)]
    return OwnCores(_machine(cores, chosen, spare), limits, frozenset(shared))


def _machine(cores: Sequence[HostCore], chosen: Collection[int], spare: Collection[int] = ()) -> Machine:
    places = tuple(
        Place(name_of(core.number), (core.number,), 1, threads=1, speed=1.0, rank=core.rank, memory="ram")
        for core in cores
        if core.number in chosen or core.number in spare
    )
    return Machine(THIS_MACHINE, THIS_MACHINE, (Memory("ram"),), places, spare=frozenset(map(name_of, spare)))


def name_of(core: int) -> str:
    return f"core{core}"
