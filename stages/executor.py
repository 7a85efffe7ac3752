"""Runs the stages of each epoch that this worker has loaded; new ones are built beside them while frames flow.

Building happens in threads of its own (see `builder`), for which frames leave some of the core. A stage is swapped in,
and an old one destroyed, between two frames by the thread that runs them, so no frame ever sees a half-built one. A
stage that keeps its layers, its placement and its team in the new plan, or had them not long ago, is not built again.
"""

from __future__ import annotations

import contextlib
import math
import queue
import time
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

import msgspec

from shisha_rt.core.lifecycle.events import Descriptor
from shisha_rt.messages.worker import Prepare, Prepared, PrepareFailed
from shisha_rt.process.arena import Arena
from stages.builder import Builder, Built, Finished, FramesCore, Manner, Ordered
from stages.built.batched import BatchedStage
from stages.built.stage import BuiltStage
from stages.emulate.place import Demand, EmulatedPlace
from stages.engines.session import CpuClock, one_line
from stages.kept_stages import KeptStages
from stages.memory_limit import private_bytes

_TIMED_RUNS: Final = 20
_LEFT_FREE: Final = 0.5  # of a frame's CPU time: for so long the core is then left to a builder
_HEAD_START_S: Final = 0.0003


class _Loaded(NamedTuple):
    """A stage of a live epoch. `inline`: its engine computes in the calling thread, and has no threads of its own."""

    stage: BuiltStage
    modelled_cpu_s: float
    inline: bool


class Ran(msgspec.Struct, frozen=True):
    """Times of a stage's run. `cpu_s`: of the engine's threads. `paced_cpu_s`: from which an emulated place paces it.

    `segments_s`: seconds of each segment on its emulated device (see `stages.built.placed`).
    """

    cpu_s: float
    paced_cpu_s: float
    segments_s: tuple[float, ...]


class Executor:
    """Stages by (epoch, number), of the worker with this `incarnation`.

    `build` makes a stage; `wake` is called from a builder's thread when one is finished.
    """

    def __init__(
        self,
        build: Callable[[Prepare], BuiltStage],
        arena: Arena,
        place: EmulatedPlace,
        incarnation: int,
        wake: Callable[[], None],
    ) -> None:
        self._build_stage = build
        self._arena = arena
        self._place = place
        self._incarnation = incarnation
        self._wake = wake
        self._loaded: dict[tuple[int, int], _Loaded] = {}
        self._kept = KeptStages()
        self._wanted: set[int] = set()
        self._core = FramesCore()
        self._built: Finished = queue.SimpleQueue()
        self._builders = {manner: Builder(manner, self._build, self._built, wake) for manner in Manner}
        self._idle_builder = self._builders[Manner.IDLE]

    def prepare(self, order: Prepare) -> None:
        """Have the stage built, or reuse one of the same content that still exists."""
        self._wanted.add(order.epoch)
        kept = self._kept.find(_content(order))
        if kept is None:
            manner = self._manner(order)
            self._builders[manner].ask(order)
            if manner is Manner.IDLE:
                time.sleep(_HEAD_START_S)
        else:
            self._built.put((Ordered(order), self._ready(order, kept)))
            self._wake()

    def retire(self, epoch: int) -> None:
        self._wanted.discard(epoch)
        for builder in self._builders.values():
            builder.cancel(epoch)
        for key in [key for key in self._loaded if key[0] == epoch]:
            del self._loaded[key]

    def forget(self, cores: Collection[int]) -> bool:
        """Stop keeping stages of teams on these cores; False if a team's is being built, or any waits to be taken."""
        if self._builders[Manner.TEAM].undone or self.has_built:
            return False
        self._kept.forget(lambda content: not {*cores}.isdisjoint(content.cores))
        return True

    @property
    def has_built(self) -> bool:
        return not self._built.empty()

    def take_built(self) -> list[Prepared | PrepareFailed]:
        """Swap in stages built since the last call; return answers for the daemon. Drop those of retired epochs."""
        answers: list[Prepared | PrepareFailed] = []
        while not self._built.empty():
            asked, built = self._built.get()
            order = asked.prepare
            if asked.taken_away or order.epoch not in self._wanted:
                continue
            answer = built.answer
            if built.stage is not None:
                loaded = _Loaded(built.stage, order.modelled_cpu_s, self._is_inline(order))
                self._loaded[order.epoch, order.stage] = loaded
                if isinstance(answer, Prepared) and answer.build_s > 0 and not answer.alone:
                    self._kept.add(_content(order), built.stage)
            answers.append(answer)
        return answers

    def demand(self, part: Descriptor) -> Demand:
        loaded = self._loaded[part.epoch, part.stage]
        stage, moved_bytes = loaded.stage, loaded.stage.frame_bytes
        if part.beside:
            assert isinstance(stage, BatchedStage), "it was prepared for runs of one frame"
            moved_bytes = stage.run_bytes(len(part.slots))
        return Demand(moved_bytes, loaded.modelled_cpu_s, stage.paced)

    def run(self, part: Descriptor, layout: int = 0) -> Ran:
        """Run the stage on the part's slots, whose tensors are laid out as `layout`."""
        loaded = self._loaded[part.epoch, part.stage]
        cpu_clock = time.thread_time if loaded.inline else self._frame_cpu_s
        start_s, start_cpu_s = time.monotonic(), cpu_clock()
        stage = loaded.stage
        if part.beside:
            assert isinstance(stage, BatchedStage), "it was prepared for runs of one frame"
            segments_s = stage.run_together(self._arena, part.slots, cpu_clock, layout)
        else:
            segments_s = stage.run(self._arena, part.slot, cpu_clock, layout)
        cpu_s = cpu_clock() - start_cpu_s
        if loaded.inline:
            self._core.note(cpu_s, start_s, time.monotonic())
        return Ran(cpu_s, self._paced_cpu_s(cpu_s, segments_s), segments_s)

    def give_back(self) -> None:
        for loaded in self._loaded.values():
            with contextlib.suppress(Exception):  # the next frame will show what is wrong
                loaded.stage.give_back()

    @property
    def builds(self) -> bool:
        """Whether a stage is being built, or is finished and waits to be taken."""
        return self.has_built or any(builder.undone for builder in self._builders.values())

    def look_after_builders(self) -> None:
        """Called periodically while `building`: if the idle builder starves, the nice one gets its orders."""
        if self._idle_builder.starves(time.monotonic(), self._core.frame_s):
            for order in self._idle_builder.take_away():
                self._builders[Manner.NICE].ask(order)

    @property
    def building(self) -> bool:
        """Whether the idle builder is at work, the one that may starve."""
        return bool(self._idle_builder.undone)

    def give_way(self) -> None:
        """Before a frame: leave the core to the idle builder for a while, as it runs only when no other thread does."""
        if self.building:
            time.sleep(self._core.left_free_s(_LEFT_FREE, time.monotonic()))

    def _frame_cpu_s(self) -> float:
        """CPU seconds of the threads that compute frames; builders are not among them."""
        return time.process_time() - sum(builder.cpu_s for builder in self._builders.values())

    def _is_inline(self, order: Prepare) -> bool:
        """Whether the stage's engines compute in the calling thread, and have no threads of their own."""
        return (order.threads or self._place.threads) == 1

    def _builder_clock(self, order: Prepare) -> CpuClock:
        """A clock of CPU seconds for what a builder runs; with an engine's own threads, frames' time counts too."""
        return time.thread_time if self._is_inline(order) else time.process_time

    def _manner(self, order: Prepare) -> Manner:
        """Choose the builder: the idle one if frames use nearly all of the core, or else the nice one.

        A builder at work gets the next orders too: the daemon expects stages to be built in the order of its requests.
        """
        if not self._is_inline(order):
            return Manner.TEAM
        at_work = next((manner for manner in (Manner.IDLE, Manner.NICE) if self._builders[manner].undone), None)
        return at_work or (Manner.IDLE if self._core.taken_by_frames(time.monotonic()) else Manner.NICE)

    def _paced_cpu_s(self, cpu_s: float, segments_s: tuple[float, ...]) -> float:
        """CPU time to pace by. The place divides it by its threads, but segments' times are already by the clock."""
        return sum(segments_s) * self._place.threads if segments_s else cpu_s

    def _build(self, asked: Ordered) -> Built:
        order = asked.prepare
        cpu_clock = self._builder_clock(order)
        try:
            before_bytes = private_bytes()
            start_s = time.monotonic()
            stage = self._build_stage(order)
            built_s = time.monotonic()
            _go_on(asked)
            stage.warm(cpu_clock)
            warm_s = time.monotonic()
            _go_on(asked)
            too_short = self._why_too_short(order, stage)
            for slot in range(self._arena.slot_count):
                _go_on(asked)
                stage.bind(self._arena, slot)
                time.sleep(0)  # release the interpreter lock, as a frame may wait for it
        except Exception as error:
            # The engine's message is for the user: it becomes, in one line, the reason why the proposal failed.
            return Built(PrepareFailed(order.epoch, order.stage, self._incarnation, one_line(error)), None)
        if too_short is not None:
            return Built(PrepareFailed(order.epoch, order.stage, self._incarnation, too_short, bad_machine=True), None)
        stage.warm_s, stage.private_bytes = warm_s - built_s, private_bytes() - before_bytes
        return self._ready(order, stage, built_s - start_s, stage.private_bytes)

    def _why_too_short(self, order: Prepare, stage: BuiltStage) -> str | None:
        """Why this host cannot keep the place's target, or None. The real computation is timed only in case of doubt.

        A busy moment looks like a slow host but passes, so one run that is fast enough suffices.
        """
        demand = Demand(stage.frame_bytes, order.modelled_cpu_s, stage.described)
        if not self._place.needs_check(demand):
            return None
        inline, cpu_clock = self._is_inline(order), self._builder_clock(order)
        least_s, least_cpu_s, reason = math.inf, math.inf, None
        for _ in range(_TIMED_RUNS):
            start_s, start_cpu_s = time.monotonic(), cpu_clock()
            segments_s = stage.warm(cpu_clock)
            wall_s, cpu_s = time.monotonic() - start_s, cpu_clock() - start_cpu_s
            least_cpu_s = min(least_cpu_s, self._paced_cpu_s(cpu_s, segments_s))
            # A run in this thread is timed by its CPU time, which excludes frames computed on this core meanwhile.
            least_s = min(least_s, cpu_s if inline else wall_s)
            reason = self._place.why_too_short(demand, least_s, least_cpu_s)
            if reason is None:
                return None
        return reason

    def _ready(self, order: Prepare, stage: BuiltStage, build_s: float = 0.0, more_bytes: int = 0) -> Built:
        """`build_s` and `more_bytes` are 0 for a stage that is there already."""
        answer = Prepared(
            epoch=order.epoch,
            stage=order.stage,
            incarnation=self._incarnation,
            build_s=build_s,
            warm_s=stage.warm_s,
            private_bytes=more_bytes,
            frame_bytes=stage.frame_bytes,
            difference=stage.difference,
            alone=stage.alone,
        )
        return Built(answer, stage)


def _go_on(asked: Ordered) -> None:
    """Raise InterruptedError if the stage is not wanted any more; the answer is then ignored."""
    if asked.taken_away:
        raise InterruptedError("it is not wanted any more")


def _content(order: Prepare) -> Prepare:
    """What makes an order another stage: all but the plan that it is for, and how its frames are paced."""
    return msgspec.structs.replace(order, epoch=0, stage=0, modelled_cpu_s=0.0)
