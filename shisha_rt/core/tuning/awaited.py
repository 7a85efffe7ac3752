"""Tuning's proposals that are on their way: what each was made for, and by which search."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import Final

from shisha_rt.core.lifecycle.events import Owner, PlanProposed
from shisha_rt.core.lifecycle.instructions import Settled
from shisha_rt.core.tuning.desk import Desk
from shisha_rt.core.tuning.state import Serving
from shisha_rt.plan.plan import Plan

ATTEMPTS: Final = 3
"""To make a plan live, before it counts as one that cannot run."""


class Purpose(Enum):
    """What a plan was proposed for."""

    TRIAL = "to be measured"
    STAY = "the best of a search, to stay"
    PAUSE = "the best of a search that was paused"
    SERVE = "a plan of the daemon's own"
    SWITCH = "the best for another objective, as the load asks"


@dataclass(frozen=True, slots=True)
class Awaited:
    """A proposal that is not settled yet."""

    purpose: Purpose
    run: int
    attempts: int


class OnTheirWay:
    """Proposals, from when they are made until they are settled."""

    def __init__(self, serving: Serving, desk: Desk) -> None:
        self._serving = serving
        self._desk = desk
        self._awaited: dict[tuple[Owner, int], Awaited] = {}

    @property
    def names(self) -> Collection[tuple[Owner, int]]:
        return self._awaited.keys()

    def any(self, purpose: Purpose) -> bool:
        return any(known.purpose is purpose for known in self._awaited.values())

    def propose(self, owner: Owner, plan: Plan, purpose: Purpose, run: int, attempts: int = 1) -> int:
        """Under the live epoch; returns the proposal's number."""
        live = self._serving.live
        number = self._desk.next_number()
        self._awaited[owner, number] = Awaited(purpose, run, attempts)
        self._desk.decide(PlanProposed(owner, number, plan, None if live is None else live[0]))
        return number

    def settled(self, end: Settled) -> Awaited | None:
        """None: it was none of these."""
        return self._awaited.pop((end.owner, end.proposal), None)
