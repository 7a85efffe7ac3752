"""The three cores as one: what one of them says that is for another goes there, and the rest is to be carried out.

A lifecycle asks for plans and tells how proposals end; tuning and placing propose. So that all of it can be driven
through random interleavings, who hears what is decided here, and not by callbacks.
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
"""What they say to it."""


class Cores:
    """`placing` is None where no place has devices."""

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
        """Apply one event and all that follows from it; the rest is to be carried out in its order, before the next.

        `cause`: what came to the daemon, so that this happened; proposals are marked with it. What was proposed and how
        proposals ended is among it, too: clients wait for that, and the event log has it.
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
        """Whether anybody wants to hear what each part of a frame takes."""
        return self.placing is not None or self.tuning.measuring.epoch is not None

    @property
    def comparing(self) -> bool:
        """Whether anybody wants to hear of each frame that is computed."""
        return self.tuning.wants_answers

    def _hear(self, event: Any, now_s: float, cause: str) -> list[Outward]:
        """What tuning and placing say to the lifecycle, it hears at once: so its proposals are always all there are."""
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
