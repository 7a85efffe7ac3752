"""A machine: places (where a stage can run) and the memories whose bandwidth they share. Values only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Memory:
    """`bandwidth_bytes_per_s` is None where the memory is as fast as it really is."""

    name: str
    bandwidth_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """An execution place (EP). `cores` is empty for a place on paper, which has only `core_count`.

    `speed` is relative to this host (1 = unthrottled); `rank` 1 is the fastest class; equal ranks form a class.
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


@dataclass(frozen=True, slots=True)
class Machine:
    """`source` is the file (or shipped name) it came from, for messages."""

    name: str
    source: str
    memories: tuple[Memory, ...]
    places: tuple[Place, ...]
    timing: str = "measured"
    time_scale: float = 1.0

    @property
    def on_paper(self) -> bool:
        """True where some place has no real cores, so that nothing can run there."""
        return any(not place.cores for place in self.places)
