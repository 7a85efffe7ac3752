"""Machine files: TOML in, a `Machine` out, or BadInput with one line that says what to correct.

Reading a file never looks at this host, as the file may describe a different machine, to be planned for on paper.
Commands that start workers on the places call `check_runnable` too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Annotated, Final, get_args

import msgspec

from shisha_rt.checked import Count, Watts, WholeNumber, Word, did_you_mean, refuse, repeated_names, shown
from shisha_rt.errors import BadInput, Error
from shisha_rt.machine.config.shipped import shipped_configs
from shisha_rt.machine.config.toml_file import parse_toml, read_text
from shisha_rt.machine.device import EngineName
from shisha_rt.machine.host.cores import usable_cores
from shisha_rt.machine.host.this_machine import THIS_MACHINE, this_machine
from shisha_rt.machine.machine import MIN_SPEED, Machine, Memory, Place, Remote, core_faults
from shisha_rt.process.board import MAX_DEVICES

RAY: Final = "ray"
REMOTE_MEMORY: Final = "remote"
"""The memory of all places on other hosts, by name: their memories do not matter to this host."""

_TIMINGS: Final = ("measured", "modelled")
_ENGINES: Final = ("auto", *get_args(EngineName))
_WHAT: Final = "machine file"
_OF_RAY: Final = ("cpus", "resources", "node", "labels")
_RAYS_OWN: Final = ("CPU", "GPU", "memory", "object_store_memory")
_OF_THIS_HOST: Final = ("cores", "core_count", "memory", "shared", "devices")


class _Memory(msgspec.Struct, forbid_unknown_fields=True):
    name: Word
    bandwidth_bytes_per_s: Annotated[float, msgspec.Meta(ge=1000)] | None = None


class _Place(msgspec.Struct, forbid_unknown_fields=True):
    name: Word
    cores: Annotated[list[WholeNumber], msgspec.Meta(min_length=1)] | None = None
    core_count: Count | None = None
    threads: Count | None = None
    speed: Annotated[float, msgspec.Meta(ge=MIN_SPEED, le=1)] = 1.0
    rank: Count = 1
    memory: str | None = None
    memory_bytes: Count | None = None
    power_w: Watts | None = None
    shared: bool = False
    devices: (
        Annotated[list[Annotated[str, msgspec.Meta(min_length=1)]], msgspec.Meta(min_length=1, max_length=MAX_DEVICES)]
        | None
    ) = None
    host: str | None = None
    cpus: Annotated[int, msgspec.Meta(ge=1, le=4096)] | None = None
    resources: dict[str, Annotated[float, msgspec.Meta(ge=1e-4, le=1e9)]] | None = None
    node: Annotated[str, msgspec.Meta(min_length=1, max_length=256)] | None = None
    labels: dict[str, str] | None = None


class _File(msgspec.Struct, forbid_unknown_fields=True):
    timing: str = "measured"
    time_scale: Annotated[float, msgspec.Meta(ge=1e-6, le=1e6)] = 1.0
    engine: str | None = None
    memory: list[_Memory] = []
    place: list[_Place] = []


def load_machine(text: str) -> Machine:
    """The machine of a TOML file: a path to one, a shipped name, or `this-machine`. Raises BadInput."""
    if text == THIS_MACHINE:
        return this_machine()
    path = _find(text)
    return parse_machine(read_text(path, _WHAT), name=path.stem, source=str(path))


def parse_machine(content: str, *, name: str, source: str) -> Machine:
    """The machine that TOML text describes; `source` names the text in messages. Raises BadInput."""
    file = parse_toml(content, _File, source, _WHAT)
    refuse(_faults(file), source, Error.MACHINE_UNFIT)
    memories = tuple(Memory(m.name, m.bandwidth_bytes_per_s) for m in file.memory) or (Memory("ram"),)
    places = tuple(_place(place, memories[0].name) for place in file.place)
    memories += (Memory(REMOTE_MEMORY),) * any(place.remote for place in places)
    refuse(core_faults(places), source, Error.MACHINE_UNFIT)
    return Machine(name, source, memories, places, file.timing, file.time_scale, engine=file.engine)


def check_runnable(machine: Machine, available: Collection[int] | None = None) -> None:
    """Raises BadInput unless every place can run here; `available`: the cores that this process may use."""
    cores = usable_cores() if available is None else available
    refuse(_why_not_here(machine, cores), machine.source, Error.MACHINE_UNFIT)


def _find(text: str) -> Path:
    shipped = shipped_configs("machines")
    path = Path(text)
    if text in shipped:
        return shipped[text]
    if path.suffix == ".toml" or len(path.parts) > 1 or path.exists():
        return path
    names = [THIS_MACHINE, *shipped]
    expected = f"expected a TOML file or one of {', '.join(names)}{did_you_mean(text, {name: name for name in names})}"
    raise BadInput(f"machine {shown(text)}: no such shipped name, {expected}", Error.UNKNOWN_MACHINE)


def _place(place: _Place, default_memory: str) -> Place:
    remote = None
    if place.host is not None:
        remote = Remote(
            place.cpus or place.threads or 1,
            tuple(sorted((place.resources or {}).items())),
            place.node,
            tuple(sorted((place.labels or {}).items())),
        )
    core_count = remote.cpus if remote else place.core_count or len(place.cores or ())
    return Place(
        name=place.name,
        cores=tuple(place.cores or ()),
        core_count=core_count,
        threads=place.threads or core_count,
        speed=place.speed,
        rank=place.rank,
        memory=REMOTE_MEMORY if remote else place.memory or default_memory,
        memory_bytes=place.memory_bytes,
        shared=place.shared,
        devices=tuple(place.devices or ()),
        remote=remote,
        power_w=place.power_w,
    )


def _faults(file: _File) -> Iterator[str]:
    """Yield the faults that types and bounds cannot express, most local first."""
    if file.timing not in _TIMINGS:
        yield f"timing = {shown(file.timing)}: expected {' or '.join(map(shown, _TIMINGS))}"
    if file.engine not in (None, *_ENGINES):
        yield f"engine = {shown(file.engine)}: expected {', '.join(map(shown, _ENGINES[:-1]))} or {shown(_ENGINES[-1])}"
    if not file.place:
        yield "no [[place]]: expected at least one"
    yield from repeated_names("memory", [memory.name for memory in file.memory])
    yield from repeated_names("place", [place.name for place in file.place])
    if file.time_scale != 1 and any(place.host for place in file.place):
        yield f"time_scale = {file.time_scale:g}: expected 1 where places have a host, as links are what they are"
    memories = [memory.name for memory in file.memory] or ["ram"]
    if REMOTE_MEMORY in memories and any(place.host for place in file.place):
        yield f"memory {shown(REMOTE_MEMORY)}: the name is taken where places have a host, expected another"
    for i, place in enumerate(file.place):
        yield from (f"place[{i}] ({place.name}): {fault}" for fault in _place_faults(place, memories))


def _remote_faults(place: _Place) -> Iterator[str]:
    if place.host != RAY:
        yield f"host = {shown(place.host)}: expected {shown(RAY)}, or no such key for a place on this host"
    for key in _OF_THIS_HOST:
        if getattr(place, key) not in (None, False):
            yield f"{key}: it is for a place on this host, expected {', '.join(_OF_RAY)} where host is given"
    cpus = place.cpus or place.threads or 1
    if place.threads is not None and place.threads > cpus:
        yield f"threads = {place.threads}: expected at most its number of cpus, {cpus}"
    for name, amount in (place.resources or {}).items():
        if not name or name in _RAYS_OWN:
            yield f"resources has {shown(name)}: expected the names of custom ones, and for processors cpus"
        elif amount > 1 and not amount.is_integer():
            yield f"resources.{name} = {amount:g}: Ray gives out fractions of one only, expected a whole number"


def _place_faults(place: _Place, memories: list[str]) -> Iterator[str]:
    if place.host is not None:
        yield from _remote_faults(place)
        return
    for key in _OF_RAY:
        if getattr(place, key) is not None:
            yield f"{key}: it is for a place on another host, expected host = {shown(RAY)} beside it"
    for device, times in Counter(place.devices or ()).items():
        if times > 1:
            yield f"devices = {shown(place.devices)}: {device} is listed {times} times, expected once"
    if (place.cores is None) == (place.core_count is None):
        count = "neither" if place.cores is None else "both"
        yield f"{count} of cores and core_count: expected exactly one of them"
    if place.memory is None and len(memories) > 1:
        yield f"memory is missing: expected one of {', '.join(memories)}"
    if place.memory is not None and place.memory not in memories:
        yield f"memory = {shown(place.memory)}: unknown memory, expected one of {', '.join(memories)}"
    for core, times in Counter(place.cores or ()).items():
        if times > 1:
            yield f"cores = {shown(place.cores)}: core {core} is listed {times} times, expected once"
    core_count = place.core_count or len(place.cores or ())
    if place.threads is not None and place.threads > core_count:
        yield f"threads = {place.threads}: expected at most its number of cores, {core_count}"


def _why_not_here(machine: Machine, available: Collection[int]) -> Iterator[str]:
    usable = ", ".join(map(str, sorted(available)))
    for place in machine.places:
        if place.remote:
            continue
        if not place.cores:
            yield f"place {place.name}: only core_count is given, expected cores: nothing can run on paper"
        for core in place.cores:
            if core not in available:
                yield f"place {place.name}: core {core} may not be used here, expected among {usable}"
