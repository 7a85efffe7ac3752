"""The daemon's record of what happened and why: numbered, bounded, the same for `events` and the log.

An event is encoded once, as the JSON of the answer to `events`: a client that polls costs the loop one copy of that.
All but the latest events are kept in compressed blocks: they resemble each other, and 10,000 events with 64 stages take
59 MB uncompressed.
"""

from __future__ import annotations

import logging
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from shisha_rt.core.event_log import PlanDropped, PlanLive, PlanPreparing, PlanRefused, Record
from shisha_rt.core.lifecycle.events import PlanProposed
from shisha_rt.core.lifecycle.instructions import Ending, EpochStarted, Settled

log = logging.getLogger("shisha_rt")

KEPT: Final = 10_000

PAGE_BYTES: Final = 256 * 2**10
"""Most bytes of events in one answer. Copying them takes well under a millisecond; a trial of 64 stages has 6 KB."""

_BLOCK_BYTES: Final = 32 * 2**10
"""A block is compressed once its events have so many bytes, which takes a third of a millisecond."""


class _Block(NamedTuple):
    """Consecutive events from number `first` on: a JSON array, compressed."""

    first: int
    compressed: bytes

    def events(self) -> list[msgspec.Raw]:
        return msgspec.json.decode(zlib.decompress(self.compressed), type=list[msgspec.Raw])


class EventLog:
    """Events numbered from 0, of which at least the last `kept` are kept. `next`: the next event's number."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._blocks: deque[_Block] = deque()
        self._latest: list[msgspec.Raw] = []
        self._latest_bytes = 0
        self.next = 0

    def write(self, record: Record, cause: str) -> None:
        """Record an event. `cause`: the input of the daemon that led to it."""
        fields: dict[str, Any] = msgspec.to_builtins(record)
        event = {"event": self.next, "time_s": round(time.time(), 3), **fields, "cause": cause}
        self._keep(msgspec.json.encode(event))
        if log.isEnabledFor(logging.INFO):
            words = " ".join(f"{key}={value}" for key, value in fields.items() if key != "kind")
            # One line for each event: texts from clients may have line breaks.
            log.info("%s %s (%s)", fields["kind"], *(" ".join(text.splitlines()) for text in (words, cause)))

    def since(self, number: int, limit: int) -> dict[str, Any]:
        """Up to `limit` events numbered `number` or later, as JSON, and the number to ask for next.

        At most `PAGE_BYTES` of them, but at least one event if there is any: an empty answer means that none are left.
        """
        page: list[msgspec.Raw] = []
        room, next_number = PAGE_BYTES, number
        for at, event in self._from(number):
            room -= len(memoryview(event))
            if len(page) == limit or (room < 0 and page):
                break
            page.append(event)
            next_number = at + 1
        return {"events": page, "next": next_number}

    def _keep(self, event: bytes) -> None:
        self._latest.append(msgspec.Raw(event))
        self._latest_bytes += len(event)
        self.next += 1
        if self._latest_bytes >= _BLOCK_BYTES:
            compressed = zlib.compress(msgspec.json.encode(self._latest), zlib.Z_BEST_SPEED)
            self._blocks.append(_Block(self.next - len(self._latest), compressed))
            self._latest, self._latest_bytes = [], 0
        while len(self._blocks) > 1 and self.next - self._blocks[1].first >= self._kept:
            self._blocks.popleft()

    def _from(self, number: int) -> Iterator[tuple[int, msgspec.Raw]]:
        """Yield the kept events numbered `number` or later, each with its number."""
        ends = [*(block.first for block in self._blocks), self.next - len(self._latest)][1:]
        for block, end in zip(self._blocks, ends, strict=True):
            if end > number:
                yield from ((at, event) for at, event in enumerate(block.events(), block.first) if at >= number)
        first = self.next - len(self._latest)
        skipped = max(0, number - first)
        yield from enumerate(self._latest[skipped:], first + skipped)


_ENDED: Final[Mapping[Ending, Callable[..., Record]]] = {
    Ending.LIVE: PlanLive,
    Ending.REFUSED: PlanRefused,
    Ending.DROPPED: PlanDropped,
}


def proposal_started(started: EpochStarted) -> Record:
    return PlanPreparing(epoch=started.epoch, plan=str(started.plan), **_origin(started.proposed))


def proposal_ended(end: Settled) -> Record:
    return _ENDED[end.ending](epoch=end.epoch, plan=str(end.plan), reason=end.reason, **_origin(end.proposed))


def _origin(proposed: PlanProposed) -> dict[str, str]:
    return {"proposal": f"{proposed.owner.value} {proposed.number}", "proposed_on": proposed.cause}
