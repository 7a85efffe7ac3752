"""Whether a child process hangs: one rule for all but workers that are ready, which sign the board
(`daemon/fleet/watch.py`).

A child with a line to its parent sends a heartbeat every second, from a thread of its own. It is also alive while it
computes, or wants to: a solver may hold the interpreter's lock for long, and a child that starts sends none yet. A
child that does none of this for `SILENCE_S` hangs. A job has no line, and may wait for processes of its own that run at
the lowest priority. It hangs if it is silent for `JOB_SILENCE_S`, or is stopped.

Time counts only while the parent itself was running.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Final

from shisha_rt.process.channel import Channel, ChannelBroken
from shisha_rt.process.readable import await_ready
from shisha_rt.process.stat import stat_fields, wants_core

SILENCE_S: Final = 5.0
JOB_SILENCE_S: Final = 300.0
_LOOK_EVERY_S: Final = 0.5
_SEEN_S: Final = 1.0
"""A look counts for at most this long: if it comes later, the parent itself was stopped."""


class Pulse:
    """What has been seen of one child, by its process id, since it was started.

    The child hangs if it is silent for the longer of `silence_s` and `patience_s`; for `silence_s` if it is stopped.
    `silent_s`: for how long it has been silent, as of the last look.
    """

    def __init__(self, pid: int, silence_s: float = SILENCE_S, *, patience_s: float = 0.0) -> None:
        self._pid = pid
        self._silence_s = silence_s
        self._patience_s = patience_s
        self._signs = (-1, -1)
        self._look_s = time.monotonic()
        self.silent_s = 0.0

    def look(self, beats: int = 0) -> str | None:
        """Why the child counts as hung, or None. `beats`: number of heartbeats received on its line so far.

        Each look reads the CPU time, not only the one after `silence_s`: otherwise what the child computed before it
        hung would count as a sign of life at that look, and double the time.
        """
        now_s = time.monotonic()
        self.silent_s += min(now_s - self._look_s, _SEEN_S)
        self._look_s = now_s
        signs = beats, cpu_ticks(self._pid)
        if signs != self._signs:
            self._signs, self.silent_s = signs, 0.0
        if self.silent_s < self._silence_s:
            return None
        if wants_core(self._pid):
            self.silent_s = 0.0
            return None
        if self.silent_s < self._patience_s and not _is_stopped(self._pid):
            return None
        return f"it hangs: no sign of life for {self.silent_s:.0f} s"


def await_message(channel: Channel, pulse: Pulse, within_s: float = math.inf) -> bytes | None:
    """Wait for the next message of a child; None if none comes in that time. Raises ChannelBroken, also if it hangs."""
    end_s = time.monotonic() + within_s
    while (data := channel.take()) is None:
        channel.flush()
        hangs = pulse.look(channel.beats)
        if hangs is not None:
            raise ChannelBroken(hangs)
        if time.monotonic() >= end_s:
            return None
        await_ready([channel.fileno()], _LOOK_EVERY_S, [channel.fileno()] if channel.waiting else ())
    return data


def cpu_ticks(pid: int) -> int:
    """CPU time that a process has used so far, in the kernel's ticks; -1 if it has just ended."""
    try:
        return sum(map(int, stat_fields(Path(f"/proc/{pid}/stat"))[11:13]))
    except OSError:
        return -1


def _is_stopped(pid: int) -> bool:
    try:
        return stat_fields(Path(f"/proc/{pid}/stat"))[0] == "T"
    except OSError:
        return False
