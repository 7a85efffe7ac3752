"""What is built beside frames: how its thread competes with them, and which stages are not built again."""

from __future__ import annotations

import gc
import os
import queue
import threading
import time
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor

import pytest

from shisha_rt.messages.worker import Prepare, PrepareFailed
from stages.builder import Builder, Built, Finished, FramesCore, Manner, Ordered
from stages.built.stage import BuiltStage
from stages.engines.session import Ends, EngineSession
from stages.kept_stages import KeptStages
from tests.wording import says


def a_stage() -> BuiltStage:
    """One that computes nothing."""
    return BuiltStage([EngineSession(Ends((), ()), 0)])


class Kept:
    """A store, and what it still has of the contents that were put in it; nothing else holds their stages."""

    def __init__(self, most_stages: int, most_bytes: int) -> None:
        self.stages = KeptStages(most_stages, most_bytes)
        self._contents: list[Hashable] = []

    def add(self, content: Hashable, private_bytes: int = 0) -> None:
        stage = a_stage()
        stage.private_bytes = private_bytes
        self.stages.add(content, stage)
        self._contents.append(content)

    def left(self) -> list[Hashable]:
        gc.collect()
        return [content for content in self._contents if self.stages.find(content) is not None]


def test_the_last_few_stages_stay_and_looking_for_one_is_using_it() -> None:
    kept = Kept(most_stages=3, most_bytes=100)
    for content in "abc":
        kept.add(content)
    assert kept.stages.find("a") is not None
    kept.add("d")
    assert kept.left() == ["a", "c", "d"]


def test_those_with_little_private_memory_stay() -> None:
    kept = Kept(most_stages=9, most_bytes=100)
    kept.add("a", 60)
    kept.add("less than nothing, as frames gave back more meanwhile", -500)
    kept.add("b", 50)
    assert kept.left() == [says("less than nothing, …"), "b"]
    kept.add("more than all others may have", 101)
    assert kept.left() == [says("less than nothing, …"), "b"]


def test_a_stage_in_use_is_there_however_large_it_is() -> None:
    kept, stage = KeptStages(most_stages=1, most_bytes=1), a_stage()
    stage.private_bytes = 2
    kept.add("large", stage)
    assert kept.find("large") is stage
    del stage
    gc.collect()
    assert kept.find("large") is None


def nothing(order: Ordered) -> Built:
    return Built(PrepareFailed(order.prepare.epoch, order.prepare.stage, 1, "nothing is built here"), None)


@pytest.mark.parametrize("nicer", [0, 7])
@pytest.mark.parametrize("manner", Manner)
def test_a_builder_is_as_urgent_as_it_should_be(manner: Manner, nicer: int) -> None:
    """And those that it starts with it: a team's threads are not to be nicer than others. `nicer`: its daemon is."""
    nice, built_at = min(19, os.getpriority(os.PRIO_PROCESS, 0) + nicer), []

    def build(order: Ordered) -> Built:
        built_at.append((os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, threading.get_native_id())))
        return nothing(order)

    finished: Finished = queue.SimpleQueue()
    woken = threading.Semaphore(0)

    def builder_of_nice() -> Builder:
        os.setpriority(os.PRIO_PROCESS, 0, nice)  # this thread's, which the builder's inherits
        return Builder(manner, build, finished, woken.release)

    with ThreadPoolExecutor(1) as nice_thread:
        builder = nice_thread.submit(builder_of_nice).result()
    assert not builder.undone
    for epoch in (1, 2):
        builder.ask(Prepare(epoch, 0, ((0, 0),)))
    for epoch in (1, 2):
        assert woken.acquire(timeout=60)
        assert finished.get()[0].prepare.epoch == epoch
    assert not builder.undone
    expected = {
        Manner.IDLE: (os.SCHED_IDLE, min(19, nice + 5)),
        Manner.NICE: (os.SCHED_OTHER, min(19, nice + 5)),
        Manner.TEAM: (os.SCHED_OTHER, nice),
    }
    assert built_at == [expected[manner]] * 2


def test_what_a_builder_does_not_get_on_with_is_taken_from_it() -> None:
    """Others have its core: here it waits for the test."""
    may_go_on, begun, woken = threading.Event(), threading.Event(), threading.Semaphore(0)

    def build(order: Ordered) -> Built:
        begun.set()
        assert may_go_on.wait(60)
        return nothing(order)

    finished: Finished = queue.SimpleQueue()
    builder = Builder(Manner.IDLE, build, finished, woken.release)
    orders = [Prepare(epoch, 0, ((0, 0),)) for epoch in (1, 2, 3)]
    for order in orders[:2]:
        builder.ask(order)
    assert begun.wait(60)
    now_s = time.monotonic()
    assert not builder.starves(now_s, frame_s=60.0), "frames leave it the core only every so often"
    assert builder.starves(now_s + 60, frame_s=0.01)
    assert builder.take_away() == orders[:2]
    assert not builder.undone
    assert not builder.starves(now_s + 60, frame_s=0.01)
    builder.ask(orders[2])
    may_go_on.set()
    for _ in range(2):
        assert woken.acquire(timeout=60)
    done = [finished.get()[0] for _ in range(2)]
    assert [(order.prepare, order.taken_away) for order in done] == [(orders[0], True), (orders[2], False)]


def test_stages_of_an_epoch_that_was_retired_are_not_built_before_those_of_the_next() -> None:
    may_go_on, begun, woken = threading.Event(), threading.Event(), threading.Semaphore(0)
    built = []

    def build(order: Ordered) -> Built:
        begun.set()
        assert may_go_on.wait(60)
        built.append(order.prepare)
        return nothing(order)

    builder = Builder(Manner.IDLE, build, queue.SimpleQueue(), woken.release)
    orders = [Prepare(epoch, stage, ((0, 0),)) for epoch, stage in ((1, 0), (1, 1), (2, 0))]
    for order in orders:
        builder.ask(order)
    assert begun.wait(60)
    builder.cancel(1)
    assert builder.undone, "the first is being built"
    may_go_on.set()
    for _ in orders:
        assert woken.acquire(timeout=60)
    assert built == [orders[0], orders[2]]
    assert not builder.undone


def test_what_is_cancelled_is_given_to_no_other_builder() -> None:
    may_go_on = threading.Event()

    def build(order: Ordered) -> Built:
        assert may_go_on.wait(60)
        return nothing(order)

    builder = Builder(Manner.IDLE, build, queue.SimpleQueue(), lambda: None)
    orders = [Prepare(epoch, 0, ((0, 0),)) for epoch in (1, 2)]
    for order in orders:
        builder.ask(order)
    builder.cancel(1)
    assert builder.take_away() == orders[1:]
    may_go_on.set()


def frames(core: FramesCore, count: int, *, cpu_s: float, wall_s: float, start_s: float = 100.0) -> float:
    """One after the other; returns when the last one ended."""
    for _ in range(count):
        core.note(cpu_s, start_s, start_s + wall_s)
        start_s += wall_s
    return start_s


def test_frames_have_a_core_where_they_flow_and_nothing_else_is_at_work() -> None:
    core = FramesCore()
    assert not core.taken_by_frames(100.0)
    now_s = frames(core, 30, cpu_s=0.0019, wall_s=0.002)
    assert core.taken_by_frames(now_s)
    assert not core.taken_by_frames(now_s + 1), "no frames flow any more"
    now_s = frames(core, 1, cpu_s=0.002, wall_s=0.006, start_s=now_s)
    assert core.taken_by_frames(now_s), "one frame had to wait"
    for _ in range(40):  # what else is ready gets the core for 4 ms at a time, so every other frame sees nothing of it
        now_s = frames(core, 1, cpu_s=0.002, wall_s=0.002, start_s=now_s)
        now_s = frames(core, 1, cpu_s=0.002, wall_s=0.006, start_s=now_s)
    assert not core.taken_by_frames(now_s), "half of the core is somebody else's"


def test_after_a_frame_the_core_is_left_free_for_some_of_what_it_took() -> None:
    core = FramesCore()
    assert core.left_free_s(0.5, 100.0) == 0
    now_s = frames(core, 1, cpu_s=0.004, wall_s=0.1)
    assert core.left_free_s(0.5, now_s) == pytest.approx(0.002)
    assert core.left_free_s(0.5, now_s + 0.0015) == pytest.approx(0.0005)
    assert core.left_free_s(0.5, now_s + 1) == 0
