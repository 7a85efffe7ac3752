"""The three cores as one: what one core says to another is passed on here; the rest is returned, to be carried out.

The lifecycle asks for plans and says how proposals end; tuning and placing propose. Messages between them are routed
here, not by callbacks, so that tests can drive all three through random interleavings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec.structs import replace

from shisha_rt.core.lifecycle import events as le
from shisha_rt.core.lifecycle import instructions as do
from shisha_rt.core.lifecycle.lifecycle import OF_FRAMES, Lifecycle
from shisha_rt.core.tuning import events as ev
from shisha_rt.core.tuning.instructions import Decision
from shisha_rt.core.tuning.tuning import Tuning

if TYPE_CHECKING:
    from shisha_rt.core.tuning.placing import Placing

CoreEvent: TypeAlias = le.Event | ev.TuningEvent | ev.PlacingEvent
Outward: TypeAlias = do.Instruction | Decision
_Handle: TypeAlias = Callable[[Any, float], Sequence[Outward]]

_FOR_OTHERS: Final = frozenset((do.Settled, do.Replan, do.PlaceBack, do.PlaceOperators))
"""What the lifecycle says to tuning and placing."""
_FOR_THE_LIFECYCLE: Final = frozenset((le.PlanProposed, le.PlanPlaced, le.PlanNotPlaced, le.Lead, le.LetGo))
"""What tuning and placing say to the lifecycle."""


class Cores:
    """`placing`: None if no place has devices."""

    def __init__(self, lifecycle: Lifecycle, tuning: Tuning, placing: Placing | None) -> None:
        self.lifecycle = lifecycle
        self.tuning = tuning
        self.placing = placing
        placers: Sequence[_Handle] = [] if placing is None else [placing.handle]
        to_tuning: Sequence[_Handle] = [tuning.handle]
        to_all = [*to_tuning, *placers]
        self._heard_by: dict[type, Sequence[_Handle]] = {
            do.Settled: to_all,
            do.Replan: to_tuning,
            do.PlaceBack: to_tuning,
            do.PlaceOperators: placers,
            ev.PartTaken: to_all,
            ev.FrameAlone: to_tuning,
            ev.FrameAnswered: to_tuning,
            ev.FramesCounted: to_tuning,
            ev.PeriodsCounted: to_tuning,
            ev.OthersSeen: to_tuning,
            ev.CrowdSeen: to_tuning,
            **dict.fromkeys((ev.TunerSaid, ev.TunerDied, ev.PauseAsked, ev.SearchAsked, ev.OptionsSet), to_tuning),
            **dict.fromkeys((ev.ProfilerSaid, ev.PlannedAhead, ev.PlaceReturned), to_tuning),
            ev.MachineChanged: to_all,
            **dict.fromkeys((ev.PlacerSaid, ev.PlacerDied, ev.Look), placers),
        }
        self._handle_frames: Callable[[Any, float], list[Any]] = lifecycle.handle

    def handle(self, event: CoreEvent, now_s: float, cause: str = "") -> list[Outward]:
        """Apply one event and all that follows from it in the cores; what is returned is to be carried out in order.

        `cause`: what came to the daemon and caused the event; proposals are marked with it. Proposals and their ends
        are returned, too: clients wait for them, and the event log has them.
        """
        if self.lifecycle.calm and type(event) in OF_FRAMES:  # nobody else hears of those, nor of what follows
            return self._handle_frames(event, now_s)
        outward = self._hear(event, now_s, cause)
        for said in outward:  # it grows
            if type(said) in _FOR_OTHERS:
                outward += self._hear(said, now_s, cause)
        return outward

    @property
    def measuring(self) -> bool:
        """Whether tuning or placing needs the time of each part."""
        return self.placing is not None or self.tuning.measuring.epoch is not None

    @property
    def comparing(self) -> bool:
        """Whether tuning needs an event for each frame that is computed."""
        return self.tuning.wants_answers

    def _hear(self, event: Any, now_s: float, cause: str) -> list[Outward]:
        """Pass an event to whoever hears it. What tuning and placing say to the lifecycle is passed on at once, so that
        its list of proposals is always complete.
        """
        heard_by = self._heard_by.get(type(event))
        if heard_by is None:
            return self._handle_frames(event, now_s)
        outward: list[Outward] = []
        for said in [said for handle in heard_by for said in handle(event, now_s)]:
            kind = type(said)
            outward.append(replace(said, cause=cause) if isinstance(said, le.PlanProposed) else said)
            if kind in _FOR_THE_LIFECYCLE:
                outward += self._handle_frames(outward[-1], now_s)
        return outward
