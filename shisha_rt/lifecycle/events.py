"""What can happen to the daemon (events), and what it then has to do (instructions). Values only.

The shell turns sockets, processes and clocks into events, hands them to `Lifecycle.handle`, and carries out the
instructions that come back, in order. Nothing else passes between the two.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TypeAlias

from shisha_rt.plan.plan import Plan
from shisha_rt.wire.codes import Code


@dataclass(frozen=True, slots=True)
class Descriptor:
    """One piece of work out with one worker: stage `stage` of `epoch`'s plan, on the frame in `slot`.

    `attempt` tells a piece of work from its repetition after a death, so that a late reply is recognised.
    """

    incarnation: int
    frame: int
    attempt: int
    stage: int
    epoch: int
    slot: int


# --- events ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FrameArrived:
    """A validated request. `frame` is the daemon's own number, never used before; `deadline_s` is absolute."""

    frame: int
    client: Hashable
    stream: str | None
    size_bytes: int
    sequence: int | None = None
    deadline_s: float | None = None


@dataclass(frozen=True, slots=True)
class FrameCancelled:
    frame: int


@dataclass(frozen=True, slots=True)
class PartDone:
    descriptor: Descriptor


@dataclass(frozen=True, slots=True)
class PartFailed:
    """The engine raised while it ran this part; `reason` is its root error in one line."""

    descriptor: Descriptor
    reason: str


@dataclass(frozen=True, slots=True)
class WorkerReady:
    """A started worker has opened the model and said so; it has no segment yet."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class WorkerGone:
    """The process is dead for certain (never presumed). `running` is the frame it was computing, if any."""

    incarnation: int
    running: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class PlanProposed:
    """A plan that `verify` has passed. `proposal` is the proposer's own handle."""

    proposal: int
    plan: Plan


@dataclass(frozen=True, slots=True)
class Prepared:
    epoch: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class PrepareFailed:
    epoch: int
    incarnation: int
    reason: str


@dataclass(frozen=True, slots=True)
class PlaceDown:
    """Take the place out of planning; its worker leaves once no live plan needs it."""

    place: str


@dataclass(frozen=True, slots=True)
class PlaceUp:
    place: str


@dataclass(frozen=True, slots=True)
class Drain:
    """Admit nothing more; answer what is in flight."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The daemon ends now: whatever is still unanswered gets UNAVAILABLE, whatever is proposed is dropped."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


Event: TypeAlias = (
    FrameArrived
    | FrameCancelled
    | PartDone
    | PartFailed
    | WorkerReady
    | WorkerGone
    | PlanProposed
    | Prepared
    | PrepareFailed
    | PlaceDown
    | PlaceUp
    | Drain
    | Stop
    | Tick
)


# --- instructions ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer at once with an error; the frame was never accepted."""

    frame: int
    code: Code
    message: str


@dataclass(frozen=True, slots=True)
class Fill:
    """Copy the frame's inputs into its slot; the request's own buffers are needed no longer."""

    frame: int
    slot: int


@dataclass(frozen=True, slots=True)
class Run:
    descriptor: Descriptor


@dataclass(frozen=True, slots=True)
class Collect:
    """Copy the frame's outputs out of its slot, now: the slot may be filled again by the next instruction."""

    frame: int
    slot: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Deliver:
    """Send the frame's answer: what was collected, or this error."""

    frame: int
    code: Code | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Start:
    """Start a worker process for `place` under this incarnation (unique in the daemon's life)."""

    place: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class Kill:
    incarnation: int
    reason: str


@dataclass(frozen=True, slots=True)
class Prepare:
    """Have this worker build and warm its stage of `epoch` beside what it runs now."""

    incarnation: int
    epoch: int
    stage: int


@dataclass(frozen=True, slots=True)
class Retire:
    incarnation: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Settled:
    """How a proposal ended: `live`, `refused` or `dropped`. `epoch` is None if it never got a number."""

    proposal: int
    epoch: int | None
    outcome: str
    reason: str


@dataclass(frozen=True, slots=True)
class EpochStarted:
    """`epoch` is being prepared; its plan is known to the shell from here on."""

    epoch: int
    plan: Plan


@dataclass(frozen=True, slots=True)
class EpochEnded:
    """No frame and no worker uses `epoch` any more; slots need no room that only it used."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Replan:
    """The live plan cannot serve (or there is none): propose one over the places that are available."""

    reason: str


@dataclass(frozen=True, slots=True)
class GivenUp:
    place: str
    reason: str


Instruction: TypeAlias = (
    Refuse
    | Fill
    | Run
    | Collect
    | Deliver
    | Start
    | Kill
    | Prepare
    | Retire
    | Settled
    | EpochStarted
    | EpochEnded
    | Replan
    | GivenUp
)
