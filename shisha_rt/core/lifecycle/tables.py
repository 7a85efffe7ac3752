"""The phases of frames, epochs and places, and the table of transitions of each.

A (phase, action) pair that is not in its table cannot happen: `Transitions.step` then raises `UnknownTransition`, with
the last transitions of that frame, epoch or place, and changes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import Enum
from typing import Final, Generic, Protocol, TypeAlias, TypeVar


class _Phase(Enum):
    """Phases are looked up with every step, so they are hashed by identity: `Enum.__hash__` is a Python function."""

    __hash__ = object.__hash__


class FramePhase(_Phase):
    WAITING = "accepted, no slot yet"
    ACTIVE = "in a slot, its parts wait for workers or are with them"
    STRANDED = "in a slot, none of its parts is out, and no plan can run it"
    LEAVING = "answer decided, its slot waits for the parts that are still out"
    GONE = "holds no slot any more"


class EpochPhase(_Phase):
    PREPARING = "its segments are being built"
    LIVE = "new frames take it"
    RETIRING = "superseded, with frames left"
    ENDED = "retired or dropped"


class PlacePhase(_Phase):
    RESTARTING = "no process; one is started when its time comes"
    STARTING = "process started, not heard of yet"
    UP = "its worker has said that it is ready"
    OUT = "no process and none wanted"


FRAME: Final[Mapping[tuple[FramePhase, str], FramePhase]] = {
    (FramePhase.WAITING, "admit"): FramePhase.ACTIVE,
    (FramePhase.WAITING, "decide"): FramePhase.GONE,
    (FramePhase.ACTIVE, "finish"): FramePhase.GONE,
    (FramePhase.ACTIVE, "decide"): FramePhase.GONE,
    (FramePhase.ACTIVE, "leave"): FramePhase.LEAVING,
    (FramePhase.ACTIVE, "strand"): FramePhase.STRANDED,
    (FramePhase.STRANDED, "restart"): FramePhase.ACTIVE,
    (FramePhase.STRANDED, "decide"): FramePhase.GONE,
    (FramePhase.LEAVING, "return"): FramePhase.GONE,
}

EPOCH: Final[Mapping[tuple[EpochPhase, str], EpochPhase]] = {
    (EpochPhase.PREPARING, "complete"): EpochPhase.LIVE,
    (EpochPhase.PREPARING, "drop"): EpochPhase.ENDED,
    (EpochPhase.LIVE, "supersede"): EpochPhase.RETIRING,
    (EpochPhase.RETIRING, "recall"): EpochPhase.LIVE,
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


Transition: TypeAlias = tuple[str, object, str, Enum]
"""(kind, number or name, action, phase that the action led to)"""


class UnknownTransition(RuntimeError):
    """A (phase, action) pair that is not in its table: a bug. `story`: what happened to the same thing before."""

    def __init__(self, kind: str, name: object, phase: Enum, action: str, story: tuple[Transition, ...]) -> None:
        past = "; ".join(f"{done} -> {after.name}" for _, _, done, after in story[-12:]) or "nothing before"
        super().__init__(f"{kind} {name}: {action!r} is not possible in {phase.name} ({past})")
        self.story = story


Phase = TypeVar("Phase", bound=Enum)


class _HasPhase(Protocol[Phase]):
    phase: Phase


class Transitions(Generic[Phase]):
    """The transitions of all frames, epochs or places (`kind`). `story`: the last ones of every kind."""

    def __init__(self, kind: str, table: Mapping[tuple[Phase, str], Phase], story: deque[Transition]) -> None:
        self._kind = kind
        self._table = table
        self._story = story

    def step(self, name: object, state: _HasPhase[Phase], action: str) -> None:
        """Put the frame, epoch or place `name` into the phase that `action` leads to; append that to the story."""
        after = self._table.get((state.phase, action))
        if after is None:
            past = tuple(event for event in self._story if event[:2] == (self._kind, name))
            raise UnknownTransition(self._kind, name, state.phase, action, past)
        self._story.append((self._kind, name, action, after))
        state.phase = after
