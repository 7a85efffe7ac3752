"""Threads that build stages while frames flow, and how they keep out of the frames' way.

A core that frames keep busy is shared by the kernel's tick: whatever else is ready to run there gets 4 ms at a time (at
250 ticks a second), however nice it is. That is more than many a network's stage takes. A thread of the idle class gets
the core only while nobody else wants it, and hands it over at once; so frames leave it some time between one and the
next. It has to have run a little before the next frame: until then the scheduler owes it time, and gives it a tick.

But where others want the core too, such a thread may starve, and with it whoever waits for what it holds. There, and
where no frames flow, stages are built by one of nice 5, which gives way, but not so far that it starves (at nice 19 it
would take many times as long). If others come while the idle one is at work, its orders are taken from it: what it has
begun it leaves, as soon as it gets that far.

A thread inherits these from who starts it, and cannot rise again. So there is a thread for each, and a stage of several
threads is built by yet another, which is neither nice nor idle.
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
from stages.built_stage import BuiltStage

_NICE: Final = 5
_FLOWING_S: Final = 0.5  # since the last frame
_LEAST_SHARE: Final = 0.65  # daemon and clients may use the core too, but nothing that is always at work: that has half
_REMEMBERED: Final = 31 / 32  # of what earlier frames took, after each
_PATIENCE_S: Final = 0.2  # with a builder that gets hardly any of the core
_HARDLY_ANY: Final = 0.1  # where frames leave it a third


@dataclass(slots=True, eq=False)
class Ordered:
    """A stage to be built. `taken_away`: by another builder, so that what this one makes of it is wanted by nobody."""

    prepare: Prepare
    taken_away: bool = False


@dataclass(frozen=True, slots=True)
class Built:
    """What is handed over: the answer for the daemon and, if it went well, the stage."""

    answer: Prepared | PrepareFailed
    stage: BuiltStage | None


Finished: TypeAlias = "queue.SimpleQueue[tuple[Ordered, Built]]"


class Manner(enum.Enum):
    """How a builder's thread competes with frames."""

    IDLE = "idle"
    NICE = "nice"
    TEAM = "team"


class Builder:
    """One of the threads that build, in the order in which they are asked."""

    def __init__(
        self, manner: Manner, build: Callable[[Ordered], Built], finished: Finished, wake: Callable[[], None]
    ) -> None:
        self._manner = manner
        self._build = build
        self._finished = finished
        self._wake = wake
        self._orders: queue.SimpleQueue[Ordered] = queue.SimpleQueue()
        self._undone: dict[Ordered, None] = {}  # both threads change it, by single steps of the interpreter
        self._since = 0.0, 0.0  # when it could begin with the first of them, and its CPU seconds then
        self._thread = threading.Thread(target=self._build_all, name="builder", daemon=True)
        self._thread.start()

    def ask(self, prepare: Prepare) -> None:
        if not self._undone:
            self._since = time.monotonic(), self.cpu_s
        order = Ordered(prepare)
        self._undone[order] = None
        self._orders.put(order)

    @property
    def busy(self) -> bool:
        return bool(self._undone)

    def starves(self, now_s: float, frame_s: float) -> bool:
        """Whether others have the core, while frames of `frame_s` leave it some between one and the next."""
        since_s, before_s = self._since
        passed_s = now_s - since_s
        return self.busy and passed_s > _PATIENCE_S + 4 * frame_s and self.cpu_s - before_s < _HARDLY_ANY * passed_s

    def take_away(self) -> list[Prepare]:
        """All that is not done yet, in its order."""
        orders = list(self._undone)
        self._undone.clear()
        for order in orders:
            order.taken_away = True
        return [order.prepare for order in orders]

    @property
    def cpu_s(self) -> float:
        """CPU seconds of it."""
        assert self._thread.ident is not None
        return time.clock_gettime(time.pthread_getcpuclockid(self._thread.ident))

    def _build_all(self) -> None:
        if self._manner is not Manner.TEAM:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        if self._manner is Manner.IDLE:
            with contextlib.suppress(OSError):  # some sandboxes refuse it: then it is nice
                os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        while True:
            order = self._orders.get()
            if not order.taken_away:
                self._finished.put((order, self._build(order)))
                self._undone.pop(order, None)
                self._since = time.monotonic(), time.thread_time()
                self._wake()


class FramesCore:
    """How the core was shared while frames were computed on it, by one thread."""

    def __init__(self) -> None:
        self._last_cpu_s = 0.0
        self._ended_s = -math.inf
        self._cpu_s, self._wall_s = 0.0, 0.0

    def note(self, cpu_s: float, start_s: float, end_s: float) -> None:
        """A frame was computed, in so much CPU time."""
        self._last_cpu_s, self._ended_s = cpu_s, end_s
        self._cpu_s = cpu_s + _REMEMBERED * self._cpu_s
        self._wall_s = end_s - start_s + _REMEMBERED * self._wall_s

    def taken_by_frames(self, now_s: float) -> bool:
        """Whether frames flow, and hardly anything else uses their core."""
        return now_s - self._ended_s < _FLOWING_S and self._cpu_s >= _LEAST_SHARE * self._wall_s

    @property
    def frame_s(self) -> float:
        """CPU seconds of the last one."""
        return self._last_cpu_s

    def left_free_s(self, share: float, now_s: float) -> float:
        """How much longer the core should stay free for it to be so for `share` of the last frame's CPU time."""
        return max(0.0, self._ended_s + share * self._last_cpu_s - now_s)
