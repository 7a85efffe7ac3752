"""What passes through the phases: frames and their streams, proposals and epochs, places and their workers."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field

from shisha_rt.lifecycle.events import Descriptor, PlanProposed
from shisha_rt.lifecycle.tables import EpochPhase, FramePhase, PlacePhase
from shisha_rt.plan.plan import Plan
from shisha_rt.wire.codes import Code


@dataclass(slots=True, eq=False)
class Frame:
    """An accepted request until it is both answered and out of its slot."""

    number: int
    client: Hashable
    stream: StreamState
    size_bytes: int
    deadline_s: float | None
    phase: FramePhase = FramePhase.WAITING
    slot: int | None = None
    epoch: int | None = None
    stage: int = 0
    attempt: int = 0
    deaths: int = 0
    out: Descriptor | None = None
    delivered: bool = False
    error: tuple[Code, str] | None = None

    @property
    def decided(self) -> bool:
        """Whether its answer is: a result that has been collected, or `error`."""
        return self.phase in (FramePhase.LEAVING, FramePhase.GONE)


@dataclass(slots=True, eq=False)
class StreamState:
    """One client's ordered series; `name` is None for that client's unordered frames.

    `waiting`: no slot yet, first in first out. `order`: not delivered yet, in the order of acceptance.
    """

    key: tuple[Hashable, str | None]
    waiting: deque[int] = field(default_factory=deque)
    order: deque[int] = field(default_factory=deque)
    last_sequence: int | None = None

    @property
    def ordered(self) -> bool:
        return self.key[1] is not None


@dataclass(slots=True, eq=False)
class QueuedPlan:
    """A plan that has passed the gate and waits for its turn; `placed`: so have the devices of its operators.

    It is given up at `until_s` if it is still not placed then.
    """

    event: PlanProposed
    plan: Plan
    placed: bool
    until_s: float


@dataclass(slots=True)
class Epoch:
    """A numbered plan. `frames` are those in a slot under it; `asked` the workers told to prepare it.

    `stage_places` is (stages,) and `places` the same as a set: each frame asks for them.
    """

    number: int
    plan: Plan
    proposal: PlanProposed
    phase: EpochPhase = EpochPhase.PREPARING
    frames: set[int] = field(default_factory=set)
    asked: dict[int, bool] = field(default_factory=dict)
    prepare_until_s: float = 0.0
    stage_places: tuple[str, ...] = field(init=False)
    places: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.stage_places = tuple(stage.place for stage in self.plan.stages)
        self.places = frozenset(self.stage_places)


@dataclass(slots=True)
class WorkerState:
    """One incarnation of a place's process: what it has loaded, is loading (until when), and was given."""

    incarnation: int
    place: str
    start_until_s: float
    loaded: set[int] = field(default_factory=set)
    loading: dict[int, float] = field(default_factory=dict)
    out: dict[Descriptor, None] = field(default_factory=dict)
    killed: bool = False


@dataclass(slots=True)
class PlaceState:
    """`available`: may be planned on. `incarnation` is that of its present process, if it has one.

    `delay_s`: how long the last restart was put off; it grows while deaths follow each other.
    """

    name: str
    phase: PlacePhase = PlacePhase.RESTARTING
    available: bool = True
    incarnation: int | None = None
    start_at_s: float = 0.0
    deaths_s: deque[float] = field(default_factory=deque)
    delay_s: float = 0.0
    restarts: int = 0
    failed_starts: int = 0
    last_error: str = ""
