"""What the executor runs, whatever it is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from shisha_rt.process.arena import Arena
from stages.engines.session import CpuClock


class Warmable(Protocol):
    """What there is to know of a stage before it is bound.

    `frame_bytes`: weights, inputs and outputs that one frame moves, of the largest shape.
    `described`: descriptions say how long it takes, and not this host; `paced`: its time is emulated at present.
    `difference`: by how much its devices' precision changes what it hands on (see `stages.built.placed`).
    """

    @property
    def frame_bytes(self) -> int: ...

    @property
    def described(self) -> bool: ...

    @property
    def paced(self) -> bool: ...

    @property
    def difference(self) -> float: ...

    def warm(self, cpu_clock: CpuClock) -> tuple[float, ...]:
        """Run once on memory of its own; returns what a run does: see `BuiltStage.run`."""
        ...


class BuiltStage(Warmable, Protocol):
    """A stage that computes in the arena's slots."""

    def bind(self, arena: Arena, slot: int) -> None:
        """Make ready what is needed for frames in `slot`."""
        ...

    def run(self, arena: Arena, slot: int, cpu_clock: CpuClock, layout: int = 0) -> tuple[float, ...]:
        """Compute the tensors of `slot`; returns what each segment took if they are placed on devices, else nothing."""
        ...


@runtime_checkable
class GivesBack(Protocol):
    """A stage whose engine keeps memory that a frame has made it take."""

    def give_back(self) -> None:
        """Give back what warming up does not take."""
        ...


class FramesDiffer(ValueError):
    """Frames come out of a run of several otherwise than alone."""


@runtime_checkable
class SharedRuns(BuiltStage, Protocol):
    """A stage whose runs may have several frames; `warm` raises FramesDiffer. `single`: the same for one frame."""

    @property
    def single(self) -> BuiltStage: ...

    def run_bytes(self, frames: int) -> int:
        """Bytes that a run of so many moves."""
        ...

    def run_together(
        self, arena: Arena, slots: Sequence[int], cpu_clock: CpuClock, layout: int = 0
    ) -> tuple[float, ...]:
        """Compute the tensors of these slots, which ascend; returns what `run` does, for all of them."""
        ...
