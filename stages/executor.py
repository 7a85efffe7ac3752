"""Runs the stages of each epoch that this worker has loaded; new ones are built beside them while frames flow.

Building happens in a thread of its own, at nice 5: it gives up the core to frames, but not so far that it starves
(at nice 19 it would take many times as long). A thread inherits the niceness of who starts it and cannot lower it
again, so a stage of several threads is built by another thread, which is not nice. A stage is swapped in, and an old
one destroyed, between two frames by the thread that runs them, so no frame ever sees a half-built one. A stage that
keeps its layers, its placement and its team in the new plan is not built again.
"""

from __future__ import annotations

import math
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from shisha_rt.fabric.arena import Arena
from shisha_rt.fabric.messages import Prepare, Prepared, PrepareFailed
from stages.emulate.place import Demand, EmulatedPlace
from stages.engines.onnxruntime.segment import OptimisedSegment
from stages.engines.session import CpuClock

_BUILDER_NICE: Final = 5
_TIMED_RUNS: Final = 20


class BuiltStage(Protocol):
    """A built stage. `frame_bytes`: weights, inputs and outputs that one frame moves, of the largest shape.

    `described`: descriptions say how long it takes, and not this host; `paced`: its time is emulated at present.
    `difference`: by how much its devices' precision changes what it hands on (see `stages.built.placed`).
    """

    @property
    def frame_bytes(self) -> int: ...

    @property
    def described(self) -> bool: ...

    @property
    def paced(self) -> bool: ...

    @property
    def difference(self) -> float: ...

    def warm(self, cpu_clock: CpuClock) -> tuple[float, ...]:
        """Run once on memory of its own; returns what `run` does."""
        ...

    def bind(self, arena: Arena, slot: int) -> None:
        """Make ready what is needed for frames in `slot`."""
        ...

    def run(self, arena: Arena, slot: int, cpu_clock: CpuClock, layout: int = 0) -> tuple[float, ...]:
        """Compute the tensors of `slot`; returns what each segment took if they are placed on devices, else nothing."""
        ...


class WholeStage:
    """A stage that one engine runs, as a cut of its own form of the model; `segments` has one for each shape."""

    described = False
    paced = False
    difference = 0.0

    def __init__(self, segments: Sequence[OptimisedSegment]) -> None:
        self.frame_bytes = max(segment.frame_bytes for segment in segments)
        self._segments = tuple(segments)

    def warm(self, cpu_clock: CpuClock) -> tuple[float, ...]:
        for segment in self._segments:
            segment.warm()
        return ()

    def bind(self, arena: Arena, slot: int) -> None:
        for segment in self._segments:
            segment.bind(arena, slot)

    def run(self, arena: Arena, slot: int, cpu_clock: CpuClock, layout: int = 0) -> tuple[float, ...]:
        self._segments[layout].run(arena, slot)
        return ()


@dataclass(frozen=True, slots=True)
class Built:
    """What the builder hands over: the answer for the daemon and, if it went well, the stage."""

    answer: Prepared | PrepareFailed
    stage: BuiltStage | None


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A stage of a live epoch. `inline`: its engine computes in the thread that calls it, and has none of its own."""

    stage: BuiltStage
    modelled_cpu_s: float
    inline: bool


@dataclass(frozen=True, slots=True)
class Ran:
    """A stage's run. `cpu_s`: of the engine's threads. `paced_cpu_s`: by which an emulated place paces it.

    `segments_s`: what each segment took, as its device is emulated (see `stages.built.placed`).
    """

    cpu_s: float
    paced_cpu_s: float
    segments_s: tuple[float, ...]


class Executor:
    """Stages by (epoch, number). `build` makes one; `wake` is called from a builder's thread when that is done.

    `threads` are the place's own, for orders that state no team's.
    """

    def __init__(
        self,
        build: Callable[[Prepare], BuiltStage],
        arena: Arena,
        place: EmulatedPlace,
        threads: int,
        incarnation: int,
        wake: Callable[[], None],
    ) -> None:
        self._build_stage = build
        self._arena = arena
        self._place = place
        self._threads = threads
        self._incarnation = incarnation
        self._wake = wake
        self._loaded: dict[tuple[int, int], _Loaded] = {}
        self._by_content: weakref.WeakValueDictionary[tuple[object, ...], BuiltStage] = weakref.WeakValueDictionary()
        self._warm_s: weakref.WeakKeyDictionary[BuiltStage, float] = weakref.WeakKeyDictionary()
        self._wanted: set[int] = set()
        self._built: queue.SimpleQueue[tuple[Prepare, Built]] = queue.SimpleQueue()
        self._builders = {inline: _Builder(self._build, self._built, wake, inline=inline) for inline in (True, False)}

    def prepare(self, order: Prepare) -> None:
        """Have it built, or take the stage of the same content that is there already."""
        self._wanted.add(order.epoch)
        stage = self._by_content.get(_content(order))
        if stage is None:
            self._builders[self._is_inline(order)].orders.put(order)
        else:
            warm_s = self._warm_s[stage]
            self._built.put((order, self._ready(order, stage, build_s=0.0, warm_s=warm_s, private_bytes=0)))
            self._wake()

    def retire(self, epoch: int) -> None:
        self._wanted.discard(epoch)
        for key in [key for key in self._loaded if key[0] == epoch]:
            del self._loaded[key]

    def take_built(self) -> list[Prepared | PrepareFailed]:
        """Swap in what has been built since; the answers are for the daemon. Dropped epochs are left out."""
        answers: list[Prepared | PrepareFailed] = []
        while not self._built.empty():
            order, built = self._built.get()
            if order.epoch not in self._wanted:
                continue
            if built.stage is not None:
                loaded = _Loaded(built.stage, order.modelled_cpu_s, self._is_inline(order))
                self._loaded[order.epoch, order.stage] = loaded
                self._by_content[_content(order)] = built.stage
                if isinstance(built.answer, Prepared):
                    self._warm_s[built.stage] = built.answer.warm_s
            answers.append(built.answer)
        return answers

    def demand(self, epoch: int, number: int) -> Demand:
        """What a frame of this stage asks of its place."""
        loaded = self._loaded[epoch, number]
        return Demand(loaded.stage.frame_bytes, loaded.modelled_cpu_s, loaded.stage.paced)

    def run(self, epoch: int, number: int, slot: int, layout: int = 0) -> Ran:
        """Run the stage on `slot`, in which `layout` lies."""
        loaded = self._loaded[epoch, number]
        cpu_clock = time.thread_time if loaded.inline else self._frame_cpu_s
        start_s = cpu_clock()
        segments_s = loaded.stage.run(self._arena, slot, cpu_clock, layout)
        cpu_s = cpu_clock() - start_s
        return Ran(cpu_s, self._paced_cpu_s(cpu_s, segments_s), segments_s)

    def _frame_cpu_s(self) -> float:
        """CPU seconds of the threads that compute frames; builders are not among them."""
        return time.process_time() - sum(builder.cpu_s for builder in self._builders.values())

    def _is_inline(self, order: Prepare) -> bool:
        """Whether engines compute it in the thread that calls them, and have none of their own."""
        return (order.threads or self._threads) == 1

    def _paced_cpu_s(self, cpu_s: float, segments_s: tuple[float, ...]) -> float:
        """A place divides CPU time by its threads, and segments know what they take on theirs."""
        return sum(segments_s) * self._threads if segments_s else cpu_s

    def _build(self, order: Prepare) -> Built:
        cpu_clock = _builder_clock(self._is_inline(order))
        try:
            before_bytes = _private_bytes()
            start_s = time.monotonic()
            stage = self._build_stage(order)
            built_s = time.monotonic()
            stage.warm(cpu_clock)
            warm_s = time.monotonic()
            too_short = self._why_too_short(order, stage)
            for slot in range(self._arena.slot_count):
                stage.bind(self._arena, slot)
                time.sleep(0)  # this holds the interpreter, which a frame may be waiting for
        except Exception as error:
            # Whatever the engine says is the user's to read: it becomes the proposal's reason, in one line.
            return Built(PrepareFailed(order.epoch, order.stage, self._incarnation, one_line(error)), None)
        if too_short is not None:
            return Built(PrepareFailed(order.epoch, order.stage, self._incarnation, too_short, bad_machine=True), None)
        private_bytes = _private_bytes() - before_bytes
        return self._ready(order, stage, built_s - start_s, warm_s - built_s, private_bytes)

    def _why_too_short(self, order: Prepare, stage: BuiltStage) -> str | None:
        """Whether this host keeps the place's target; the real computation is timed only where there is a doubt.

        A busy moment looks like a slow host, and passes: one run in time is enough.
        """
        demand = Demand(stage.frame_bytes, order.modelled_cpu_s, stage.described)
        if not self._place.needs_check(demand):
            return None
        inline = self._is_inline(order)
        cpu_clock = _builder_clock(inline)
        least_s, least_cpu_s, reason = math.inf, math.inf, None
        for _ in range(_TIMED_RUNS):
            start_s, start_cpu_s = time.monotonic(), cpu_clock()
            segments_s = stage.warm(cpu_clock)
            wall_s, cpu_s = time.monotonic() - start_s, cpu_clock() - start_cpu_s
            least_cpu_s = min(least_cpu_s, self._paced_cpu_s(cpu_s, segments_s))
            # Computed in this thread, CPU time leaves out what frames on this core took meanwhile.
            least_s = min(least_s, cpu_s if inline else wall_s)
            reason = self._place.why_too_short(demand, least_s, least_cpu_s)
            if reason is None:
                return None
        return reason

    def _ready(self, order: Prepare, stage: BuiltStage, build_s: float, warm_s: float, private_bytes: int) -> Built:
        answer = Prepared(
            epoch=order.epoch,
            stage=order.stage,
            incarnation=self._incarnation,
            build_s=build_s,
            warm_s=warm_s,
            private_bytes=private_bytes,
            frame_bytes=stage.frame_bytes,
            difference=stage.difference,
        )
        return Built(answer, stage)


class _Builder:
    """One of the threads that build. `inline`: for stages of one thread."""

    def __init__(
        self,
        build: Callable[[Prepare], Built],
        built: queue.SimpleQueue[tuple[Prepare, Built]],
        wake: Callable[[], None],
        *,
        inline: bool,
    ) -> None:
        self.orders: queue.SimpleQueue[Prepare] = queue.SimpleQueue()
        self._build = build
        self._built = built
        self._wake = wake
        self._inline = inline
        self._thread = threading.Thread(target=self._build_all, name="builder", daemon=True)
        self._thread.start()

    @property
    def cpu_s(self) -> float:
        """CPU seconds of it."""
        assert self._thread.ident is not None
        return time.clock_gettime(time.pthread_getcpuclockid(self._thread.ident))

    def _build_all(self) -> None:
        if self._inline:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _BUILDER_NICE)
        while True:
            order = self.orders.get()
            self._built.put((order, self._build(order)))
            self._wake()


def _builder_clock(inline: bool) -> CpuClock:
    """CPU seconds behind what a builder runs; with threads of the engine's own, frames' too."""
    return time.thread_time if inline else time.process_time


def _content(order: Prepare) -> tuple[object, ...]:
    """What makes two orders the same stage."""
    return order.work, order.placement, order.cores, order.threads, order.split


def one_line(error: BaseException) -> str:
    """An exception as a single line: its type and the first line of what it says."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:300]}" if text else type(error).__name__


def _private_bytes() -> int:
    """Anonymous memory of this process: what it has copied or allocated, not what it maps with others."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024
