"""What can happen to the daemon: values that the shell makes of sockets, processes and clocks.

Structs and not dataclasses: made, compared and hashed several times as fast, and imported in a tenth of the time.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec import Struct

from shisha_rt.plan.plan import Plan

DEFAULT_PRIORITY: Final = 5
"""Of a frame that has none of its own."""

Ticket: TypeAlias = Any
"""What whoever sends a frame or proposes a plan keeps of it: the lifecycle carries it from there to the answer or the
end, unread. So its own tables, of frames and of proposals, are the only ones."""


class Beside(NamedTuple):
    """Another frame of a run: see `Descriptor`."""

    frame: int
    attempt: int
    slot: int


class Descriptor(NamedTuple):
    """One piece of work out with one worker: stage `stage` of `epoch`'s plan, on the frame in `slot`.

    `attempt` counts the starts of its frame. Work that is repeated after a death has another incarnation, so that a
    late reply is recognised. It travels as it is, there and back. `beside`: the further frames that are computed in the
    same run, by ascending slots: they go and come back together.
    """

    incarnation: int
    frame: int
    attempt: int
    stage: int
    epoch: int
    slot: int
    beside: tuple[Beside, ...] = ()

    @property
    def frames(self) -> tuple[int, ...]:
        """The numbers of all frames of the run."""
        return (self.frame, *(other.frame for other in self.beside))

    @property
    def slots(self) -> tuple[int, ...]:
        return (self.slot, *(other.slot for other in self.beside))


class FrameArrived(Struct, frozen=True, gc=False):
    """A validated request. `frame` is the daemon's own number, never used before; `deadline_s` is absolute.

    `lent_in`: inputs of it lie in memory that its client lends, `lent_out`: outputs are to be written there. `shape`:
    which of the model's shapes it has; only frames of one shape share a run. `priority`: 1 is the most urgent.
    """

    frame: int
    client: Hashable
    stream: str | None
    size_bytes: int
    sequence: int | None = None
    deadline_s: float | None = None
    lent_in: bool = False
    lent_out: bool = False
    shape: int = 0
    ticket: Ticket = None
    priority: int = DEFAULT_PRIORITY


class FrameCancelled(Struct, frozen=True):
    frame: int


class PartDone(Struct, frozen=True, gc=False):
    """`service_s`: what the run took, by which the teams of a pool are compared; 0: not known."""

    descriptor: Descriptor
    service_s: float = 0.0


class PartFailed(Struct, frozen=True):
    """The engine raised during this run; `reason` is its root error in one line."""

    descriptor: Descriptor
    reason: str


class WorkerReady(Struct, frozen=True):
    """A started worker has opened the model and said so; it has no segment yet."""

    incarnation: int


class WorkerGone(Struct, frozen=True):
    """The process is dead for certain (never presumed). `running` is the frame it was computing, if any: of several
    that share a run, the descriptor's own.

    `started`: False if there never was one, as there was no process or descriptor to be had. `crashed`: it ended by
    itself, and nobody has killed it.
    """

    incarnation: int
    running: int | None
    reason: str
    started: bool = True
    crashed: bool = False


class WorkerHung(Struct, frozen=True):
    """No sign of life, or takes no messages. It may still write, so it is to be killed, and is not dead yet."""

    incarnation: int
    reason: str


class Owner(StrEnum):
    """Who proposes a plan."""

    CLIENT = "client"
    TUNER = "tuner"
    PLACER = "placer"
    DAEMON = "daemon"


class PlanProposed(Struct, frozen=True):
    """`number` is its owner's own for it. A plan that has its operators placed already is not placed again.
    `cause`: the stimulus that it was proposed on, for the event log.

    `under`: the epoch that was live when it was made (None: none was). If another is when its turn comes, a plan of
    the daemon's own is out of date, and dropped; a client's holds whatever is live.

    `beside`: the plan that it supersedes stays loaded, to be compared with it: frames are led to the one or the other
    (`Lead`), until one is let go (`LetGo`) or a place is lost, or until somebody proposes another plan.
    """

    owner: Owner
    number: int
    plan: Plan
    under: int | None = None
    beside: bool = False
    ticket: Ticket = None
    cause: str = ""


class PlanPlaced(Struct, frozen=True):
    """A proposed plan, with the devices of its operators, and otherwise unchanged."""

    proposed: PlanProposed
    plan: Plan


class PlanNotPlaced(Struct, frozen=True):
    proposed: PlanProposed
    reason: str


class Lead(Struct, frozen=True):
    """New frames take `epoch`, one of two that are compared; without effect if it is none."""

    epoch: int


class LetGo(Struct, frozen=True):
    """The comparison is over: the epoch that new frames do not take is retired with its last frame."""


class StagePrepared(Struct, frozen=True):
    """`alone`: why its runs have to have one frame, where more were asked for."""

    epoch: int
    stage: int
    incarnation: int
    alone: str = ""


class StageFailed(Struct, frozen=True):
    """`bad_machine`: the machine file promises what this host cannot keep."""

    epoch: int
    stage: int
    incarnation: int
    reason: str
    bad_machine: bool = False


class PlaceDown(Struct, frozen=True):
    """Take the place out of planning; its worker leaves once no live plan needs it."""

    place: str


class PlaceUp(Struct, frozen=True):
    place: str


class PlaceReachable(Struct, frozen=True):
    """What kept its worker from being started is gone; it need not wait for its turn."""

    place: str


class Drain(Struct, frozen=True):
    """Admit nothing more; answer what is in flight."""


class Stop(Struct, frozen=True):
    """The daemon ends now: whatever is still unanswered gets UNAVAILABLE, whatever is proposed is dropped."""


class Tick(Struct, frozen=True):
    """Time has passed."""


Event: TypeAlias = (
    FrameArrived
    | FrameCancelled
    | PartDone
    | PartFailed
    | WorkerReady
    | WorkerGone
    | WorkerHung
    | PlanProposed
    | PlanPlaced
    | PlanNotPlaced
    | Lead
    | LetGo
    | StagePrepared
    | StageFailed
    | PlaceDown
    | PlaceUp
    | PlaceReachable
    | Drain
    | Stop
    | Tick
)
