"""Placed stages in the executor and the worker: kept, paced, refused, and reported as they should be."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np
import pytest

from shisha_rt.core.lifecycle.events import Descriptor
from shisha_rt.machine.device import Device, Family
from shisha_rt.measure.compile import compile_model
from shisha_rt.measure.compiled import Compiled
from shisha_rt.messages import worker as messages
from shisha_rt.messages.worker import Prepare, Prepared, PrepareFailed, WorkerConfig
from shisha_rt.process.arena import Arena
from shisha_rt.process.channel import Channel
from shisha_rt.process.child import start_child
from stages.built.batched import BatchedStage, Together
from stages.built.stage import BuiltStage
from stages.emulate.place import EmulatedPlace
from stages.engines.session import EngineSession, Threads
from stages.executor import Executor
from tests.stages.test_placed import (
    ADDER,
    HOST,
    OPENVINO,
    PARALLEL,
    SERIAL,
    arena_for,
    model_of,
    outputs_in,
    put,
    small,
)
from tests.waiting import PATIENCE_S


def part(epoch: int) -> Descriptor:
    """A frame's in slot 0, of stage 0."""
    return Descriptor(1, 1, 0, 0, epoch, 0)


Build: TypeAlias = Callable[[Sequence[EngineSession]], BuiltStage]


def batched(sessions: Sequence[EngineSession]) -> BuiltStage:
    """A stage that is for batches, of which no size is built."""
    return BatchedStage([Together(session, {}, {}) for session in sessions])


class TestExecutor:
    """What the worker asks of its stages, without the process around it."""

    @pytest.fixture
    def compiled(self, tmp_path: Path) -> Compiled:
        return compile_model(small(tmp_path), plain="heavy")

    @pytest.fixture
    def arena(self, compiled: Compiled) -> Iterator[Arena]:
        with arena_for(compiled) as arena:
            yield arena

    def _answer(self, executor: Executor, woken: threading.Semaphore, order: Prepare) -> Prepared | PrepareFailed:
        executor.prepare(order)
        assert woken.acquire(timeout=PATIENCE_S)
        (answer,) = executor.take_built()
        return answer

    def _executor(
        self,
        compiled: Compiled,
        arena: Arena,
        devices: Sequence[Device],
        threads: int,
        time_scale: float = 1.0,
        build: Build = BuiltStage,
    ) -> tuple[Executor, threading.Semaphore]:
        model, woken = model_of(compiled, devices, threads), threading.Semaphore(0)
        place = EmulatedPlace("p", threads, lambda: 1.0, time_scale=time_scale)
        executor = Executor(
            lambda order: build([model.stage(order.work, order.placement, Threads(order.threads or threads))]),
            arena,
            place,
            incarnation=1,
            wake=woken.release,
        )
        return executor, woken

    def test_a_stage_is_kept_only_for_the_same_placement(self, compiled: Compiled, arena: Arena) -> None:
        executor, woken = self._executor(compiled, arena, [SERIAL, PARALLEL], threads=1)
        first = Prepare(1, 0, ((0, 0),), placement=("serial", "serial", "parallel"))
        answers = [
            self._answer(executor, woken, order)
            for order in (
                first,
                replace_order(first, epoch=2),
                replace_order(first, epoch=3, placement=("serial", "parallel", "parallel")),
            )
        ]
        assert all(isinstance(answer, Prepared) for answer in answers)
        built, kept, other = (answer.build_s for answer in answers if isinstance(answer, Prepared))
        assert built > 0
        assert kept == 0
        assert other > 0
        put(arena, 0, {"x": np.full((4, 2), 2, np.float32)})
        for epoch in (1, 2, 3):
            assert len(executor.run(part(epoch)).segments_s) == 2
            assert (outputs_in(arena, 0, compiled)["y"] == [[6, -1]] * 4).all()
            assert not executor.demand(part(epoch)).paced
        for epoch in (1, 2, 3):
            executor.retire(epoch)
        again = self._answer(executor, woken, replace_order(first, epoch=4))
        assert isinstance(again, Prepared)
        assert again.build_s == 0, "it was not long ago"
        assert len(executor.run(part(4)).segments_s) == 2

    def test_a_place_paces_a_frame_by_the_sum_of_its_segments(self, compiled: Compiled, arena: Arena) -> None:
        executor, woken = self._executor(compiled, arena, [HOST, ADDER], threads=2)
        order = Prepare(1, 0, ((0, 0),), placement=("adder", "host", "adder"))
        assert isinstance(self._answer(executor, woken, order), Prepared)
        demand, ran = executor.demand(part(1)), executor.run(part(1))
        assert demand.paced
        assert ran.segments_s == pytest.approx((6.25e-3, 2e-3, 6.25e-3))
        assert EmulatedPlace("p", 2, lambda: 1.0).target_s(demand, ran.paced_cpu_s, speed=0.5) == pytest.approx(29e-3)

    @pytest.mark.parametrize("build", [BuiltStage, batched])
    @pytest.mark.parametrize("time_scale", [1.0, 2.0])
    def test_a_described_device_that_this_host_cannot_keep_up_with(
        self,
        compiled: Compiled,
        arena: Arena,
        time_scale: float,
        build: Callable[[Sequence[EngineSession]], BuiltStage],
    ) -> None:
        """Neither frame by frame nor in batches."""
        instant = replace(HOST, call_s=1e-10, families=(Family(frozenset(), (), ()),))
        executor, woken = self._executor(compiled, arena, [instant], 1, time_scale, build)
        answer = self._answer(executor, woken, Prepare(1, 0, ((0, 0),), placement=("host",) * 3))
        assert isinstance(answer, PrepareFailed)
        assert answer.bad_machine
        assert answer.reason.startswith(f"time_scale = {time_scale:g}: place p would have ")
        assert answer.reason.endswith(" or more")

    def test_a_placement_that_cannot_run_is_refused_in_one_line(self, compiled: Compiled, arena: Arena) -> None:
        executor, woken = self._executor(compiled, arena, [HOST, ADDER], threads=1)
        answer = self._answer(executor, woken, Prepare(1, 0, ((0, 0),), placement=("adder",) * 3))
        assert answer == PrepareFailed(1, 0, 1, "ValueError: device adder cannot run operators 0 to 2")


def replace_order(order: Prepare, **changes: Any) -> Prepare:
    return msgspec.structs.replace(order, **changes)


@contextmanager
def worker(
    compiled: Compiled,
    arena: Arena,
    devices: Sequence[Device] = (),
    time_scale: float = 1.0,
    model_folder: Path | None = None,
    cores: Sequence[int] = (),
) -> Iterator[tuple[Channel, int]]:
    """A real worker process; yields the daemon's end of its channel, and its process id.

    `cores`: its place's; by default this host's first.
    """
    ours, theirs = Channel.pair()
    config = WorkerConfig(
        place="p",
        place_index=0,
        place_count=1,
        cores=tuple(cores) or (min(os.sched_getaffinity(0)),),
        threads=1,
        incarnation=1,
        channel_fd=theirs.fileno(),
        engine_folders=(str(compiled.engine_folder),),
        arena_fd=arena.fd,
        slot_count=arena.slot_count,
        parent_pid=os.getpid(),
        time_scale=time_scale,
        model_folders=(str(model_folder or compiled.model_folder),),
        devices=tuple(devices),
    )
    with theirs:
        order = msgspec.json.encode(config).decode()
        process = start_child("stages.worker", order, pass_fds=[theirs.fileno(), arena.fd])
    try:
        yield ours, process.pid
    finally:
        process.end()
        ours.close()


def said(channel: Channel) -> messages.FromWorker:
    """The next message of the worker."""
    ready, _, _ = select.select([channel], [], [], PATIENCE_S)
    assert ready, "the worker says nothing"
    return messages.FROM_WORKER.decode(next(channel.receive()))


def test_a_worker_runs_described_devices_in_their_own_time(tmp_path: Path) -> None:
    compiled = compile_model(small(tmp_path), plain="heavy")
    with arena_for(compiled) as arena:
        arena.set_speed(0, 1.0)
        put(arena, 0, {"x": np.full((4, 2), 2, np.float32)})
        with worker(compiled, arena, [HOST, ADDER], time_scale=2.0) as (channel, _):
            assert said(channel) == messages.Ready(1)
            channel.send(messages.TO_WORKER.encode(Prepare(1, 0, ((0, 0),), placement=("adder", "host", "adder"))))
            assert isinstance(said(channel), Prepared)
            parts = []
            for frame, adder_speed in enumerate((1.0, 0.5)):
                arena.set_device_speed(0, 1, adder_speed)
                channel.send(messages.TO_WORKER.encode(messages.Run(Descriptor(1, frame, 0, 0, 1, 0), 0)))
                part = said(channel)
                assert isinstance(part, messages.Done), part
                assert (outputs_in(arena, 0, compiled)["y"] == [[6, -1]] * 4).all()
                parts.append(part)
    assert parts[0].segments_s == pytest.approx((6.25e-3, 2e-3, 6.25e-3))
    assert parts[1].segments_s == pytest.approx((12.5e-3, 2e-3, 12.5e-3))
    for part in parts:
        assert part.service_s >= 2 * sum(part.segments_s) * (1 - 1e-6)


def test_a_worker_whose_cores_may_not_be_used_any_more_runs_on_those_that_may(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It ended at its start, as did each that followed it."""
    compiled = compile_model(small(tmp_path))
    with arena_for(compiled) as arena, worker(compiled, arena, cores=[99_999]) as (channel, pid):
        assert said(channel) == messages.Ready(1)
        assert os.sched_getaffinity(pid) == os.sched_getaffinity(0)
    assert "p: cores 99999 " in capfd.readouterr().err


@pytest.mark.parametrize("other", [PARALLEL, OPENVINO], ids=["one_engine", "two_engines"])
def test_a_worker_runs_engines_of_this_host_as_fast_as_they_are(tmp_path: Path, other: Device) -> None:
    pytest.importorskip(other.engine)
    compiled = compile_model(small(tmp_path), plain="heavy")
    with arena_for(compiled) as arena:
        arena.set_speed(0, 1.0)
        put(arena, 0, {"x": np.full((4, 2), 2, np.float32)})
        with worker(compiled, arena, [SERIAL, other]) as (channel, _):
            assert said(channel) == messages.Ready(1)
            channel.send(
                messages.TO_WORKER.encode(Prepare(1, 0, ((0, 0),), placement=("serial", other.name, "serial")))
            )
            assert isinstance(said(channel), Prepared)
            channel.send(messages.TO_WORKER.encode(messages.Run(Descriptor(1, 7, 0, 0, 1, 0), 0)))
            part = said(channel)
            assert isinstance(part, messages.Done), part
            assert (outputs_in(arena, 0, compiled)["y"] == [[6, -1]] * 4).all()
    assert len(part.segments_s) == 3
    assert min(part.segments_s) > 0
    assert sum(part.segments_s) <= part.cpu_s
