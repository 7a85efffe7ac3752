"""Progress of a benchmark: on a terminal one line that is overwritten, elsewhere only lines for new steps."""

from __future__ import annotations

import sys
import time
from typing import Final

_CLEAR: Final = "\r\033[K"


class Progress:
    """`name`: of the benchmark, in front of each line."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._began_s = time.monotonic()
        self._is_terminal = sys.stderr.isatty()

    def step(self, what: str) -> None:
        """Write a line that stays, for a step of minutes."""
        self.done()
        print(f"{self._name}: {what} ...", flush=True)

    def glance(self, what: str) -> None:
        """Write a temporary line, on a terminal only."""
        if self._is_terminal:
            minutes, seconds = divmod(int(time.monotonic() - self._began_s), 60)
            sys.stderr.write(f"{_CLEAR}{self._name}: {what} ({minutes}:{seconds:02d})")
            sys.stderr.flush()

    def done(self) -> None:
        if self._is_terminal:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()
