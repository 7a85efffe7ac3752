"""What can happen to the daemon: values that the shell makes from what sockets, processes and clocks tell it.

Structs, not dataclasses: they are made, compared and hashed several times as fast, and imported in a tenth of the time.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum, StrEnum
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec import Struct

from shisha_rt.plan.plan import Plan

DEFAULT_PRIORITY: Final = 5
"""Priority of a frame that states none."""

Ticket: TypeAlias = Any
"""Opaque value from whoever sends a frame or proposes a plan. The lifecycle returns it, unread, with each instruction
for the frame, and with the end of the proposal: so nobody else needs a table of frames or of proposals."""


class Beside(NamedTuple):
    """Another frame of a batch: see `Descriptor`."""

    frame: int
    attempt: int
    slot: int


class Descriptor(NamedTuple):
    """One piece of work out with one worker: stage `stage` of `epoch`'s plan, on the frame in `slot`.

    `attempt`: how often the frame was restarted. Work that is repeated after a worker's death has another incarnation,
    so that a late reply is recognised. The worker returns the descriptor unchanged. `beside`: the other frames of the
    batch, by ascending slot; they are sent and returned together.
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
        return (self.frame, *(other.frame for other in self.beside))

    @property
    def slots(self) -> tuple[int, ...]:
        return (self.slot, *(other.slot for other in self.beside))


class Event(Struct, frozen=True):
    """What can happen to the daemon."""


class FrameArrived(Event, frozen=True, gc=False):
    """A validated request. `frame` is the daemon's own number, never used before; `deadline_s` is absolute.

    `lent_in`: some inputs lie in memory that its client lends; `lent_out`: some outputs are to be written there.
    `shape`: number of its shape among the model's; a batch has frames of one shape. `priority`: 1 is the most urgent.
    `frames`: the number of frames in the request, which are admitted or refused together, with the first of them; 0 for
    the others, whose events follow at once if the first was admitted.
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
    frames: int = 1


class FrameCancelled(Event, frozen=True):
    frame: int


class PartDone(Event, frozen=True, gc=False):
    """`service_s`: seconds for the whole batch, by which teams of a pool are compared; 0: not known."""

    descriptor: Descriptor
    service_s: float = 0.0


class PartFailed(Event, frozen=True):
    """The engine raised while it computed this batch; `reason`: its root error in one line."""

    descriptor: Descriptor
    reason: str


class WorkerReady(Event, frozen=True):
    """A started worker has opened the model and said so; it has no segment yet."""

    incarnation: int


class WorkerGone(Event, frozen=True):
    """The process is dead for certain (never presumed). `running`: the frame that it was computing, if any; of a batch,
    the one in `Descriptor.frame`.

    `started`: False if the process could not be started, for lack of processes or file descriptors. `crashed`: it ended
    by itself, and nobody has killed it.
    """

    incarnation: int
    running: int | None
    reason: str
    started: bool = True
    crashed: bool = False


class WorkerHung(Event, frozen=True):
    """The worker sends no heartbeats, or takes no messages. It is not dead and may still write: it must be killed."""

    incarnation: int
    reason: str


class Owner(StrEnum):
    """Who proposes a plan."""

    CLIENT = "client"
    TUNER = "tuner"
    PLACER = "placer"
    DAEMON = "daemon"


class Superseded(Enum):
    """What becomes of the plan that a new one supersedes."""

    RETIRES = "it is retired with its last frame"
    COMPARED = "it stays loaded, to be compared with the new one"
    KEPT = "it stays loaded, to serve again when that is asked for"


class PlanProposed(Event, frozen=True):
    """`number`: given by the owner. A plan whose operators are placed already is not placed again. `cause`: the
    stimulus that made the owner propose it, for the event log.

    `under`: the epoch that was live when it was made (None: none). If another one is live when its turn comes, the
    proposal is out of date, and dropped, unless a client made it.

    `superseded`: whether the plan that it supersedes stays loaded. If so, `Lead` says which of the two plans new frames
    use, until one is let go (`LetGo`), a place is lost, or somebody proposes another plan. Then new frames use, of two
    plans that are compared, the one that can run, or else the older one. A plan to be compared is dropped if another is
    proposed before it is live.
    """

    owner: Owner
    number: int
    plan: Plan
    under: int | None = None
    superseded: Superseded = Superseded.RETIRES
    ticket: Ticket = None
    cause: str = ""


class PlanPlaced(Event, frozen=True):
    """A proposed plan, with the devices of its operators, and otherwise unchanged."""

    proposed: PlanProposed
    plan: Plan


class PlanNotPlaced(Event, frozen=True):
    proposed: PlanProposed
    reason: str


class Lead(Event, frozen=True):
    """New frames use `epoch`, one of two that are loaded; without effect if it is neither."""

    epoch: int


class LetGo(Event, frozen=True):
    """The epoch that new frames do not use is retired with its last frame."""


class StagePrepared(Event, frozen=True):
    """`alone`: why the stage computes one frame at a time though batches were asked for; empty if it does not."""

    epoch: int
    stage: int
    incarnation: int
    alone: str = ""


class StageFailed(Event, frozen=True):
    """`bad_machine`: the machine file states what this host does not have."""

    epoch: int
    stage: int
    incarnation: int
    reason: str
    bad_machine: bool = False


class PlaceDown(Event, frozen=True):
    """Take the place out of planning; its worker leaves once no live plan needs it."""

    place: str


class PlaceUp(Event, frozen=True):
    place: str


class PlaceReachable(Event, frozen=True):
    """Whatever kept the place's worker from starting is gone: a delayed start is tried at once."""

    place: str


class Drain(Event, frozen=True):
    """Admit nothing more; answer what is in flight."""


class Stop(Event, frozen=True):
    """The daemon ends now: whatever is still unanswered gets UNAVAILABLE, whatever is proposed is dropped."""


class Tick(Event, frozen=True):
    """Time has passed."""
