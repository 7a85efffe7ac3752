"""What the daemon has to do: values that the lifecycle returns, to be carried out in their order."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from shisha_rt.core.lifecycle.events import Descriptor, PlanProposed, Ticket
from shisha_rt.errors import Error
from shisha_rt.plan.plan import Plan, Team


class Instruction(Struct, frozen=True):
    """What the daemon has to do."""


class Refuse(Instruction, frozen=True):
    """Answer at once with an error; the frame was never accepted."""

    frame: int
    kind: Error
    message: str
    ticket: Ticket = None


class Fill(Instruction, frozen=True, gc=False):
    """Copy the inputs that came with the request into the frame's slot; the request's buffers can then be freed."""

    frame: int
    slot: int
    ticket: Ticket = None


class ReadLent(Instruction, frozen=True):
    """Copy the inputs that the frame's client lends into its slot, as several first stages read them."""

    frame: int
    slot: int
    ticket: Ticket = None


class Shared(Struct, frozen=True, gc=False):
    """The fields of `RunPart` for another frame of its batch."""

    reads: bool
    writes: bool
    ticket: Ticket


class RunPart(Instruction, frozen=True, gc=False):
    """Send a part to its worker. `ready_s`: when it became ready, or ready again after a death.

    `reads`: the worker first copies the inputs that the client lends into the slot; `writes`: at the end it writes the
    outputs to memory that the client lends. `beside`: the same for the descriptor's other frames.
    """

    descriptor: Descriptor
    ready_s: float
    reads: bool = False
    writes: bool = False
    ticket: Ticket = None
    beside: tuple[Shared, ...] = ()


class Collect(Instruction, frozen=True, gc=False):
    """Copy the frame's outputs out of its slot, now: the slot may be filled again by the next instruction.

    `written`: outputs that belong in memory that the client lends are there already. `left`: how
    many frames of the same batch follow at once.
    """

    frame: int
    slot: int
    epoch: int
    written: bool = False
    ticket: Ticket = None
    left: int = 0


class Deliver(Instruction, frozen=True, gc=False):
    """Send the frame's answer: what was collected, or this error."""

    frame: int
    kind: Error | None = None
    message: str = ""
    ticket: Ticket = None


class Start(Instruction, frozen=True):
    """Start a worker process for `place` under this incarnation (unique in the daemon's life)."""

    place: str
    incarnation: int


class Kill(Instruction, frozen=True):
    """Kill a worker. `dismissed`: it is not wanted, as its place is out of planning; nothing has failed."""

    incarnation: int
    reason: str
    dismissed: bool = False


class PrepareStage(Instruction, frozen=True):
    """Have the lead of `team` build and warm stage `stage` of `plan` for `epoch`. `batch`: most frames of a batch."""

    incarnation: int
    epoch: int
    stage: int
    team: Team
    plan: Plan
    batch: int


class RetireEpoch(Instruction, frozen=True):
    """Have a worker unload its stages of `epoch`."""

    incarnation: int
    epoch: int


class PlaceOperators(Instruction, frozen=True):
    """Choose the devices of the plan's operators; `PlanPlaced` or `PlanNotPlaced` is awaited."""

    proposed: PlanProposed


class Ending(StrEnum):
    """How a proposal ends; each ends once."""

    LIVE = "live"
    REFUSED = "refused"
    DROPPED = "dropped"


class Settled(Instruction, frozen=True):
    """How a proposal ended. `plan`: with the devices of its operators, if they have been chosen. `epoch`: None if its
    preparation never began.

    `bad_machine`: what the machine file states and this host does not have, if that is the reason. `transient`: the
    reason is not the plan, which may go live another time. `failed_stage`: the stage (index) that could not be
    prepared, if that is the reason.
    """

    proposed: PlanProposed
    plan: Plan
    epoch: int | None
    ending: Ending
    reason: str
    bad_machine: str | None = None
    transient: bool = False
    failed_stage: int | None = None


class EpochStarted(Instruction, frozen=True):
    """`epoch` is being prepared."""

    proposed: PlanProposed
    epoch: int
    plan: Plan


class EpochEnded(Instruction, frozen=True):
    """No frame and no worker uses `epoch` any more; slots need not hold tensors that only its plan passed on."""

    epoch: int
    plan: Plan


class Replan(Instruction, frozen=True):
    """The live plan cannot serve (or there is none): propose one over the places that are available."""

    reason: str


class PlaceAway(Instruction, frozen=True):
    """The worker of `place` is overdue: plans are made without the place until the worker is back."""

    place: str


class PlaceBack(Instruction, frozen=True):
    """A place that was away has its worker again."""

    place: str


class PlaceReleased(Instruction, frozen=True):
    """A place that was taken down has no process any more, and no epoch's plan uses its cores."""

    place: str


class GivenUp(Instruction, frozen=True):
    """`place` is left out of planning, as its workers have died too often."""

    place: str
    reason: str
