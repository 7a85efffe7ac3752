"""When a frame on an emulated place is due. Pure: times are passed in, in seconds of one clock.

A frame starts, as far as the emulation goes, when its input is there and the frame before it is due, and takes its
target from there. What counts is when frames *should* have started: a wait that overran, or a computation that was
held up, makes the next wait shorter, so that over many frames the rate is exact however coarse each wait is. The
trade: single frames are as uneven as the host. A place that waits for input earns nothing by it, since a frame cannot
start before its input. Lateness beyond `MAX_DEBT_S` is dropped and counted: a place that was stopped for seconds shall
not run at full speed for as long afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MAX_DEBT_S: Final = 0.25


@dataclass(slots=True)
class Pace:
    """The clock of one emulated place. `due_s`: of the last frame. `dropped_s`: lateness never made up for."""

    due_s: float = 0.0
    dropped_s: float = 0.0

    def start(self, ready_s: float, now_s: float) -> float:
        """When the next frame starts; may be past. `ready_s`: since when its input is there."""
        start_s = max(self.due_s, ready_s)
        excess_s = now_s - start_s - MAX_DEBT_S
        if excess_s > 0:
            self.dropped_s += excess_s
            start_s += excess_s
        return start_s

    def finish(self, start_s: float, target_s: float, free_s: float = 0.0) -> float:
        """When the frame that started at `start_s` is due, but never before its memory is free at `free_s`."""
        self.due_s = max(start_s + target_s, free_s)
        return self.due_s

    def change(self, due_s: float) -> float:
        """The last frame is due at another time than was said."""
        self.due_s = due_s
        return due_s
