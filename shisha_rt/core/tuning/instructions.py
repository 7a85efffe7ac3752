"""Decisions of tuning and placing: proposals for the lifecycle, and instructions for the daemon."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from shisha_rt.core.event_log import Record
from shisha_rt.core.lifecycle.events import Event, Owner, PlanProposed, Superseded, Ticket
from shisha_rt.core.tuning import placer_messages as pm
from shisha_rt.core.tuning import profiler_messages as fm
from shisha_rt.core.tuning import tuner_messages as tm
from shisha_rt.core.tuning.best import BestPlan
from shisha_rt.plan.plan import Plan


class Decision(Struct, frozen=True):
    """What tuning or placing has the daemon do."""


class Write(Decision, frozen=True):
    """Write `record` into the event log."""

    record: Record


class TellTuner(Decision, frozen=True):
    message: tm.ToTuner


class TellProfiler(Decision, frozen=True):
    message: fm.ToProfiler


class TellPlacer(Decision, frozen=True):
    message: pm.ToPlacer


class Keep(Decision, frozen=True):
    """Keep the best plan of the machine with this key on disk, for the next start."""

    key: str
    best: BestPlan


class CountTrial(Decision, frozen=True):
    """Count a trial. `moves`: layers moved since the plan tried before; 0 for the first plan of a search."""

    verdict: str
    moves: int


class CountSolve(Decision, frozen=True):
    """Count a plan whose operators `solver` has placed."""

    solver: str


Decided: TypeAlias = Event | Decision
"""What tuning and placing return: proposals and other events for the lifecycle, and decisions for the daemon."""


class PlanningOutbox:
    """What a planning core has decided while it handles one event, and `now_s`, the time of that event."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._number = 0
        self._decided: list[Decided] = []

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def propose(
        self,
        owner: Owner,
        plan: Plan,
        under: int | None,
        ticket: Ticket = None,
        superseded: Superseded = Superseded.RETIRES,
    ) -> int:
        """Propose a plan; return the proposal's number. Parameters are as in `PlanProposed`."""
        number = self.next_number()
        self.decide(PlanProposed(owner, number, plan, under, superseded, ticket))
        return number

    def decide(self, decision: Decided) -> None:
        self._decided.append(decision)

    def write(self, record: Record) -> None:
        self._decided.append(Write(record))

    def take(self) -> list[Decided]:
        decided, self._decided = self._decided, []
        return decided
