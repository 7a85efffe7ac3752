"""Proposed plans on their way: what each was proposed on, and the clients that wait to hear how theirs ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from shisha_rt.core import event_log
from shisha_rt.core.lifecycle.events import Owner, PlanProposed
from shisha_rt.core.lifecycle.instructions import Ending, EpochStarted, Settled
from shisha_rt.plan.plan import Plan

_RECORD: Final[Mapping[Ending, Callable[..., event_log.Record]]] = {
    Ending.LIVE: event_log.PlanLive,
    Ending.REFUSED: event_log.PlanRefused,
    Ending.DROPPED: event_log.PlanDropped,
}


class Proposals:
    def __init__(self) -> None:
        self._clients = 0
        self._waiting: dict[int, Callable[[Settled], None]] = {}
        self._made_on: dict[tuple[Owner, int], str] = {}

    def of_client(self, plan: Plan, settled: Callable[[Settled], None]) -> PlanProposed:
        """A client's plan; `settled` is called once, when it is live, refused or dropped."""
        self._clients += 1
        self._waiting[self._clients] = settled
        return PlanProposed(Owner.CLIENT, self._clients, plan)

    def note(self, event: PlanProposed, cause: str) -> None:
        self._made_on[event.owner, event.proposal] = cause

    def started(self, started: EpochStarted) -> event_log.Record:
        return event_log.PlanPreparing(
            epoch=started.epoch,
            plan=str(started.plan),
            proposal=f"{started.owner.value} {started.proposal}",
            proposed_on=self._made_on[started.owner, started.proposal],
        )

    def settled(self, end: Settled) -> event_log.Record:
        """Tells the client that waits for it, if it was a client's."""
        record = _RECORD[end.ending](
            epoch=end.epoch,
            plan=str(end.plan),
            reason=end.reason,
            proposal=f"{end.owner.value} {end.proposal}",
            proposed_on=self._made_on.pop((end.owner, end.proposal)),
        )
        if end.owner is Owner.CLIENT:
            self._waiting.pop(end.proposal)(end)
        return record
