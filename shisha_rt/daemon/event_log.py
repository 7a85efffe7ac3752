"""The daemon's own account of what happened and why: numbered, bounded, the same for `events` and the log.

An event is written down once, as the JSON that `events` answers with: clients that poll cost the loop a copy of it.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final

import msgspec

from shisha_rt.core.event_log import PlanDropped, PlanLive, PlanPreparing, PlanRefused, Record
from shisha_rt.core.lifecycle.events import PlanProposed
from shisha_rt.core.lifecycle.instructions import Ending, EpochStarted, Settled

log = logging.getLogger("shisha_rt")

KEPT: Final = 10_000

PAGE_BYTES: Final = 256 * 2**10
"""Of events in one answer. To copy so much takes well under a millisecond; a trial of 64 stages has 6 KB."""


class EventLog:
    """Events numbered from 0; the oldest are forgotten beyond a bound. `next`: the number of the one to come."""

    def __init__(self) -> None:
        self._events: deque[msgspec.Raw] = deque(maxlen=KEPT)
        self.next = 0

    def write(self, record: Record, cause: str) -> None:
        """`cause`: what came to the daemon, so that this happened."""
        fields: dict[str, Any] = msgspec.to_builtins(record)
        event = {"event": self.next, "time_s": round(time.time(), 3), **fields, "cause": cause}
        self._events.append(msgspec.Raw(msgspec.json.encode(event)))
        self.next += 1
        if log.isEnabledFor(logging.INFO):
            words = " ".join(f"{key}={value}" for key, value in fields.items() if key != "kind")
            # A client's words may have line breaks, and a line is an event.
            log.info("%s %s (%s)", fields["kind"], *(" ".join(text.splitlines()) for text in (words, cause)))

    def since(self, number: int, limit: int) -> dict[str, Any]:
        """Up to `limit` events numbered `number` or later, as JSON, and the number to ask for next.

        They are fewer where they have more than `PAGE_BYTES`, but one at least: there are no more when none comes.
        """
        oldest = self.next - len(self._events)
        start = max(number, oldest)
        page: list[msgspec.Raw] = []
        room = PAGE_BYTES
        for event in islice(self._events, start - oldest, start - oldest + limit):
            room -= len(memoryview(event))
            if room < 0 and page:
                break
            page.append(event)
        return {"events": page, "next": start + len(page)}


_ENDED: Final[Mapping[Ending, Callable[..., Record]]] = {
    Ending.LIVE: PlanLive,
    Ending.REFUSED: PlanRefused,
    Ending.DROPPED: PlanDropped,
}


def proposal_started(started: EpochStarted) -> Record:
    """A proposed plan has got its epoch."""
    return PlanPreparing(epoch=started.epoch, plan=str(started.plan), **_origin(started.proposed))


def proposal_ended(end: Settled) -> Record:
    """A proposal has ended."""
    return _ENDED[end.ending](epoch=end.epoch, plan=str(end.plan), reason=end.reason, **_origin(end.proposed))


def _origin(proposed: PlanProposed) -> dict[str, str]:
    return {"proposal": f"{proposed.owner.value} {proposed.proposal}", "proposed_on": proposed.cause}
