"""Events for tuning and placing, besides `Settled` and `Replan` from the lifecycle. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct

from shisha_rt.core.lifecycle.instructions import PlaceOperators, Replan, Settled
from shisha_rt.core.tuning import placer_messages as pm
from shisha_rt.core.tuning import profiler_messages as fm
from shisha_rt.core.tuning import tuner_messages as tm
from shisha_rt.machine.machine import Machine
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import AnyObjective, Objective


class PartTaken(Struct, frozen=True, gc=False):
    """A part of a frame has been computed, in the worker of `place`.

    `segments_s` (segments,): empty unless the stage's operators are placed on devices. `full`: the part was computed in
    a batch of the stage's full size.
    """

    epoch: int
    stage: int
    place: str
    service_s: float
    segments_s: tuple[float, ...] = ()
    full: bool = True


class FrameAlone(Struct, frozen=True, gc=False):
    """A frame was computed by the plan of `epoch` and met no other frame. `latency_s`: unloaded latency."""

    epoch: int
    latency_s: float


class FrameAnswered(Struct, frozen=True, gc=False):
    """A frame of `epoch` has been computed. Sent only while plans are compared, or are to be.

    `in_flight`: frames accepted and not answered; this one is among them only while its stream waits for an earlier
    one. `left`: further frames of the same batch, whose events follow at once. `kept_out`: frames refused since the
    daemon's start as they would have missed the target.
    """

    epoch: int
    in_flight: int
    left: int = 0
    kept_out: int = 0


class FramesCounted(Struct, frozen=True):
    """Sent periodically: counts of frames since the daemon's start. `arrived`: refused ones included; `met`: accepted
    while others had no answer yet; `answered`: with a result; `latency_s`: sum of their latencies. `in_flight`: now.
    """

    arrived: int = 0
    met: int = 0
    answered: int = 0
    latency_s: float = 0.0
    in_flight: int = 0


class PeriodsCounted(Struct, frozen=True):
    """Sent periodically under a CPU quota: counts of its periods in which something ran, and of those in which it was
    used up.
    """

    periods: int
    throttled: int


class OthersSeen(Struct, frozen=True):
    """Sent periodically: the share of the daemon's cores that other processes use, without its clients on this host."""

    others_ratio: float


class CrowdSeen(Struct, frozen=True):
    """Other models have frames computed on these places now, and on no others."""

    places: tuple[str, ...]


class TunerSaid(Struct, frozen=True):
    message: tm.FromTuner


class TunerDied(Struct, frozen=True):
    """The tuner's process has died, and another one has been started."""

    reason: str


class ProfilerSaid(Struct, frozen=True):
    message: fm.FromProfiler


class PlannedAhead(Struct, frozen=True):
    """The best plans by stored costs, for objectives that were not wanted at the start."""

    by_costs: Mapping[Objective, Plan]


class PlacerSaid(Struct, frozen=True):
    message: pm.FromPlacer


class PlacerDied(Struct, frozen=True):
    """The placer's process has died, and another one has been started."""

    reason: str


class PauseAsked(Struct, frozen=True):
    """A client asks to stop searching and watching; the best plan of the search goes live (R5)."""

    why: str


class SearchAsked(Struct, frozen=True):
    """A client asks to search from the live plan, which the daemon may replace from now on."""

    why: str


class OptionsSet(Struct, frozen=True):
    """Options for the next search; None leaves an option as it is."""

    strategy: str | None = None
    alpha: int | None = None
    objective: AnyObjective | None = None


class MachineChanged(Struct, frozen=True):
    """The machine has changed, so measurements so far no longer hold."""

    machine: Machine
    why: str


class PlaceReturned(Struct, frozen=True):
    """Plans may use the place again."""

    place: str


class Look(Struct, frozen=True):
    """Sent periodically: compare measured with predicted times of segments."""


TuningEvent: TypeAlias = (
    Settled
    | Replan
    | PartTaken
    | FrameAlone
    | FrameAnswered
    | FramesCounted
    | PeriodsCounted
    | OthersSeen
    | CrowdSeen
    | TunerSaid
    | TunerDied
    | ProfilerSaid
    | PlannedAhead
    | PauseAsked
    | SearchAsked
    | OptionsSet
    | MachineChanged
    | PlaceReturned
)
PlacingEvent: TypeAlias = PlaceOperators | Settled | PartTaken | PlacerSaid | PlacerDied | MachineChanged | Look
