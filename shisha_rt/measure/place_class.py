"""Classes of places: what is measured on one place of a class holds for all of them."""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from shisha_rt.costs.profiles import Setting
from shisha_rt.errors import BadInput, Error
from shisha_rt.machine.device import Device
from shisha_rt.machine.host.cores import core_ranks, usable_cores
from shisha_rt.machine.host.processor import processor
from shisha_rt.machine.machine import Machine, Place
from shisha_rt.measure.compiled import Compiled
from shisha_rt.messages.calibration import MeasuringJob

JobT = TypeVar("JobT", bound=MeasuringJob)

MIN_ROUNDS: Final = 5
_BUDGET_S: Final = 8.0
_MAX_ROUNDS: Final = 60
_CPUS: Final = Path("/sys/devices/system/cpu")


@dataclass(frozen=True, slots=True)
class PlaceClass:
    """Places that share profiles, and the cores of this host to measure them on.

    `neighbours`: cores to keep busy meanwhile. `lead`: for a team, its lead's cores; else empty. `undisturbed`: measure
    only while no other process uses the cores. `family`: pid of the process whose descendants do not count as others.
    """

    setting: Setting
    cores: tuple[int, ...] = ()
    neighbours: tuple[int, ...] = ()
    lead: tuple[int, ...] = ()
    undisturbed: bool = False
    family: int = 0

    def setting_on(self, device: Device) -> Setting:
        """What times of a measured device of such a place depend on."""
        version, threads = importlib.metadata.version(device.engine), device.threads_on(self.setting.threads)
        return replace(self.setting, engine=device.name, engine_version=version, threads=threads)

    def job(self, kind: type[JobT], *, budget_s: float | None = None, **asked: Any) -> JobT:
        """A job of this `kind` under this class's conditions; `asked`: its remaining fields."""
        return kind(
            cores=self.cores,
            threads=self.setting.threads,
            neighbours=self.neighbours,
            lead=self.lead,
            budget_s=_BUDGET_S if budget_s is None else budget_s,
            min_rounds=MIN_ROUNDS,
            max_rounds=_MAX_ROUNDS,
            **asked,
        )


def class_of(place: Place, machine: Machine, compiled: Compiled) -> PlaceClass:
    """Class of a place for the engine of `compiled`; `place`: the machine's, or a team as `Machine.together` makes it.

    Raises BadInput if this host has fewer cores than the place has threads.
    """
    usable = usable_cores()
    # Of all cores of the host: a core's class must not depend on which of them this process may use.
    ranks = core_ranks(sorted(int(path.name.removeprefix("cpu")) for path in _CPUS.glob("cpu[0-9]*")) or list(usable))
    cores = tuple(core for core in place.cores if core in usable)
    if len(cores) < max(1, place.threads):
        cores = tuple(sorted(usable, key=lambda core: (ranks.get(core, 1), core)))[: place.threads]
    if len(cores) < place.threads:
        raise BadInput(
            f"{machine.source}: place {place.name}: threads = {place.threads}: cannot be measured here, "
            f"expected at most the {len(usable)} usable cores of this host",
            Error.MACHINE_UNFIT,
        )
    kinds = sorted({ranks.get(core, 1) for core in cores}) if len(set(ranks.values())) > 1 else []
    neighbours = tuple(sorted({core for other in machine.usual for core in other.cores} & set(usable) - set(cores)))
    name, _, version = compiled.index.engine.partition(" ")
    kind = "+".join(f"class {kind}" for kind in kinds)
    setting = Setting(name, version, place.threads, kind, processor(), len(neighbours))
    lead_count = machine.place(place.name).core_count
    return PlaceClass(setting, cores, neighbours, cores[:lead_count] if lead_count < place.core_count else ())
