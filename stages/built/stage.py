"""A stage that computes in the arena's slots."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from shisha_rt.process.arena import Arena
from stages.engines.session import Bound, CpuClock, EngineSession

_IS_PACED: Final = attrgetter("paced")


class BuiltStage:
    """A stage of a session for each shape of the model. Its attributes are the sessions' (see `EngineSession`).

    `alone`: why it does not compute batches although it was to; else empty. `warm_s` and `private_bytes`: what the
    warm-up took, and what memory its builder's process has had more of since; the builder sets both.
    """

    warm_s = 0.0
    private_bytes = 0

    def __init__(self, sessions: Sequence[EngineSession], alone: str = "") -> None:
        self.frame_bytes = max(session.frame_bytes for session in sessions)
        self.described = any(session.described for session in sessions)
        self.difference = max(session.difference for session in sessions)
        self.alone = alone
        self._sessions = tuple(sessions)
        self._bound: tuple[dict[int, Bound], ...] = tuple({} for _ in sessions)
        self._apart: list[Bound] = []

    @property
    def paced(self) -> bool:
        return any(map(_IS_PACED, self._sessions))

    def warm(self, cpu_clock: CpuClock) -> tuple[float, ...]:
        """Run once on the stage's own memory, so that no frame waits for first allocations; return as `run` does."""
        self._apart = self._apart or [session.apart() for session in self._sessions]
        segments_s: tuple[float, ...] = ()
        for compute in self._apart:
            segments_s = compute(cpu_clock)
        return segments_s

    def bind(self, arena: Arena, slot: int) -> None:
        """Prepare for frames in `slot`, and free the memory of warm-ups."""
        self._apart = []
        for layout, session in enumerate(self._sessions):
            self._bound[layout][slot] = session.on_slot(arena, slot, layout)

    def run(self, arena: Arena, slot: int, cpu_clock: CpuClock, layout: int = 0) -> tuple[float, ...]:
        """Compute the tensors of `slot`; return each segment's seconds if segments are placed on devices, else ()."""
        bound = self._bound[layout]
        if slot not in bound:
            self.bind(arena, slot)
        return bound[slot](cpu_clock)

    def give_back(self) -> None:
        """Have engines release memory that they keep for later frames."""
        for session in self._sessions:
            session.give_back()
