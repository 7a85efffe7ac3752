"""The phases of a frame, an epoch and a place, each as a literal table, and the records that pass through them.

A pair that is not in its table cannot happen: `step` raises `UnknownTransition`, carrying the last transitions of
the thing that failed, and changes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeVar

from shisha_rt.lifecycle.events import Descriptor
from shisha_rt.plan.plan import Plan
from shisha_rt.wire.codes import Code


class FramePhase(Enum):
    WAITING = "accepted, no slot yet"
    READY = "in a slot, its next part waits for a worker"
    RUNNING = "its part is with a worker"
    STRANDED = "in a slot, but no plan can run it"
    LEAVING = "answer decided, its slot waits for the part that is still out"
    GONE = "holds no slot any more"


class EpochPhase(Enum):
    PREPARING = "its segments are being built"
    LIVE = "new frames take it"
    RETIRING = "superseded, with frames left"
    ENDED = "retired or dropped"


class PlacePhase(Enum):
    RESTARTING = "no process; one is started when its time comes"
    STARTING = "process started, not heard of yet"
    UP = "its worker has said that it is ready"
    OUT = "no process and none wanted"


FRAME: Final[Mapping[tuple[FramePhase, str], FramePhase]] = {
    (FramePhase.WAITING, "admit"): FramePhase.READY,
    (FramePhase.WAITING, "decide"): FramePhase.GONE,
    (FramePhase.READY, "dispatch"): FramePhase.RUNNING,
    (FramePhase.READY, "strand"): FramePhase.STRANDED,
    (FramePhase.READY, "decide"): FramePhase.GONE,
    (FramePhase.STRANDED, "restart"): FramePhase.READY,
    (FramePhase.STRANDED, "decide"): FramePhase.GONE,
    (FramePhase.RUNNING, "advance"): FramePhase.READY,
    (FramePhase.RUNNING, "finish"): FramePhase.GONE,
    (FramePhase.RUNNING, "fail"): FramePhase.GONE,
    (FramePhase.RUNNING, "lose"): FramePhase.READY,
    (FramePhase.RUNNING, "decide"): FramePhase.LEAVING,
    (FramePhase.LEAVING, "return"): FramePhase.GONE,
}

EPOCH: Final[Mapping[tuple[EpochPhase, str], EpochPhase]] = {
    (EpochPhase.PREPARING, "complete"): EpochPhase.LIVE,
    (EpochPhase.PREPARING, "drop"): EpochPhase.ENDED,
    (EpochPhase.LIVE, "supersede"): EpochPhase.RETIRING,
    (EpochPhase.RETIRING, "empty"): EpochPhase.ENDED,
}

PLACE: Final[Mapping[tuple[PlacePhase, str], PlacePhase]] = {
    (PlacePhase.RESTARTING, "start"): PlacePhase.STARTING,
    (PlacePhase.RESTARTING, "quit"): PlacePhase.OUT,
    (PlacePhase.STARTING, "ready"): PlacePhase.UP,
    (PlacePhase.STARTING, "lose"): PlacePhase.RESTARTING,
    (PlacePhase.STARTING, "quit"): PlacePhase.OUT,
    (PlacePhase.UP, "lose"): PlacePhase.RESTARTING,
    (PlacePhase.UP, "quit"): PlacePhase.OUT,
    (PlacePhase.OUT, "return"): PlacePhase.RESTARTING,
}


class UnknownTransition(RuntimeError):
    """A pair that its table does not have: a fault of ours. `story` is what went before."""

    def __init__(self, thing: str, phase: Enum, action: str, story: tuple[str, ...]) -> None:
        past = "; ".join(story[-12:]) or "nothing before"
        super().__init__(f"{thing}: {action!r} is not possible in {phase.name} ({past})")
        self.story = story


Phase = TypeVar("Phase", bound=Enum)


def step(table: Mapping[tuple[Phase, str], Phase], thing: str, phase: Phase, action: str, story: deque[str]) -> Phase:
    """The phase that `action` leads to; the transition is written to `story`."""
    after = table.get((phase, action))
    if after is None:
        raise UnknownTransition(thing, phase, action, tuple(line for line in story if line.startswith(f"{thing} ")))
    story.append(f"{thing} {action} -> {after.name}")
    return after


@dataclass(slots=True, eq=False)
class Frame:
    """An accepted request until it is both answered and out of its slot."""

    number: int
    client: Hashable
    stream: Stream
    size_bytes: int
    deadline_s: float | None
    phase: FramePhase = FramePhase.WAITING
    slot: int | None = None
    epoch: int | None = None
    stage: int = 0
    attempt: int = 0
    deaths: int = 0
    out: Descriptor | None = None
    decided: bool = False
    code: Code | None = None
    message: str = ""
    delivered: bool = False


@dataclass(slots=True, eq=False)
class Stream:
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


@dataclass(slots=True)
class Epoch:
    """A numbered plan. `frames` are those in a slot under it; `asked` the workers told to prepare it."""

    number: int
    plan: Plan
    proposal: int
    phase: EpochPhase = EpochPhase.PREPARING
    frames: set[int] = field(default_factory=set)
    asked: dict[int, bool] = field(default_factory=dict)
    prepare_until_s: float = 0.0


@dataclass(slots=True)
class Worker:
    """One incarnation of a place's process: what it has loaded, is loading (until when), and was given."""

    incarnation: int
    place: str
    start_until_s: float
    loaded: set[int] = field(default_factory=set)
    loading: dict[int, float] = field(default_factory=dict)
    out: dict[Descriptor, None] = field(default_factory=dict)
    killed: bool = False


@dataclass(slots=True)
class Place:
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
    last_error: str = ""
