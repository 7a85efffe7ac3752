"""The daemon's own account of what happened and why: numbered, bounded, the same for `events` and the log."""

from __future__ import annotations

import itertools
import logging
import time
from collections import deque
from typing import Any, Final

import msgspec

from shisha_rt.wire.journal import Record

log = logging.getLogger("shisha_rt")

KEPT: Final = 10_000


class Journal:
    """Events numbered from 0; the oldest are forgotten beyond a bound."""

    def __init__(self) -> None:
        self._events: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._next = 0

    def write(self, record: Record, cause: str) -> None:
        """`cause`: what came to the daemon, so that this happened."""
        fields: dict[str, Any] = msgspec.to_builtins(record)
        self._events.append({"event": self._next, "time_s": round(time.time(), 3), **fields, "cause": cause})
        self._next += 1
        if log.isEnabledFor(logging.INFO):
            told = " ".join(f"{key}={value}" for key, value in fields.items() if key != "kind")
            # A client's words may have line breaks, and a line is an event.
            log.info("%s %s (%s)", fields["kind"], *(" ".join(text.splitlines()) for text in (told, cause)))

    def since(self, number: int, limit: int) -> dict[str, Any]:
        """Up to `limit` events numbered `number` or later, and the number to ask for next."""
        oldest = self._next - len(self._events)
        start = max(0, number - oldest)
        found = list(itertools.islice(self._events, start, start + limit))
        return {"events": found, "next": found[-1]["event"] + 1 if found else max(number, oldest)}
