"""Threads that build stages while frames flow, and how they keep out of the frames' way.

On a core that frames keep busy, the kernel switches threads at its tick: any other runnable thread gets 4 ms at a time
(at 250 ticks a second), however nice it is. Many networks' stages take less than that. A thread of the idle class
(SCHED_IDLE) runs only while no other thread wants the core, and yields it at once; so the core is left free for a
moment between two frames. The idle thread must have run a little before the next frame: until then the scheduler owes
it time, and gives it a tick.

If other processes want the core too, an idle thread may starve, and with it any thread that waits for a lock it holds.
In that case, or if no frames flow, a thread nicer by 5 builds stages: it gives way, but does not starve (at nice 19 it
would take many times as long). If other processes appear while the idle thread is at work, its orders are taken from
it, and it abandons the build that it has begun at its next check.

A thread inherits its priority from the thread that starts it, and cannot raise it again. So each priority has a thread,
and a stage of several threads is built by a third one, which is neither nice nor idle.
"""

from __future__ import annotations

import contextlib
import enum
import math
import os
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from shisha_rt.messages.worker import Prepare, Prepared, PrepareFailed
from stages.built.stage import BuiltStage

_NICER: Final = 5  # than the threads that compute frames
_FLOWING_S: Final = 0.5  # frames count as flowing for so long after the last one
_LEAST_SHARE: Final = 0.65  # of frames on their core: less if a process that is always at work takes half
_REMEMBERED: Final = 31 / 32  # weight of earlier frames' times when one is added
_PATIENCE_S: Final = 0.2  # with a builder that gets hardly any of the core
_HARDLY_ANY: Final = 0.1  # share of the core; frames leave a builder a third


@dataclass(slots=True, eq=False)
class Ordered:
    """A stage to be built. `taken_away`: its result is not wanted: another builder has it, or its epoch was retired."""

    prepare: Prepare
    taken_away: bool = False


@dataclass(frozen=True, slots=True)
class Built:
    """A builder's result: the answer for the daemon and, if the build succeeded, the stage."""

    answer: Prepared | PrepareFailed
    stage: BuiltStage | None


Finished: TypeAlias = "queue.SimpleQueue[tuple[Ordered, Built]]"


class Manner(enum.Enum):
    """How a builder's thread competes with frames."""

    IDLE = "idle"
    NICE = "nice"
    TEAM = "team"


class Builder:
    """A thread that builds stages, in the order in which they are asked for. `undone`: orders that are not finished."""

    def __init__(
        self, manner: Manner, build: Callable[[Ordered], Built], finished: Finished, wake: Callable[[], None]
    ) -> None:
        self._manner = manner
        self._build = build
        self._finished = finished
        self._wake = wake
        self._orders: queue.SimpleQueue[Ordered] = queue.SimpleQueue()
        self.undone: dict[Ordered, None] = {}  # both threads change it, by atomic operations only
        self._since = 0.0, 0.0  # when it could start on the first order of `undone`, and its CPU seconds then
        self._thread = threading.Thread(target=self._build_all, name="builder", daemon=True)
        self._thread.start()

    def ask(self, prepare: Prepare) -> None:
        if not self.undone:
            self._since = time.monotonic(), self.cpu_s
        order = Ordered(prepare)
        self.undone[order] = None
        self._orders.put(order)

    def starves(self, now_s: float, frame_s: float) -> bool:
        """Whether it has long had hardly any CPU time, although frames, each of `frame_s`, leave it some in between."""
        since_s, before_s = self._since
        passed_s = now_s - since_s
        return (
            bool(self.undone)
            and passed_s > _PATIENCE_S + 4 * frame_s
            and self.cpu_s - before_s < _HARDLY_ANY * passed_s
        )

    def cancel(self, epoch: int) -> None:
        """Build no more stages of a retired epoch: those of the next one would wait for them."""
        for order in list(self.undone):
            order.taken_away |= order.prepare.epoch == epoch

    def take_away(self) -> list[Prepare]:
        """Cancel all unfinished orders and return them, oldest first, without those that were cancelled before."""
        orders = [order for order in list(self.undone) if not order.taken_away]
        self.undone.clear()
        for order in orders:
            order.taken_away = True
        return [order.prepare for order in orders]

    @property
    def cpu_s(self) -> float:
        assert self._thread.ident is not None
        return time.clock_gettime(time.pthread_getcpuclockid(self._thread.ident))

    def _build_all(self) -> None:
        if self._manner is not Manner.TEAM:
            os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0) + _NICER)  # of this thread
        if self._manner is Manner.IDLE:
            with contextlib.suppress(OSError):  # some sandboxes refuse it: then the thread stays nice
                os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        while True:
            order = self._orders.get()
            if not order.taken_away:
                self._finished.put((order, self._build(order)))
            self.undone.pop(order, None)
            self._since = time.monotonic(), time.thread_time()
            self._wake()


class FramesCore:
    """How much CPU time the thread that computes frames had of its core meanwhile."""

    def __init__(self) -> None:
        self._last_cpu_s = 0.0
        self._ended_s = -math.inf
        self._cpu_s, self._wall_s = 0.0, 0.0

    def note(self, cpu_s: float, start_s: float, end_s: float) -> None:
        self._last_cpu_s, self._ended_s = cpu_s, end_s
        self._cpu_s = cpu_s + _REMEMBERED * self._cpu_s
        self._wall_s = end_s - start_s + _REMEMBERED * self._wall_s

    def taken_by_frames(self, now_s: float) -> bool:
        """Whether frames flow, and other threads use little of their core."""
        return now_s - self._ended_s < _FLOWING_S and self._cpu_s >= _LEAST_SHARE * self._wall_s

    @property
    def frame_s(self) -> float:
        return self._last_cpu_s

    def left_free_s(self, share: float, now_s: float) -> float:
        """Seconds for which to leave the core free, so that it is free for `share` of the last frame's CPU time."""
        return max(0.0, self._ended_s + share * self._last_cpu_s - now_s)
