"""Whoever is refused is counted, and told of in the log: one line a second for each reason, however many come."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

_LINE_EVERY_S: Final = 1.0


class Refusals:
    """`count` is called with the reason of each."""

    def __init__(self, count: Callable[[str], None]) -> None:
        self._count = count
        self._told_s: dict[str, float] = {}
        self._untold: dict[str, int] = {}

    def add(self, reason: str, what: str) -> None:
        self._count(reason)
        now_s = time.monotonic()
        if now_s < self._told_s.get(reason, 0.0) + _LINE_EVERY_S:
            self._untold[reason] = self._untold.get(reason, 0) + 1
            return
        self._told_s[reason] = now_s
        more = self._untold.pop(reason, 0)
        log.warning("refused: %s%s", what, f" (and {more} more like it before)" if more else "")
