"""When a frame on an emulated place is due. Pure: times are passed in, in seconds of one clock.

In the emulation, a frame starts when its input is ready and the frame before it is due, and takes its target time from
then on. The emulation goes by when frames *should* have started: if a wait overran, or a computation was held up, the
next wait is shorter, so that over many frames the rate is exact however coarse each wait is. The price: single frames
are as uneven as the host. A place that waits for input gains no time by it, since a frame cannot start before its
input. Lateness beyond `MAX_DEBT_S` is dropped and counted: a place that was stopped for seconds shall not run at full
speed for as long afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MAX_DEBT_S: Final = 0.25


@dataclass(slots=True)
class Pace:
    """The clock of one emulated place. `due_s`: when the last frame is due. `dropped_s`: lateness not made up for."""

    due_s: float = 0.0
    dropped_s: float = 0.0

    def start(self, ready_s: float, now_s: float) -> float:
        """When the next frame starts, which may be in the past. `ready_s`: when its input was ready."""
        start_s = max(self.due_s, ready_s)
        excess_s = now_s - start_s - MAX_DEBT_S
        if excess_s > 0:
            self.dropped_s += excess_s
            start_s += excess_s
        return start_s

    def finish(self, start_s: float, target_s: float, free_s: float = 0.0) -> float:
        """When the frame that started at `start_s` is due: never before its memory is free, at `free_s`."""
        self.due_s = max(start_s + target_s, free_s)
        return self.due_s

    def change(self, due_s: float) -> float:
        """Change when the last frame is due."""
        self.due_s = due_s
        return due_s
