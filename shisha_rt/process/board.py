"""What a place's record on the board of the arena has room for, and what its worker writes there. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

RECORD_WORDS: Final = 16
"""Two cache lines, of which a worker writes the first: no two write the same one."""
MAX_DEVICES: Final = 8
"""Of one place."""


@dataclass(frozen=True, slots=True)
class Sign:
    """What a worker last wrote on the board; times on CLOCK_MONOTONIC. `frame` is None between frames.

    `paced_until_ns`: the frame is computed, and its worker waits until then (see `stages.emulate`); else 0.
    """

    heartbeat_ns: int
    frame: int | None
    started_ns: int
    paced_until_ns: int = 0
