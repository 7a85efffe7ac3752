"""What tuning and placing are told besides `Settled` and `Replan`, which the lifecycle says. Values only."""

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

    `segments_s` is empty unless its operators are placed on devices. `full`: its run had as many frames as one may.
    """

    epoch: int
    stage: int
    place: str
    service_s: float
    segments_s: tuple[float, ...] = ()
    full: bool = True


class FrameAlone(Struct, frozen=True, gc=False):
    """A frame has passed through the plan of `epoch`, and met no other on its way."""

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
    """Every so often: the frames since the daemon's start. Those that `arrived`, refused ones too; that `met` others
    which had no answer yet; that were `answered` with a result, and how long all of these took. `in_flight`: now.
    """

    arrived: int = 0
    met: int = 0
    answered: int = 0
    latency_s: float = 0.0
    in_flight: int = 0


class PeriodsCounted(Struct, frozen=True):
    """Every so often, under a CPU quota: its periods in which something ran, and those in which it was used up."""

    periods: int
    throttled: int


class OthersSeen(Struct, frozen=True):
    """Every so often: the part of the daemon's cores that other processes take, without its clients on this host."""

    others_ratio: float


class CrowdSeen(Struct, frozen=True):
    """Other models have frames computed on these places now, and on no others."""

    places: tuple[str, ...]


class TunerSaid(Struct, frozen=True):
    message: tm.FromTuner


class TunerDied(Struct, frozen=True):
    """Another process has been started in its place."""

    reason: str


class ProfilerSaid(Struct, frozen=True):
    message: fm.FromProfiler


class PlannedAhead(Struct, frozen=True):
    """The best plans by stored costs for objectives that were not wanted at the start."""

    by_costs: Mapping[Objective, Plan]


class PlacerSaid(Struct, frozen=True):
    message: pm.FromPlacer


class PlacerDied(Struct, frozen=True):
    """Another process has been started in its place."""

    reason: str


class PauseAsked(Struct, frozen=True):
    """Stop searching and watching; the best plan of the search goes live (R5)."""

    why: str


class SearchAsked(Struct, frozen=True):
    """Search from the live plan, which is the daemon's to replace from now on."""

    why: str


class OptionsSet(Struct, frozen=True):
    """Options for the next search; None leaves an option as it is."""

    strategy: str | None = None
    alpha: int | None = None
    objective: AnyObjective | None = None


class MachineChanged(Struct, frozen=True):
    """What was measured holds no longer."""

    machine: Machine
    why: str


class PlaceReturned(Struct, frozen=True):
    """A place may be planned on again."""

    place: str


class Look(Struct, frozen=True):
    """Every so often: compare what segments take with what was predicted."""


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
