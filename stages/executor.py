"""Runs the stage of each epoch that this worker has loaded; new ones are built beside them while frames flow.

Building happens in one thread of its own, at nice 5: it gives up the core to frames, but not so far that it starves
(at nice 19 it would take many times as long). A segment is swapped in, and an old one destroyed, between two frames
by the thread that runs them, so no frame ever sees a half-built one. A stage that keeps its layers in the new plan
keeps its segment too.
"""

from __future__ import annotations

import math
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shisha_rt.fabric.arena import Arena
from shisha_rt.fabric.messages import Prepare, Prepared, PrepareFailed
from stages.emulate.place import Demand, EmulatedPlace
from stages.engines.ort_segment import OptimisedModel, Segment

_BUILDER_NICE: Final = 5
_TIMED_RUNS: Final = 20


@dataclass(frozen=True, slots=True)
class Built:
    """What the builder hands over: the answer for the daemon and, if it went well, the segment."""

    answer: Prepared | PrepareFailed
    segment: Segment | None


class Executor:
    """Segments by (epoch, stage). `wake` is called from the builder's thread when something is built."""

    def __init__(
        self,
        model: OptimisedModel,
        arena: Arena,
        place: EmulatedPlace,
        threads: int,
        incarnation: int,
        wake: Callable[[], None],
    ) -> None:
        self._model = model
        self._arena = arena
        self._place = place
        self._threads = threads
        self._incarnation = incarnation
        self._wake = wake
        self._segments: dict[tuple[int, int], Segment] = {}
        self._demands: dict[tuple[int, int], Demand] = {}
        self._by_layers: weakref.WeakValueDictionary[tuple[int, int], Segment] = weakref.WeakValueDictionary()
        self._wanted: set[int] = set()
        self._orders: queue.SimpleQueue[Prepare] = queue.SimpleQueue()
        self._built: queue.SimpleQueue[tuple[Prepare, Built]] = queue.SimpleQueue()
        self._builder = threading.Thread(target=self._build_all, name="builder", daemon=True)
        self._builder.start()

    def prepare(self, order: Prepare) -> None:
        """Have it built, or take the segment of the same layers that is there already."""
        self._wanted.add(order.epoch)
        segment = self._by_layers.get((order.first, order.last))
        if segment is None:
            self._orders.put(order)
        else:
            self._built.put((order, self._ready(order, segment, build_s=0.0, warm_s=0.0, private_bytes=0)))
            self._wake()

    def retire(self, epoch: int) -> None:
        self._wanted.discard(epoch)
        for key in [key for key in self._segments if key[0] == epoch]:
            del self._segments[key], self._demands[key]

    def take_built(self) -> list[Prepared | PrepareFailed]:
        """Swap in what has been built since; the answers are for the daemon. Dropped epochs are left out."""
        answers: list[Prepared | PrepareFailed] = []
        while not self._built.empty():
            order, built = self._built.get()
            if order.epoch not in self._wanted:
                continue
            if built.segment is not None:
                self._segments[order.epoch, order.stage] = built.segment
                self._demands[order.epoch, order.stage] = _demand(order, built.segment)
                self._by_layers[order.first, order.last] = built.segment
            answers.append(built.answer)
        return answers

    def demand(self, epoch: int, stage: int) -> Demand:
        """What a frame of this stage asks of its place."""
        return self._demands[epoch, stage]

    def run(self, epoch: int, stage: int, slot: int) -> float:
        """Run the stage on `slot`; returns the CPU seconds of the engine's threads."""
        segment = self._segments[epoch, stage]
        start_s = self._engine_cpu_s()
        segment.run(self._arena, slot)
        return self._engine_cpu_s() - start_s

    def _engine_cpu_s(self) -> float:
        """One thread runs inside the caller's; more are the engine's own, and the builder is not one of them."""
        if self._threads == 1:
            return time.thread_time()
        assert self._builder.ident is not None
        builder_s = time.clock_gettime(time.pthread_getcpuclockid(self._builder.ident))
        return time.process_time() - builder_s

    def _build_all(self) -> None:
        if self._threads == 1:  # else the engine's threads, which are started here, would keep it for good
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _BUILDER_NICE)
        while True:
            order = self._orders.get()
            self._built.put((order, self._build(order)))
            self._wake()

    def _build(self, order: Prepare) -> Built:
        try:
            before_bytes = _private_bytes()
            start_s = time.monotonic()
            segment = self._model.segment(order.first, order.last, self._threads)
            built_s = time.monotonic()
            segment.warm()
            warm_s = time.monotonic()
            too_short = self._why_too_short(order, segment)
        except Exception as error:
            # Whatever the engine says is the user's to read: it becomes the proposal's reason, in one line.
            return Built(PrepareFailed(order.epoch, self._incarnation, one_line(error)), None)
        if too_short is not None:
            return Built(PrepareFailed(order.epoch, self._incarnation, too_short, bad_machine=True), None)
        private_bytes = _private_bytes() - before_bytes
        return self._ready(order, segment, built_s - start_s, warm_s - built_s, private_bytes)

    def _why_too_short(self, order: Prepare, segment: Segment) -> str | None:
        """Whether this host keeps the place's target; the real computation is timed only where there is a doubt.

        A busy moment looks like a slow host, and passes: one run in time is enough.
        """
        demand = _demand(order, segment)
        if not self._place.needs_check(demand):
            return None
        least_s, least_cpu_s, reason = math.inf, math.inf, None
        for _ in range(_TIMED_RUNS):
            wall_s, cpu_s = self._timed(segment)
            least_cpu_s = min(least_cpu_s, cpu_s)
            # With one thread, CPU time leaves out what frames on this core took meanwhile.
            least_s = min(least_s, cpu_s if self._threads == 1 else wall_s)
            reason = self._place.why_too_short(demand, least_s, least_cpu_s)
            if reason is None:
                return None
        return reason

    def _timed(self, segment: Segment) -> tuple[float, float]:
        """Wall and CPU seconds of one run, the latter of all threads; called by the builder."""
        cpu_clock = time.thread_time if self._threads == 1 else time.process_time
        start_s, start_cpu_s = time.monotonic(), cpu_clock()
        segment.warm()
        return time.monotonic() - start_s, cpu_clock() - start_cpu_s

    def _ready(self, order: Prepare, segment: Segment, build_s: float, warm_s: float, private_bytes: int) -> Built:
        answer = Prepared(
            epoch=order.epoch,
            incarnation=self._incarnation,
            build_s=build_s,
            warm_s=warm_s,
            private_bytes=private_bytes,
            frame_bytes=segment.frame_bytes,
        )
        return Built(answer, segment)


def _demand(order: Prepare, segment: Segment) -> Demand:
    return Demand(segment.frame_bytes, order.modelled_cpu_s)


def one_line(error: BaseException) -> str:
    """An exception as a single line: its type and the first line of what it says."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:300]}" if text else type(error).__name__


def _private_bytes() -> int:
    """Anonymous memory of this process: what it has copied or allocated, not what it maps with others."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024
