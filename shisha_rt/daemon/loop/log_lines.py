"""Log lines on standard error that the loop never waits for: a terminal may be stopped, a pipe's reader may hang."""

from __future__ import annotations

import logging
import select
from typing import TextIO


class _WhileRead(logging.StreamHandler[TextIO]):
    """Drops a line while the stream has no room; `events` of the daemon has them all."""

    def emit(self, record: logging.LogRecord) -> None:
        if select.select([], [self.stream], [], 0)[1]:
            super().emit(record)


def log_lines(level: int, style: str) -> None:
    """Log from `level` on to standard error."""
    logging.basicConfig(level=level, format=style, handlers=[_WhileRead()])
