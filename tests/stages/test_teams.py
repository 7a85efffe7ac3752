"""Several stages of an epoch in one worker, and stages that a team of places computes, in a real worker process."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from onnx import helper

from shisha_rt.core.lifecycle.events import Descriptor
from shisha_rt.machine.device import Device
from shisha_rt.machine.host.cores import usable_cores
from shisha_rt.measure.compile import compile_model
from shisha_rt.measure.compiled import Compiled
from shisha_rt.messages import worker as messages
from shisha_rt.messages.worker import Prepare, Prepared, Retire
from shisha_rt.model.spans import Span
from shisha_rt.process.arena import Arena
from shisha_rt.process.channel import Channel
from stages.engines.onnxruntime.options import base_options
from stages.engines.session import Threads
from tests.model.networks import network, weight, write
from tests.stages.test_placed import (
    OPENVINO,
    PARALLEL,
    SERIAL,
    Arrays,
    arena_for,
    assert_close,
    inputs_of,
    outputs_in,
    put,
)
from tests.stages.test_placed import whole as plainly
from tests.stages.test_placed_worker import said, worker
from tests.stages.test_segments import blocked_and_plain, residual, whole
from tests.waiting import until

CORES = tuple(usable_cores()[:2])
two_cores = pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")


class Talk:
    """One worker's channel, from the daemon's side."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._frame = 0
        assert said(channel) == messages.Ready(1)

    def ask(self, message: messages.ToWorker) -> messages.FromWorker:
        self._channel.send(messages.TO_WORKER.encode(message))
        return said(self._channel)

    def run(self, epoch: int, stage: int, slot: int) -> messages.Done:
        self._frame += 1
        self._channel.send(
            messages.TO_WORKER.encode(messages.Run(Descriptor(1, self._frame, 0, stage, epoch, slot), 0))
        )
        done = said(self._channel)
        assert isinstance(done, messages.Done), done
        assert (done.part.epoch, done.part.stage) == (epoch, stage)
        return done

    def retire(self, epoch: int) -> None:
        self._channel.send(messages.TO_WORKER.encode(Retire(epoch)))


def order_of(epoch: int, stage: int, *work: Span) -> Prepare:
    return Prepare(epoch, stage, work)


def fill(arena: Arena, compiled: Compiled) -> list[Arrays]:
    """A frame's inputs in every slot, each its own."""
    frames = [inputs_of(compiled, seed) for seed in range(arena.slot_count)]
    for slot, inputs in enumerate(frames):
        put(arena, slot, inputs)
    return frames


def test_stages_of_one_epoch_run_in_whatever_order_parts_come(tmp_path: Path) -> None:
    compiled = compile_model(residual(tmp_path))
    last = len(compiled.layers) - 1
    with arena_for(compiled, slot_count=3) as arena, worker(compiled, arena) as (channel, _):
        arena.set_speed(0, 1.0)
        frames, talk = fill(arena, compiled), Talk(channel)
        for stage, work in ((1, (1, last)), (0, (0, 0))):  # built in any order, too
            answer = talk.ask(order_of(1, stage, work))
            assert isinstance(answer, Prepared)
            assert (answer.epoch, answer.stage) == (1, stage)
        wrong = messages.Run(Descriptor(1, 9, 0, 0, 1, slot=0), layout=1)
        assert talk.ask(wrong) == messages.Failed(wrong.part, "its slot is of layout 1, which this worker has not")
        for slot, stage in ((0, 0), (1, 0), (1, 1), (2, 0), (0, 1), (0, 1), (2, 1)):
            talk.run(1, stage, slot)
        for slot, inputs in enumerate(frames):
            expected = whole(compiled, inputs)
            assert all((outputs_in(arena, slot, compiled)[name] == expected[name]).all() for name in expected)


def interleaved(folder: Path) -> Path:
    """Two branches of two convolutions each, whose layers take turns: 1 and 3, and 2 and 4, between 0 and 5."""
    ends = (("x", "s"), ("s", "a"), ("s", "b"), ("a", "c"), ("b", "d"))
    nodes = [helper.make_node("Conv", [x, f"w{i}"], [y], pads=[1, 1, 1, 1]) for i, (x, y) in enumerate(ends)]
    nodes.append(helper.make_node("MatMul", ["c", "d"], ["y"]))
    weights = {f"w{i}": weight(8, 8, 3, 3, seed=i) for i in range(5)}
    return write(network(nodes, {"x": [1, 8, 6, 6]}, {"y": [1, 8, 6, 6]}, weights), folder)


@pytest.mark.parametrize("devices", [(), (SERIAL,)], ids=["whole", "placed"])
def test_a_stage_of_two_runs_of_layers(tmp_path: Path, devices: Sequence[Device]) -> None:
    compiled = compile_model(interleaved(tmp_path), plain="heavy" if devices else None)
    works = [((0, 0),), ((1, 1), (3, 3)), ((2, 2), (4, 4)), ((5, 5),)]
    with arena_for(compiled) as arena, worker(compiled, arena, devices) as (channel, _):
        arena.set_speed(0, 1.0)
        (inputs,), talk = fill(arena, compiled), Talk(channel)
        for stage, work in enumerate(works):
            runs = [compiled.index.operators_of(*run) for run in work] if devices else []
            placement = ("serial",) * sum(last - first + 1 for first, last in runs)
            answer = talk.ask(msgspec.structs.replace(order_of(1, stage, *work), placement=placement))
            assert isinstance(answer, Prepared), answer
        for stage in (0, 2, 1, 3):  # the branches in any order
            talk.run(1, stage, 0)
        assert_close(outputs_in(arena, 0, compiled), plainly(compiled, inputs))


def threads_of(pid: int) -> dict[int, tuple[set[int], int, float]]:
    """Thread -> the cores that it may use, its niceness, the CPU seconds that it has taken."""
    threads = {}
    for tid in (int(path.name) for path in Path(f"/proc/{pid}/task").iterdir()):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            cores, niceness = os.sched_getaffinity(tid), os.getpriority(os.PRIO_PROCESS, tid)
            ran_ns = int(Path(f"/proc/{pid}/task/{tid}/schedstat").read_text().split()[0])
            threads[tid] = (cores, niceness, ran_ns / 1e9)
    return threads


@two_cores
@pytest.mark.parametrize("devices", [(), (PARALLEL,), (OPENVINO,)], ids=["whole", "onnxruntime", "openvino"])
def test_a_team_and_one_place_side_by_side(tmp_path: Path, devices: Sequence[Device]) -> None:
    """Epoch 1 is one place's, 2 a team's, 3 the one place's again, and 4 the team's again."""
    for device in devices:
        pytest.importorskip(device.engine)
    compiled = compile_model(blocked_and_plain(tmp_path), plain="heavy" if devices else None)
    operators = len(compiled.model.graph.operators)
    placement = tuple(device.name for device in devices for _ in range(operators))
    alone = Prepare(1, 0, ((0, len(compiled.layers) - 1),), placement=placement)

    def of_team(epoch: int) -> Prepare:
        return msgspec.structs.replace(alone, epoch=epoch, cores=CORES, threads=2)

    with arena_for(compiled, slot_count=2) as arena, worker(compiled, arena, devices) as (channel, pid):
        arena.set_speed(0, 1.0)
        frames, talk = fill(arena, compiled), Talk(channel)
        expected = [plainly(compiled, inputs) for inputs in frames]

        def check(*epochs: int) -> None:
            for _ in range(3):
                for epoch in epochs:
                    for slot in (0, 1):
                        for name in expected[slot]:
                            arena.view(slot, arena.layout.regions[name])[...] = 0
                        assert talk.run(epoch, 0, slot).cpu_s > 0
                        assert_close(outputs_in(arena, slot, compiled), expected[slot])

        def helping() -> list[int]:
            """Threads on the team's other core that are as quick to get it as a frame's own."""
            others, urgent = set(CORES[1:]), os.getpriority(os.PRIO_PROCESS, pid)
            return [tid for tid, (cores, nice, _) in threads_of(pid).items() if cores == others and nice == urgent]

        assert isinstance(talk.ask(alone), Prepared)
        check(1)
        assert helping() == []
        assert isinstance(talk.ask(of_team(2)), Prepared)
        check(1, 2)
        until(helping, "a thread of the team's that has its core")
        busy = helping()
        talk.retire(1)
        check(2)
        until(lambda: any(threads_of(pid)[tid][2] > 0 for tid in busy), "work of the other core's")
        again = talk.ask(msgspec.structs.replace(alone, epoch=3))
        assert isinstance(again, Prepared)
        assert again.build_s == 0  # epoch 1 had it; what epoch 2 has is another stage
        talk.retire(2)
        check(3)
        assert isinstance(talk.ask(of_team(4)), Prepared)
        check(3, 4)
        assert threads_of(pid)[pid][0] == {CORES[0]}


def test_equal_teams_share_a_stage_and_others_do_not(tmp_path: Path) -> None:
    compiled = compile_model(residual(tmp_path))
    with arena_for(compiled) as arena, worker(compiled, arena) as (channel, _):
        talk = Talk(channel)
        first = order_of(1, 0, (0, 0))
        built_s = []
        for epoch, changes in enumerate(({}, {}, {"threads": 2, "cores": (0, 0)}, {"threads": 2, "cores": (0, 0)})):
            answer = talk.ask(msgspec.structs.replace(first, epoch=1 + epoch, **changes))
            assert isinstance(answer, Prepared)
            built_s.append(answer.build_s)
    assert [build_s > 0 for build_s in built_s] == [True, False, True, False]


@pytest.mark.parametrize(
    ("threads", "cores", "expected"),
    [(2, (0, 1), "2"), (4, (6, 2, 9, 3), "3;10;4"), (3, (4, 5), "5,6;5,6"), (2, (0, 1, 2, 3), "1,2,3,4")],
)
def test_onnxruntimes_threads_are_told_their_cores(threads: int, cores: tuple[int, ...], expected: str) -> None:
    """One each, but the caller's; where the numbers differ all of them. Counted from 1."""
    assert (
        base_options(Threads(threads, cores)).get_session_config_entry("session.intra_op_thread_affinities") == expected
    )


@pytest.mark.parametrize(("threads", "cores"), [(1, (3,)), (1, (3, 4)), (2, ())])
def test_others_run_where_the_process_may(threads: int, cores: tuple[int, ...]) -> None:
    with pytest.raises(RuntimeError, match="affinities"):
        base_options(Threads(threads, cores)).get_session_config_entry("session.intra_op_thread_affinities")
