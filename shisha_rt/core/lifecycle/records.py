"""What passes through the phases: frames and their streams, proposals and epochs, places and their workers."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec
from msgspec import Struct

from shisha_rt.core.lifecycle.events import DEFAULT_PRIORITY, Descriptor, PlanProposed, Ticket
from shisha_rt.core.lifecycle.tables import EpochPhase, FramePhase, PlacePhase
from shisha_rt.errors import Error
from shisha_rt.plan.plan import Plan


class Frame(Struct, eq=False):
    """An accepted request until it is both answered and out of its slot.

    `done` are the stages of `epoch` that are, `out` its parts that are with a worker, by stage. `turn`: how many were
    given a slot before it was. `attempt`: how often it was started anew. `deaths`: those that it is charged with;
    `died_on`: where the last one was; `excused`: the parts that were out then, whose loss it is not charged with.
    `unread`: inputs that its client lends are not in its slot yet. `lent_out`: outputs go to memory that its client
    lends. `shape`: which of the model's it has. `arrived_s` and `predicted_s`: when it came, and what it was expected
    to take then, if there is a target.

    `suspected`: the stage at which it shared a run that ended badly, and nobody knows by which frame: it runs alone, on
    `died_on`, until it has passed that stage.
    """

    number: int
    stream: StreamState
    size_bytes: int
    deadline_s: float | None
    phase: FramePhase = FramePhase.WAITING
    slot: int | None = None
    turn: int = 0
    epoch: Epoch | None = None
    attempt: int = 0
    done: set[int] = msgspec.field(default_factory=set)
    out: dict[int, Descriptor] = msgspec.field(default_factory=dict)
    deaths: int = 0
    died_on: str | None = None
    excused: frozenset[Descriptor] = frozenset()
    unread: bool = False
    lent_out: bool = False
    shape: int = 0
    priority: int = DEFAULT_PRIORITY
    arrived_s: float = 0.0
    predicted_s: float = 0.0
    suspected: int | None = None
    delivered: bool = False
    ticket: Ticket = None
    error: tuple[Error, str] | None = None

    @property
    def decided(self) -> bool:
        """Whether its answer is: a result that has been collected, or `error`."""
        return self.phase in (FramePhase.LEAVING, FramePhase.GONE)

    @property
    def answerable(self) -> bool:
        """Decided, and nobody can write any more to what its client lends: that is the client's again by the answer."""
        return self.phase is FramePhase.GONE or (self.phase is FramePhase.LEAVING and not self.lent_out)


@dataclass(slots=True, eq=False)
class ClientState:
    """What one client has in flight, the bytes of its frames that wait for a slot, and its streams that are owed
    answers.
    """

    key: Hashable
    undelivered: int = 0
    waiting_bytes: int = 0
    streams: dict[StreamKey, StreamState] = field(default_factory=dict)


StreamKey: TypeAlias = tuple[Hashable, str | None, int]
"""Its client, its name (None: unordered frames), and of unordered frames their priority."""


@dataclass(slots=True, eq=False)
class StreamState:
    """One client's series; the name in its `key` is None for that client's unordered frames of one priority.

    `waiting`: no slot yet, first in first out. `order`: not delivered yet, in the order of acceptance.
    """

    key: StreamKey
    client: ClientState
    waiting: list[Frame] = field(default_factory=list)
    order: list[int] = field(default_factory=list)
    last_sequence: int | None = None
    ordered: bool = field(init=False)

    def __post_init__(self) -> None:
        self.ordered = self.key[1] is not None


@dataclass(slots=True, eq=False)
class QueuedPlan:
    """A plan that has passed the gate and waits for its turn; `placed`: so have the devices of its operators.

    It is given up at `until_s` if it is still waiting then.
    """

    proposed: PlanProposed
    plan: Plan
    placed: bool
    until_s: float


QueuedPart: TypeAlias = tuple[int, int, float, Frame]
"""Its frame's turn, its stage, since when it is ready, and its frame: so they sort by who was given a slot first."""


@dataclass(slots=True, eq=False)
class PoolState:
    """A pool of an epoch's plan: its stages, the leads of its teams, and the parts that wait for them, in order.

    `at`: where each lead is among them.
    """

    stages: tuple[int, ...]
    leads: tuple[str, ...]
    queue: list[QueuedPart] = field(default_factory=list)
    at: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.at = {lead: index for index, lead in enumerate(self.leads)}


@dataclass(slots=True, eq=False)
class Epoch:
    """A numbered plan. `frames` are those in a slot under it; `asked` the workers told to prepare it, `unprepared`
    what no worker has prepared yet: stages, each with the lead of a team.

    `pool_of` and `followers` (stages,): the pool of each, and the stages that come after it. `first`: those that need
    the input alone, `last` those that no other comes after. `service_s` (stages,): what a part takes lately, by lead;
    `quick_s` (stages,): up to that a lead is about as quick as any. `batches` (stages,): the most frames of one run.
    `moved_s`: when it was superseded, or a part of it done after that; `overdue`: that is so long ago that its frames
    are to start anew.
    """

    number: int
    plan: Plan
    proposed: PlanProposed
    batches: tuple[int, ...] = ()
    phase: EpochPhase = EpochPhase.PREPARING
    frames: set[int] = field(default_factory=set)
    moved_s: float = 0.0
    overdue: bool = False
    asked: set[int] = field(default_factory=set)
    unprepared: set[tuple[int, str]] = field(init=False)
    prepare_until_s: float = 0.0
    pools: tuple[PoolState, ...] = field(init=False)
    pool_of: tuple[PoolState, ...] = field(init=False)
    followers: tuple[tuple[int, ...], ...] = field(init=False)
    first: tuple[int, ...] = field(init=False)
    last: tuple[int, ...] = field(init=False)
    service_s: tuple[dict[str, float], ...] = field(init=False)
    quick_s: list[float] = field(init=False)

    def __post_init__(self) -> None:
        stages = list(enumerate(self.plan.stages))
        self.pools = tuple(PoolState(pool.stages, tuple(team[0] for team in pool.teams)) for pool in self.plan.pools)
        of = {index: pool for pool in self.pools for index in pool.stages}
        self.pool_of = tuple(of[index] for index, _ in stages)
        followers: list[list[int]] = [[] for _ in stages]
        for index, stage in stages:
            for previous in stage.after:
                followers[previous].append(index)
        self.followers = tuple(map(tuple, followers))
        self.unprepared = {(index, lead) for index, stage in stages for lead in stage.leads}
        self.first = tuple(index for index, stage in stages if not stage.after)
        self.last = tuple(index for index, after in enumerate(followers) if not after)
        self.service_s = tuple({} for _ in stages)
        self.quick_s = [0.0] * len(stages)
        self.batches = self.batches or tuple(stage.batch for _, stage in stages)

    def keep_alone(self, stage: int) -> None:
        """Runs of a stage have one frame from now on: frames would come out of others otherwise than alone."""
        self.batches = (*self.batches[:stage], 1, *self.batches[stage + 1 :])


@dataclass(slots=True, eq=False)
class WorkerState:
    """One incarnation of a place's process: the runs that it was given, each with its frames, and the stages, by epoch
    and index, that it has loaded or is loading (until when). `blameless`: it was ended for another's sake, with which
    neither its place nor the frame that it computed is charged. `refill_s`: when its present run is nearly done.
    """

    incarnation: int
    place: str
    start_s: float
    loaded: set[tuple[int, int]] = field(default_factory=set)
    loading: dict[tuple[int, int], float] = field(default_factory=dict)
    out: dict[Descriptor, tuple[Frame, ...]] = field(default_factory=dict)
    refill_s: float = 0.0
    killed: bool = False
    blameless: bool = False


@dataclass(slots=True)
class PlaceState:
    """`available`: may be planned on. `incarnation` is that of its present process, if it has one.

    `given_up`: it may not, as its workers died too often, and nobody has said otherwise since. `delay_s`: how long the
    last restart was put off; it grows while deaths follow each other. `lost_s`: since when it has had no worker that
    serves; None if it has one, or never had. `usual_start_s`: what its last start took. `dismissed_s`: when its worker
    was last ended as it was out of planning.
    """

    name: str
    phase: PlacePhase = PlacePhase.RESTARTING
    available: bool = True
    given_up: bool = False
    incarnation: int | None = None
    start_at_s: float = 0.0
    deaths_s: deque[float] = field(default_factory=deque)
    delay_s: float = 0.0
    lost_s: float | None = None
    usual_start_s: float = 0.0
    dismissed_s: float = -math.inf
    restarts: int = 0
    failed_starts: int = 0
    last_error: str = ""
