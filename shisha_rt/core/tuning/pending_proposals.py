"""Tuning's proposals that are on their way: what each was made for, and by which search."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import Final

from shisha_rt.core.lifecycle.events import Owner, PlanProposed
from shisha_rt.core.lifecycle.instructions import Settled
from shisha_rt.core.tuning.outbox import TuningOutbox
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
    COMPARE = "to be compared with the one that serves"


@dataclass(frozen=True, slots=True)
class PendingProposal:
    """A proposal that is not settled yet."""

    purpose: Purpose
    run: int
    attempts: int


class PendingProposals:
    """Proposals, from when they are made until they are settled."""

    def __init__(self, serving: Serving, outbox: TuningOutbox) -> None:
        self._serving = serving
        self._outbox = outbox
        self._pending: dict[tuple[Owner, int], PendingProposal] = {}

    @property
    def names(self) -> Collection[tuple[Owner, int]]:
        return self._pending.keys()

    def any(self, purpose: Purpose) -> bool:
        return any(known.purpose is purpose for known in self._pending.values())

    def propose(
        self,
        owner: Owner,
        plan: Plan,
        purpose: Purpose,
        run: int,
        attempts: int = 1,
        *,
        under: int | None = None,
        beside: bool = False,
    ) -> int:
        """Propose a plan under an epoch, by default the live one; return the proposal's number."""
        if under is None and self._serving.live is not None:
            under = self._serving.live[0]
        number = self._outbox.next_number()
        self._pending[owner, number] = PendingProposal(purpose, run, attempts)
        self._outbox.decide(PlanProposed(owner, number, plan, under, beside))
        return number

    def settled(self, end: Settled) -> PendingProposal | None:
        """Remove and return the proposal that has ended; None if it is not one of these."""
        return self._pending.pop((end.owner, end.proposal), None)
