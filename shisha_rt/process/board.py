"""The size of a place's record on the arena's board, and what the place's worker writes there. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

RECORD_WORDS: Final = 16
"""Two cache lines. A worker writes only the first one, so no two workers write the same line."""
MAX_DEVICES: Final = 8
"""Most devices of one place."""


@dataclass(frozen=True, slots=True)
class Sign:
    """What a worker last wrote on the board; times on CLOCK_MONOTONIC. `frame` is None between frames.

    `paced_until_ns`: the time until which the worker holds the computed frame back (see `stages.emulate`); else 0.
    """

    heartbeat_ns: int
    frame: int | None
    started_ns: int
    paced_until_ns: int = 0
