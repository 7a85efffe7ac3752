"""A daemon's link to the process that compares its answers with another version's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from shisha_rt.daemon.children.child_link import ChildLink, ChildProgram
from shisha_rt.daemon.loop.poller import Poller
from shisha_rt.messages import shadow as sm
from shisha_rt.model.index import ModelIndex
from shisha_rt.process.arena import Arena, NoRoom
from shisha_rt.tensors import Tensor

_SHADOW: Final = ChildProgram("shisha_rt.daemon.children.shadow", sm.TO_SHADOW, sm.FROM_SHADOW)


class ShadowLink:
    """`wants_frame`: call `show` for the next frame that is computed. No process runs before `begin`."""

    def __init__(self, poller: Poller, arena: Arena, indexes: Sequence[ModelIndex]) -> None:
        self.wants_frame = False
        self._arena = arena
        self._indexes = indexes
        self._link = ChildLink(_SHADOW, poller, _died, self._said)
        self._over = False
        self._then: Callable[[sm.ShadowEnds], None] = lambda _: None

    @property
    def runs(self) -> bool:
        """Whether a comparison has no result yet."""
        return self._link.on and not self._over

    def begin(self, endpoint: str, frames: int, then: Callable[[sm.ShadowEnds], None]) -> None:
        """Start a comparison; `then` is called once, with its result. Raises OSError if no process is available."""
        self._link.start([sm.ShadowBegins(endpoint, frames)])
        self._then, self._over = then, False

    def show(self, slot: int, layout: int) -> None:
        """Send a copy of a frame's inputs and outputs, which are in its slot until that is filled again.

        A frame with an output too large for its buffer is skipped: it has no answer to compare.
        """
        index = self._indexes[layout]
        try:
            inputs, outputs = (self._tensors(slot, layout, specs) for specs in (index.inputs, index.outputs))
        except NoRoom:
            return
        self.wants_frame = False
        self._link.send(sm.ShadowFrame(inputs, outputs))

    def _tensors(self, slot: int, layout: int, specs: Iterable[Tensor]) -> dict[str, sm.ShadowTensor]:
        arena, regions = self._arena, self._arena.layouts[layout].regions
        return {
            spec.name: sm.ShadowTensor(
                spec.datatype, arena.shape(slot, regions[spec.name]), arena.read(slot, regions[spec.name])
            )
            for spec in specs
        }

    def _said(self, message: sm.FromShadow) -> sm.FromShadow:
        self.wants_frame = isinstance(message, sm.NextFrame) and not self._over
        return message

    def ended(self, ends: sm.ShadowEnds) -> None:
        """Pass on the result, once: after a death another process runs for a moment, and may send a result, too."""
        if not self._over:
            self._over, self.wants_frame = True, False
            self._then(ends)

    def look(self) -> Iterator[object]:
        """Called periodically: end the process if it hangs, or has no more to do."""
        if self._over:
            self.close()
        return self._link.look()

    def close(self) -> None:
        self.wants_frame = False
        self._link.close()


def _died(reason: str) -> sm.ShadowEnds:
    return sm.ShadowEnds(0, 0, 0, 0.0, 0.0, f"the process that compares ended: {reason}")
