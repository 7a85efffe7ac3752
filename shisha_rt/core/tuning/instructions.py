"""What tuning and placing decide: proposals for the lifecycle, and what is to be done for them."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from shisha_rt.core.event_log import Record
from shisha_rt.core.lifecycle.events import Lead, LetGo, Owner, PlanNotPlaced, PlanPlaced, PlanProposed, Ticket
from shisha_rt.core.tuning import placer_messages as pm
from shisha_rt.core.tuning import profiler_messages as fm
from shisha_rt.core.tuning import tuner_messages as tm
from shisha_rt.core.tuning.best import BestPlan
from shisha_rt.plan.plan import Plan


class Write(Struct, frozen=True):
    """Write `record` into the journal."""

    record: Record


class TellTuner(Struct, frozen=True):
    message: tm.ToTuner


class TellProfiler(Struct, frozen=True):
    message: fm.ToProfiler


class TellPlacer(Struct, frozen=True):
    message: pm.ToPlacer


class Keep(Struct, frozen=True):
    """Keep the best plan of the machine with this key on disk, for the next start."""

    key: str
    best: BestPlan


class CountTrial(Struct, frozen=True):
    """`moves`: from the plan tried before it; the first of a search is where that starts."""

    verdict: str
    moves: int


class CountSolve(Struct, frozen=True):
    """The operators of a plan have been placed."""

    solver: str


Decision: TypeAlias = (
    PlanProposed
    | PlanPlaced
    | PlanNotPlaced
    | Lead
    | LetGo
    | Write
    | TellTuner
    | TellPlacer
    | TellProfiler
    | Keep
    | CountTrial
    | CountSolve
)


class TuningOutbox:
    """What a planning core has in hand: the time of the event that it handles, and what it has decided so far."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._number = 0
        self._decided: list[Decision] = []

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def propose(
        self, owner: Owner, plan: Plan, under: int | None, ticket: Ticket = None, *, beside: bool = False
    ) -> int:
        """Return the proposal's number; the rest is as in `PlanProposed`."""
        number = self.next_number()
        self.decide(PlanProposed(owner, number, plan, under, beside, ticket))
        return number

    def decide(self, decision: Decision) -> None:
        self._decided.append(decision)

    def write(self, record: Record) -> None:
        self._decided.append(Write(record))

    def take(self) -> list[Decision]:
        decided, self._decided = self._decided, []
        return decided
