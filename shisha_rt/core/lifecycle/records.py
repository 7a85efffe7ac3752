"""The lifecycle's records: frames and their streams, proposals and epochs, places and their workers."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec
from msgspec import Struct

from shisha_rt.core.lifecycle.batch_filling import RunTimes
from shisha_rt.core.lifecycle.events import DEFAULT_PRIORITY, Descriptor, PlanProposed, Ticket
from shisha_rt.core.lifecycle.tables import EpochPhase, FramePhase, PlacePhase
from shisha_rt.errors import Error
from shisha_rt.plan.plan import Plan


class Frame(Struct, eq=False):
    """An accepted request until it is both answered and out of its slot.

    `done`: stages of `epoch` that are done; `out`: parts that are with a worker, by stage. `turn`: how many frames were
    given a slot before this one. `attempt`: how often it was restarted. `deaths`: worker deaths that it is charged
    with; `died_on`: place of the last one; `excused`: parts that were out then, whose loss is not charged to it.
    `unread`: inputs that its client lends are not in its slot yet. `lent_out`: outputs go to memory that its client
    lends. `shape`: number of its shape among the model's. `arrived_s`: when it came; `predicted_s`: the seconds that
    were predicted for it then, 0 without a target.

    `suspected`: the stage at which a batch with this frame ended a worker or raised; which of its frames did so is not
    known. Until the frame has passed that stage it runs alone, on `died_on`.
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
        """Whether its answer is decided: a result that has been collected, or `error`."""
        return self.phase in (FramePhase.LEAVING, FramePhase.GONE)

    @property
    def answerable(self) -> bool:
        """Whether it is decided, and no worker can write to lent memory any more: the answer returns that memory."""
        return self.phase is FramePhase.GONE or (self.phase is FramePhase.LEAVING and not self.lent_out)


class ClientState(Struct, eq=False):
    """One client: its undelivered frames, the bytes of its frames that wait for a slot, and its streams."""

    key: Hashable
    undelivered: int = 0
    waiting_bytes: int = 0
    streams: dict[StreamKey, StreamState] = msgspec.field(default_factory=dict)


StreamKey: TypeAlias = tuple[Hashable, str | None, int]
"""(client, name, priority): the name is None for unordered frames; the priority is 0 for ordered ones."""


class StreamState(Struct, eq=False):
    """One stream of a client, or, if not `ordered`, the client's frames of one priority that are in no stream.

    `waiting`: frames without a slot, in the order of acceptance. `order`: ordered frames that are not delivered yet.
    """

    key: StreamKey
    client: ClientState
    waiting: list[Frame] = msgspec.field(default_factory=list)
    order: list[int] = msgspec.field(default_factory=list)
    last_sequence: int | None = None
    ordered: bool = False


@dataclass(slots=True, eq=False)
class QueuedPlan:
    """A proposed plan that waits, at most until `until_s`. `placed`: its operators have devices, or need none."""

    proposed: PlanProposed
    plan: Plan
    placed: bool
    until_s: float


QueuedPart: TypeAlias = tuple[int, int, float, Frame]
"""(the frame's turn, stage, time at which it became ready, frame): the frame whose turn came first sorts first."""


@dataclass(slots=True, eq=False)
class PoolState:
    """A pool of an epoch's plan: stages, leads of teams, waiting parts in order. `at`: index of each lead."""

    stages: tuple[int, ...]
    leads: tuple[str, ...]
    queue: list[QueuedPart] = field(default_factory=list)
    at: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.at = {lead: index for index, lead in enumerate(self.leads)}


@dataclass(slots=True, eq=False)
class Epoch:
    """A numbered plan. `frames`: those in a slot under it. `asked`: incarnations of the workers that were asked to
    prepare it. `unprepared`: the (stage, lead) pairs that are not prepared yet.

    `pool_of`, `followers` (stages,): the pool of each stage, and the stages that directly come after it. `first`:
    stages that need only the input; `last`: stages that no other comes after. `service_s` (stages,): moving average of
    the seconds for each frame, by lead; `quick_s` (stages,): a lead with at most this time counts as one of the
    fastest. `run_times` (stages,): what runs of stages with batches take. `batches` (stages,): batch
    sizes. `moved_s`: when a part of it was last done, or it was superseded, if that was later. `overdue`: `moved_s` is
    so long ago that its frames have to start anew.
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
    run_times: tuple[RunTimes, ...] = field(init=False)
    quick_s: list[float] = field(init=False)

    def __post_init__(self) -> None:
        stages = list(enumerate(self.plan.stages))
        self.pools = tuple(PoolState(pool.stages, tuple(team[0] for team in pool.teams)) for pool in self.plan.pools)
        of = {index: pool for pool in self.pools for index in pool.stages}
        self.pool_of = tuple(of[index] for index, _ in stages)
        self.followers = self.plan.followers
        self.unprepared = {(index, lead) for index, stage in stages for lead in stage.leads}
        self.first = tuple(index for index, stage in stages if not stage.after)
        self.last = tuple(index for index, after in enumerate(self.followers) if not after)
        self.service_s = tuple({} for _ in stages)
        self.run_times = tuple(RunTimes() for _ in stages)
        self.quick_s = [0.0] * len(stages)
        self.batches = self.batches or tuple(stage.batch for _, stage in stages)

    def keep_alone(self, stage: int) -> None:
        """Set the batch size of a stage to 1, as results of its batches differ from those of single frames."""
        self.batches = (*self.batches[:stage], 1, *self.batches[stage + 1 :])


@dataclass(slots=True, eq=False)
class WorkerState:
    """One incarnation of a place's process. `loaded`, `loading`: stages by (epoch, index); for those being loaded, the
    time by which they must be (inf in preparation, as the epoch itself has a limit then). `out`: batches that it has,
    with their frames. `refill_s`: when its present batch is nearly done. `idle_s`: when it last ran out of batches.
    `blameless`: neither its place nor the frame that it computed is charged with its death. `dismissed`: it was ended
    as its place was taken out of planning.
    """

    incarnation: int
    place: str
    start_s: float
    loaded: set[tuple[int, int]] = field(default_factory=set)
    loading: dict[tuple[int, int], float] = field(default_factory=dict)
    out: dict[Descriptor, tuple[Frame, ...]] = field(default_factory=dict)
    refill_s: float = 0.0
    idle_s: float = 0.0
    killed: bool = False
    blameless: bool = False
    dismissed: bool = False


@dataclass(slots=True)
class PlaceState:
    """`available`: plans may use it. `incarnation`: that of its present process, if it has one.

    `given_up`: unavailable because its workers died too often; lasts until it is brought up or taken down. `delay_s`:
    how long its last restart was delayed; grows while deaths follow each other. `lost_s`: when it lost its worker; None
    while it has one, or waits for its first. `usual_start_s`: how long its last start took. `dismissed_s`: when its
    worker was last ended because the place was out of planning.
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
