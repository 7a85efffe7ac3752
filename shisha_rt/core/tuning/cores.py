"""The three cores as one: what one core says to another is passed on here; the rest is returned, to be carried out.

The lifecycle asks for plans and says how proposals end; tuning and placing propose. Messages between them are routed
here, not by callbacks, so that tests can drive all three through random interleavings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec.structs import replace

from shisha_rt.core.lifecycle import events as le
from shisha_rt.core.lifecycle import instructions as do
from shisha_rt.core.lifecycle.lifecycle import OF_FRAMES, Lifecycle
from shisha_rt.core.tuning import events as ev
from shisha_rt.core.tuning.instructions import Decided
from shisha_rt.core.tuning.tuning import Tuning

if TYPE_CHECKING:
    from shisha_rt.core.tuning.placing import Placing

CoreEvent: TypeAlias = le.Event | ev.PlanningEvent
Outward: TypeAlias = do.Instruction | Decided


class Cores:
    """`placing`: None if no place has devices."""

    def __init__(self, lifecycle: Lifecycle, tuning: Tuning, placing: Placing | None) -> None:
        self.lifecycle = lifecycle
        self.tuning = tuning
        self.placing = placing
        self._heard_by: dict[type, list[Callable[[Any, float], list[Decided]]]] = {}
        for core in (tuning, placing):
            if core is not None:
                for kind in core.hears:
                    self._heard_by.setdefault(kind, []).append(core.handle)
        self._handle_frames: Callable[[Any, float], list[Any]] = lifecycle.handle

    def handle(self, event: CoreEvent, now_s: float, cause: str = "") -> list[Outward]:
        """Apply one event and all that follows from it in the cores; what is returned is to be carried out in order.

        `cause`: what came to the daemon and caused the event; proposals are marked with it. Proposals and their ends
        are returned, too: clients wait for them, and the event log has them.
        """
        if self.lifecycle.calm and type(event) in OF_FRAMES:  # nobody else hears of those, nor of what follows
            return self._handle_frames(event, now_s)
        is_of_lifecycle = isinstance(event, le.Event)
        outward = self._handle_frames(event, now_s) if is_of_lifecycle else self._plan(event, now_s, cause)
        for said in outward:  # the list grows within the loop
            if type(said) in self._heard_by:
                outward += self._plan(said, now_s, cause)
        return outward

    def wants_parts(self, now_s: float) -> bool:
        """Whether tuning or placing needs the time of each part now."""
        return self.placing is not None or self.tuning.measuring.wants_parts(now_s)

    def _plan(self, event: Any, now_s: float, cause: str) -> list[Outward]:
        """Pass an event to tuning and placing; what they say to the lifecycle is passed on at once, before the next."""
        outward: list[Outward] = []
        for said in [said for handle in self._heard_by.get(type(event), ()) for said in handle(event, now_s)]:
            outward.append(replace(said, cause=cause) if isinstance(said, le.PlanProposed) else said)
            if isinstance(said, le.Event):
                outward += self._handle_frames(outward[-1], now_s)
        return outward
