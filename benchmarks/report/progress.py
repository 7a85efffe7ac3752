"""What a benchmark is at, on a terminal: one line that is written over. Elsewhere only what begins anew is told."""

from __future__ import annotations

import sys
import time
from typing import Final

_CLEAR: Final = "\r\033[K"


class Progress:
    """`name`: the benchmark's, in front of each line."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._began_s = time.monotonic()
        self._is_terminal = sys.stderr.isatty()

    def step(self, what: str) -> None:
        """A line that stays: what takes minutes."""
        self._clear()
        print(f"{self._name}: {what} ...", flush=True)

    def glance(self, what: str) -> None:
        """A line for the time being, only where somebody looks."""
        if self._is_terminal:
            minutes, seconds = divmod(int(time.monotonic() - self._began_s), 60)
            sys.stderr.write(f"{_CLEAR}{self._name}: {what} ({minutes}:{seconds:02d})")
            sys.stderr.flush()

    def done(self) -> None:
        self._clear()

    def _clear(self) -> None:
        if self._is_terminal:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()
