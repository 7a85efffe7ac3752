"""Events for tuning and placing, besides `Settled` and `Replan` from the lifecycle. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct

from shisha_rt.core.lifecycle.instructions import Instruction
from shisha_rt.core.tuning import placer_messages as pm
from shisha_rt.core.tuning import profiler_messages as fm
from shisha_rt.core.tuning import tuner_messages as tm
from shisha_rt.machine.machine import Machine
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import AnyObjective, Objective


class PlanningEvent(Struct, frozen=True):
    """What tuning or placing hears."""


Heard: TypeAlias = PlanningEvent | Instruction
"""What tuning and placing handle: these events, and what the lifecycle says."""


class PartTaken(PlanningEvent, frozen=True, gc=False):
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


class FrameAlone(PlanningEvent, frozen=True, gc=False):
    """A frame was computed by the plan of `epoch` and met no other frame. `latency_s`: unloaded latency."""

    epoch: int
    latency_s: float


class FrameAnswered(PlanningEvent, frozen=True, gc=False):
    """A frame of `epoch` has been computed. Sent only while plans are compared, or are to be.

    `in_flight`: frames accepted and not answered; this one is among them only while its stream waits for an earlier
    one. `left`: further frames of the same batch, whose events follow at once. `kept_out`: frames refused since the
    daemon's start as they would have missed the target.
    """

    epoch: int
    in_flight: int
    left: int = 0
    kept_out: int = 0


class FramesCounted(PlanningEvent, frozen=True):
    """Sent periodically: counts of frames since the daemon's start. `arrived`: refused ones included; `met`: accepted
    while others had no answer yet; `answered`: with a result; `latency_s`: sum of their latencies. `in_flight`: now.
    """

    arrived: int = 0
    met: int = 0
    answered: int = 0
    latency_s: float = 0.0
    in_flight: int = 0


class PeriodsCounted(PlanningEvent, frozen=True):
    """Sent periodically under a CPU quota: periods in which something ran, and those in which the quota was used up."""

    periods: int
    throttled: int


class HostSeen(PlanningEvent, frozen=True):
    """Sent periodically. `others_ratio`: the share of the daemon's cores that other processes use, without its clients
    on this host. `free_ratio`: the share of the memory that the daemon may use which is free.
    """

    others_ratio: float
    free_ratio: float = 1.0


class CrowdSeen(PlanningEvent, frozen=True):
    """Other models have frames computed on these places now, and on no others."""

    places: tuple[str, ...]


class TunerSaid(PlanningEvent, frozen=True):
    message: tm.FromTuner


class TunerDied(PlanningEvent, frozen=True):
    """The tuner's process has died, and another one has been started."""

    reason: str


class ProfilerSaid(PlanningEvent, frozen=True):
    message: fm.FromProfiler


class PlannedAhead(PlanningEvent, frozen=True):
    """The best plans by stored costs, for objectives that were not wanted at the start."""

    by_costs: Mapping[Objective, Plan]


class PlacerSaid(PlanningEvent, frozen=True):
    message: pm.FromPlacer


class PlacerDied(PlanningEvent, frozen=True):
    """The placer's process has died, and another one has been started."""

    reason: str


class PauseAsked(PlanningEvent, frozen=True):
    """A client asks to stop searching and watching; the best plan of the search goes live (R5)."""

    why: str


class SearchAsked(PlanningEvent, frozen=True):
    """A client asks to search from the live plan, which the daemon may replace from now on."""

    why: str


class OptionsSet(PlanningEvent, frozen=True):
    """Options for the next search; None leaves an option as it is."""

    strategy: str | None = None
    alpha: int | None = None
    objective: AnyObjective | None = None


class MachineChanged(PlanningEvent, frozen=True):
    """The machine has changed, so measurements so far no longer hold."""

    machine: Machine
    why: str


class PlaceReturned(PlanningEvent, frozen=True):
    """Plans may use the place again."""

    place: str


class Look(PlanningEvent, frozen=True):
    """Sent periodically: compare measured with predicted times of segments."""
