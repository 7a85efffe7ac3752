"""When a worker counts as hung. Pure: looks at the board are passed in, with the time since the last one.

A hang is silence of `silence_s`, or one frame that takes longer than `max(frame_s, expected_factor x expected)`. Two
kinds of time do not count: time by which the daemon itself was late, as the whole host may have stood still (a stopped
machine, a laptop asleep); and time in which an emulated place waits as it announced on the board, as its speed may be
set arbitrarily low. A worker that wants a core and gets none is given `starved_s` before its silence counts as a hang;
a stopped process wants none.

A worker that signs, has parts and runs none for `idle_s` has lost a message. One that is not ready yet does not sign,
and is watched as other children are (`process/pulse.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from shisha_rt.process.board import Sign


@dataclass(frozen=True, slots=True)
class HangLimits:
    silence_s: float = 2.0
    starved_s: float = 10.0
    frame_s: float = 5.0
    idle_s: float = 5.0
    expected_factor: float = 20.0


DEFAULT_LIMITS: Final = HangLimits()


@dataclass(slots=True)
class Watch:
    """What has been seen of one incarnation since it was ready.

    `wants_core`: whether some thread of the worker could run if it got a core; called only when it matters.
    """

    patience: HangLimits
    wants_core: Callable[[], bool]
    last: Sign | None = None
    silent_s: float = 0.0
    busy_s: float = 0.0
    idle_s: float = 0.0

    def look(self, sign: Sign, now_ns: int, seen_s: float, expected_s: float, parts: int = 0) -> str | None:
        """Return why a worker counts as hung, or None. `seen_s`: time since the last look, less the daemon's lateness.

        `expected_s`: what a run takes. `parts`: how many have been dealt to the worker and are not done.
        """
        patience, wants_core = self.patience, self.wants_core
        last, self.last = self.last, sign
        if last is None or sign.heartbeat_ns != last.heartbeat_ns:
            self.silent_s = 0.0
        else:
            self.silent_s += seen_s
        if last is None or sign.frame is None or (sign.frame, sign.started_ns) != (last.frame, last.started_ns):
            self.busy_s = 0.0
        elif now_ns >= sign.paced_until_ns:
            self.busy_s += seen_s
        ran_nothing = last is not None and sign.frame is None and sign.started_ns == last.started_ns
        self.idle_s = self.idle_s + seen_s if parts and ran_nothing else 0.0
        limit_s = max(patience.frame_s, patience.expected_factor * expected_s)
        if self.silent_s > patience.silence_s and (self.silent_s > patience.starved_s or not wants_core()):
            return f"no sign of life for {self.silent_s:.1f} s"
        if self.busy_s > limit_s:
            return f"frame {sign.frame} has been running for {self.busy_s:.1f} s, the limit is {limit_s:.1f} s"
        if self.idle_s > patience.idle_s and (self.idle_s > patience.starved_s or not wants_core()):
            return f"it was given a frame {self.idle_s:.1f} s ago and does not run it"
        return None
