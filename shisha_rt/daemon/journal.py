"""The daemon's own account of what happened and why: numbered, bounded, the same for `events` and the log."""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import Any, Final

log = logging.getLogger("shisha_rt")

_KEPT: Final = 10_000


class Journal:
    """Events numbered from 0; the oldest are forgotten beyond a bound."""

    def __init__(self) -> None:
        self._events: deque[dict[str, Any]] = deque(maxlen=_KEPT)
        self._next = 0

    def write(self, kind: str, **fields: Any) -> None:
        self._events.append({"event": self._next, "time_s": round(time.time(), 3), "kind": kind, **fields})
        self._next += 1
        log.info("%s %s", kind, " ".join(f"{key}={value}" for key, value in fields.items()))

    def since(self, number: int, limit: int) -> dict[str, Any]:
        """Up to `limit` events numbered `number` or later, and the number to ask for next."""
        oldest = self._next - len(self._events)
        start = max(0, number - oldest)
        found = [self._events[i] for i in range(start, min(start + limit, len(self._events)))]
        return {"events": found, "next": found[-1]["event"] + 1 if found else max(number, oldest)}
