"""A machine: places (where a stage can run) and the memories whose bandwidth they share. Values only."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from shisha_rt.machine.device import Device
from shisha_rt.model.layer_kinds import LayerKind

# The daemon, its clients and builds of new stages need the rest of a core: pinned speeds of 0.65 + 0.25 kept
# their pace within 0.1%, 0.75 + 0.25 ran 12% slow.
MAX_PINNED_SPEED_PER_CORE: Final = 0.85
_ROUNDING: Final = 1e-9  # 0.65 + 0.2 is a little over 0.85 in binary


@dataclass(frozen=True, slots=True)
class Memory:
    """`bandwidth_bytes_per_s` is None if the memory is not throttled."""

    name: str
    bandwidth_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Remote:
    """A place's request to a Ray cluster: `cpus` and custom `resources` of one node, which may be selected by address
    or id (`node`), or by `labels`. `resources` and `labels` are sorted pairs of name and value.
    """

    cpus: int = 1
    resources: tuple[tuple[str, float], ...] = ()
    node: str | None = None
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """An execution place (EP). `cores` is empty for a place on paper, which has only `core_count`, and for a `remote`
    place, whose host chooses the cores.

    `speed` is relative to this host (1 = unthrottled); `rank` 1 is the fastest class; equal ranks form a class.
    `devices` are names or paths of device descriptions, as in the machine file. `power_w`: watts that it draws while it
    computes, beyond its idle power; None: not known.
    """

    name: str
    cores: tuple[int, ...]
    core_count: int
    threads: int
    speed: float
    rank: int
    memory: str
    memory_bytes: int | None = None
    shared: bool = False
    devices: tuple[str, ...] = ()
    remote: Remote | None = None
    power_w: float | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """`source` is the file (or shipped name) it came from, for messages. `spare`: places for cores that the process may
    be allowed to use later; until then they are not up, and nothing is planned or measured for them. `engine`: the
    file's `engine`, for whole stages (see `plan.engine`), if it has that key.
    """

    name: str
    source: str
    memories: tuple[Memory, ...]
    places: tuple[Place, ...]
    timing: str = "measured"
    time_scale: float = 1.0
    spare: frozenset[str] = frozenset()
    engine: str | None = None
    _by_name: Mapping[str, Place] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {place.name: place for place in self.places})

    def place(self, name: str) -> Place:
        return self._by_name[name]

    def bandwidth_bytes_per_s(self, place: Place) -> float | None:
        """Bandwidth of the place's memory; None where the memory is not throttled."""
        return next(memory.bandwidth_bytes_per_s for memory in self.memories if memory.name == place.memory)

    def is_emulated(self, place: Place, devices: Iterable[Device] = ()) -> bool:
        """Whether frames take longer on the place, or on one of its `devices`, than this host needs for them."""
        slowed = place.speed != 1 or self.time_scale != 1 or self.timing != "measured"
        return slowed or self.bandwidth_bytes_per_s(place) is not None or any(device.described for device in devices)

    @property
    def usual(self) -> tuple[Place, ...]:
        return tuple(place for place in self.places if place.name not in self.spare)

    @property
    def remote(self) -> tuple[Place, ...]:
        """The places that are on other hosts."""
        return tuple(place for place in self.places if place.remote is not None)

    @property
    def emulated(self) -> bool:
        return any(map(self.is_emulated, self.places))

    @property
    def power_w(self) -> Mapping[str, float]:
        """Watts of each place while it computes; empty unless they are known of all."""
        known = {place.name: place.power_w for place in self.places if place.power_w is not None}
        return known if len(known) == len(self.places) else {}

    @property
    def why_no_energy(self) -> str:
        """Why the energy of a frame is not known here; empty if it is."""
        missing = next((place.name for place in self.places if place.power_w is None), None)
        return "" if missing is None else f"place {missing}: power_w is missing, expected the watts that it draws"

    @property
    def finest_layers(self) -> LayerKind:
        """The finest layers that a model can be cut into here: single operators if places have devices."""
        return "operators" if any(place.devices for place in self.places) else "heavy"

    def kind_of(self, place: Place) -> Hashable:
        """The kind of a place, for pools and teams: places of one kind compute everything in the same time."""
        size = place.core_count, place.threads, place.memory_bytes
        return (*size, place.speed, place.memory, place.devices, place.remote)

    def alike(self, places: Iterable[Place]) -> Sequence[Sequence[str]]:
        """Names of those of `places` that may form teams, by kind.

        Emulated places form no teams, as each is paced by itself, and neither do remote ones. Places that share their
        cores form none, as that would gain nothing.
        """
        kinds: dict[Hashable, list[str]] = {}
        for place in places:
            if not (self.is_emulated(place) or place.shared or place.remote):
                kinds.setdefault(self.kind_of(place), []).append(place.name)
        return list(kinds.values())

    @property
    def teams(self) -> tuple[tuple[str, ...], ...]:
        """A team of each kind and size: the first 2, 4, 8, ... and all places of the kind."""
        kinds = [names for names in self.alike(self.usual) if len(names) > 1]
        sizes = (2**power for power in range(1, len(self.usual).bit_length()))
        return tuple(dict.fromkeys(tuple(names[:size]) for size in (*sizes, len(self.usual)) for names in kinds))

    def together(self, team: Sequence[str]) -> Place:
        """A team as a single place under the lead's name, with the cores (the lead's first) and threads of all."""
        places = [self.place(name) for name in team]
        return replace(
            places[0],
            cores=tuple(core for place in places for core in place.cores),
            core_count=sum(place.core_count for place in places),
            threads=sum(place.threads for place in places),
        )

    def as_one(self, team: Sequence[str]) -> Machine:
        return replace(self, places=(self.together(team),))

    def with_speed(self, name: str, speed: float, rank: int | None = None) -> Machine:
        changed = (
            replace(place, speed=speed, rank=place.rank if rank is None else rank) if place.name == name else place
            for place in self.places
        )
        return replace(self, places=tuple(changed))

    def rank_at(self, name: str, speed: float) -> int:
        """The rank that place `name` would have at `speed`: that of the place nearest in speed, its own in a tie."""
        own = self.place(name).rank
        return min(self.places, key=lambda p: (abs(math.log(speed / p.speed)), p.rank != own)).rank


MIN_SPEED: Final = 1e-3
"""Lowest speed of a place or a device: anything slower is useless, and waits for it would be endless."""


def target_s(
    cpu_s: float, size_bytes: int, *, threads: int, speed: float, bandwidth_bytes_per_s: float | None
) -> float:
    """Seconds of a segment on a place of this speed and bandwidth, if nobody else uses its memory.

    `cpu_s`: CPU seconds of all its threads on this host at full speed. `size_bytes`: weights, inputs and outputs.
    """
    compute_s = cpu_s / threads / speed
    return compute_s if bandwidth_bytes_per_s is None else max(compute_s, size_bytes / bandwidth_bytes_per_s)


def core_faults(places: Sequence[Place]) -> Iterator[str]:
    """Yield a message for each overcommitted core, on which every time would be wrong (`MAX_PINNED_SPEED_PER_CORE`)."""
    on_core: dict[int, list[Place]] = {}
    for place in places:
        for core in place.cores:
            on_core.setdefault(core, []).append(place)
    for core, sharers in sorted(on_core.items()):
        unthrottled = [place.name for place in sharers if place.speed == 1 and not place.shared]
        if unthrottled and len(sharers) > 1:
            names = ", ".join(place.name for place in sharers)
            yield (
                f"core {core} is used by {names}, but {unthrottled[0]} has speed = 1 (unthrottled): "
                "expected a core of its own, or shared = true"
            )
        pinned = {place.name: place.speed for place in sharers if place.speed < 1 and not place.shared}
        total = sum(pinned.values())
        if total > MAX_PINNED_SPEED_PER_CORE + _ROUNDING:
            limit = f"expected at most {MAX_PINNED_SPEED_PER_CORE}"
            yield f"core {core}: the speeds of {', '.join(pinned)} add up to {total:.4g}, {limit}"
