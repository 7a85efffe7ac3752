"""The interfaces of stages that the executor runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from shisha_rt.process.arena import Arena
from stages.engines.session import CpuClock


class Warmable(Protocol):
    """A stage before it is bound.

    `frame_bytes`: weights, inputs and outputs that one frame moves, of the largest shape.
    `described`: its time comes from descriptions of devices, not from this host; `paced`: its time is emulated now.
    `difference`: by how much its devices' precision changes its outputs (see `stages.built.placed`).
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
        """Run once on the stage's own memory; return the same as `BuiltStage.run`."""
        ...


class BuiltStage(Warmable, Protocol):
    """A stage that computes in the arena's slots."""

    def bind(self, arena: Arena, slot: int) -> None:
        """Prepare for frames in `slot`."""
        ...

    def run(self, arena: Arena, slot: int, cpu_clock: CpuClock, layout: int = 0) -> tuple[float, ...]:
        """Compute the tensors of `slot`; return each segment's seconds if segments are placed on devices, else ()."""
        ...


@runtime_checkable
class GivesBack(Protocol):
    """A stage whose engine keeps memory that it allocated for a frame."""

    def give_back(self) -> None:
        """Release memory beyond what the warm-up needs."""
        ...


class FramesDiffer(ValueError):
    """Frames of a batch have different answers from the same frames alone."""


@runtime_checkable
class SharedRuns(BuiltStage, Protocol):
    """A stage that can compute batches; `warm` may raise FramesDiffer. `single`: the same stage for one frame."""

    @property
    def single(self) -> BuiltStage: ...

    def run_bytes(self, frames: int) -> int:
        """Bytes that a batch of `frames` moves."""
        ...

    def run_together(
        self, arena: Arena, slots: Sequence[int], cpu_clock: CpuClock, layout: int = 0
    ) -> tuple[float, ...]:
        """Compute the tensors of these slots, in ascending order, as a batch; return what `run` does, for the batch."""
        ...
