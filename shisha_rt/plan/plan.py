"""A plan says which layers form which stage, and which place runs it.

Plans are values: two with the same stages are equal. The number under which a plan is, was, or was to be
live (its epoch) belongs to the daemon's lifecycle, not to the plan.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Stage:
    """A run of layers `first` to `last` (inclusive, from 0) on `places` (names; exactly one for now).

    `placement` names the device of each of its operators, in the graph's order; it is empty where the place has no
    devices to choose from, and while none is chosen. It does not tell stages apart: it follows from the layers, the
    place and what its devices take at the time.
    """

    first: int
    last: int
    places: tuple[str, ...]
    placement: tuple[str, ...] = field(default=(), compare=False)

    @property
    def place(self) -> str:
        return self.places[0]

    @property
    def layer_count(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class Plan:
    """Stages in pipeline order. Empty stages and unused places are not listed."""

    stages: tuple[Stage, ...]

    @classmethod
    def of(cls, stages: Iterable[tuple[int, int, str]]) -> Plan:
        """A plan from (first, last, place) triples."""
        return cls(tuple(Stage(first, last, (place,)) for first, last, place in stages))

    @property
    def places(self) -> tuple[str, ...]:
        """Every place in use, in pipeline order."""
        return tuple(place for stage in self.stages for place in stage.places)

    def __str__(self) -> str:
        return " | ".join(f"{'+'.join(s.places)}: {s.first}-{s.last}" for s in self.stages)
