"""When a worker counts as hung. Pure: looks at the board are passed in, with the time since the last one.

A hang is silence of `silence_s`, or one frame that takes longer than `max(frame_s, expected_factor x expected)`.
Time counts only as far as the daemon was there to see it: if the daemon itself was late, so may everything have been
(a stopped machine, a laptop asleep), and no worker is to blame. Nor does time count in which an emulated place waits,
as it has said it would: a place may be made slower than any limit. And a worker that has something to run but gets no
core (a stopped process never does: it wants none) is given `starved_s` before its silence counts as a hang.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shisha_rt.fabric.arena import Sign


@dataclass(frozen=True, slots=True)
class HangLimits:
    silence_s: float = 2.0
    starved_s: float = 10.0
    frame_s: float = 5.0
    expected_factor: float = 20.0


@dataclass(slots=True)
class Watch:
    """What has been seen of one incarnation since it was ready."""

    last: Sign | None = None
    silent_s: float = 0.0
    busy_s: float = 0.0

    def look(
        self,
        sign: Sign,
        now_ns: int,
        seen_s: float,
        expected_s: float,
        patience: HangLimits,
        wants_core: Callable[[], bool] = lambda: False,
    ) -> str | None:
        """`seen_s`: time since the last look, less what the daemon was late. Returns why it is hung, or None.

        `wants_core` is asked only when it matters: whether some thread of the worker could run if it got a core.
        """
        last, self.last = self.last, sign
        if last is None or sign.heartbeat_ns != last.heartbeat_ns:
            self.silent_s = 0.0
        else:
            self.silent_s += seen_s
        same_frame = last is not None and sign.frame is not None
        same_frame = same_frame and last is not None and (sign.frame, sign.started_ns) == (last.frame, last.started_ns)
        if not same_frame:
            self.busy_s = 0.0
        elif now_ns >= sign.paced_until_ns:
            self.busy_s += seen_s
        limit_s = max(patience.frame_s, patience.expected_factor * expected_s)
        if self.silent_s > patience.silence_s and (self.silent_s > patience.starved_s or not wants_core()):
            return f"no sign of life for {self.silent_s:.1f} s"
        if self.busy_s > limit_s:
            return f"frame {sign.frame} has been running for {self.busy_s:.1f} s, the limit is {limit_s:.1f} s"
        return None
