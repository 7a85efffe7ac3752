"""A whole network on another engine than the usual one, in a real worker: its answers against ONNX Runtime's."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np
import onnx
import pytest
from onnx import helper

from shisha_rt.costs.agreement import Apart, how_far_apart
from shisha_rt.costs.engine_trials import MOST_APART, MOST_UNLIKE, why_apart
from shisha_rt.machine.host.processor import has_bfloat16
from shisha_rt.measure.compile import compile_model
from shisha_rt.measure.compiled import Compiled
from shisha_rt.messages.worker import Prepare, Prepared, PrepareFailed
from shisha_rt.model.batch_axes import MixesFrames
from shisha_rt.plan.engine import StageEngine
from stages.built.batched import BatchedStage, Together
from stages.engines.openvino.session import CompiledNetwork
from stages.engines.openvino.threads import _Threads
from stages.engines.openvino.whole import WholeOnOpenVino, load_for_all_of
from stages.engines.session import Threads, untimed
from stages.noise import moved
from tests.model.networks import network, weight, write
from tests.stages.test_placed import Arrays, arena_for, assert_close, outputs_in, put
from tests.stages.test_placed import whole as plainly
from tests.stages.test_placed_worker import worker
from tests.stages.test_segments import residual
from tests.stages.test_teams import CORES, Talk, fill, order_of, threads_of, two_cores

needs_bfloat16 = pytest.mark.skipif(not has_bfloat16(), reason="this processor has neither AVX-512 BF16 nor AMX")


def two_inputs(folder: Path) -> Path:
    """Two inputs and two outputs, one of whole numbers, in an order that no engine would choose."""
    nodes = [
        helper.make_node("Conv", ["b", "w0"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["a", "w1"], ["d"], pads=[1, 1, 1, 1]),
        helper.make_node("Sub", ["c", "d"], ["e"]),
        helper.make_node("ArgMax", ["e"], ["best"], axis=1),
        helper.make_node("Relu", ["d"], ["r"]),
    ]
    weights = {f"w{i}": weight(8, 8, 3, 3, seed=i) for i in range(2)}
    shape = [1, 8, 6, 6]
    model = network(nodes, {"a": shape, "b": shape}, {"r": shape}, weights)
    model.graph.output.append(helper.make_tensor_value_info("best", onnx.TensorProto.INT64, [1, 1, 6, 6]))
    return write(model, folder)


def order_on(engine: StageEngine, compiled: Compiled, cores: Sequence[int] = ()) -> Prepare:
    order = order_of(1, 0, (0, len(compiled.layers) - 1))
    return msgspec.structs.replace(order, engine=engine, cores=tuple(cores), threads=len(cores))


@pytest.mark.parametrize("make", [residual, two_inputs])
@pytest.mark.parametrize("engine", ["openvino", "onnxruntime-spin"])
def test_answers_are_those_of_the_network(tmp_path: Path, make: Callable[[Path], Path], engine: StageEngine) -> None:
    compiled = compile_model(make(tmp_path))
    with arena_for(compiled, slot_count=3) as arena, worker(compiled, arena) as (channel, _):
        arena.set_speed(0, 1.0)
        frames, talk = fill(arena, compiled), Talk(channel)
        answer = talk.ask(order_on(engine, compiled))
        assert isinstance(answer, Prepared), answer
        assert answer.difference < MOST_APART
        for slot in (2, 0, 1, 0):
            talk.run(1, 0, slot)
        for slot, inputs in enumerate(frames):
            assert_close(outputs_in(arena, slot, compiled), plainly(compiled, inputs))


def shuffled(folder: Path) -> Path:
    """Reshape operators that state one frame, on the way and at the end."""
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Reshape", ["c", "pairs"], ["p"]),
        helper.make_node("Transpose", ["p"], ["t"], perm=[0, 2, 1, 3, 4]),
        helper.make_node("Reshape", ["t", "back"], ["s"]),
        helper.make_node("Conv", ["s", "w1"], ["d"], pads=[1, 1, 1, 1]),
        helper.make_node("Reshape", ["d", "flat"], ["y"]),
    ]
    constants = {
        "w0": weight(8, 4, 3, 3, seed=0),
        "w1": weight(4, 8, 3, 3, seed=1),
        "pairs": np.array([1, 2, 4, 6, 6]),
        "back": np.array([1, 8, 6, 6]),
        "flat": np.array([1, 144]),
    }
    return write(network(nodes, {"x": [1, 4, 6, 6]}, {"y": [1, 144]}, constants), folder)


def of_three(folder: Path) -> Path:
    """A frame is three pictures, as the file has been exported."""
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Reshape", ["c", "flat"], ["y"]),
    ]
    constants = {"w0": weight(8, 4, 3, 3, seed=0), "flat": np.array([3, 288])}
    return write(network(nodes, {"x": [3, 4, 6, 6]}, {"y": [3, 288]}, constants), folder)


@pytest.mark.parametrize("large_bytes", [0, 1 << 30], ids=["any number of frames", "fixed numbers"])
@pytest.mark.parametrize("make", [residual, shuffled, of_three])
def test_frames_that_share_a_run_come_out_as_each_alone(
    tmp_path: Path, make: Callable[[Path], Path], large_bytes: int
) -> None:
    compiled, threads = compile_model(make(tmp_path)), Threads()
    index = compiled.index
    network = WholeOnOpenVino(compiled.model_folder, index, threads, weight_bytes=0)
    sizes = network.of_frames(6, large_bytes=large_bytes)
    assert list(sizes) == ([2, 3, 4, 5, 6] if large_bytes == 0 else [2, 4, 6])
    stage = BatchedStage([Together(network, index.batch_axes, sizes)])
    with arena_for(compiled, slot_count=9) as arena:
        frames = fill(arena, compiled)
        stage.try_out()
        for slots in ((0, 1, 2, 3, 4, 5), (6, 8), (7,)):
            stage.run_together(arena, slots, time.thread_time)
            stage.give_back()
        for slot, inputs in enumerate(frames):
            assert_close(outputs_in(arena, slot, compiled), plainly(compiled, inputs))


@needs_bfloat16
def test_bfloat16_changes_answers_and_says_by_how_much(tmp_path: Path) -> None:
    compiled = compile_model(residual(tmp_path))
    with arena_for(compiled, slot_count=1) as arena, worker(compiled, arena) as (channel, _):
        answer = Talk(channel).ask(order_on("openvino_bf16", compiled))
    assert isinstance(answer, Prepared), answer
    assert MOST_APART < answer.difference < 0.2


@needs_bfloat16
def test_frames_in_bfloat16_share_runs(tmp_path: Path) -> None:
    compiled = compile_model(residual(tmp_path))
    network = WholeOnOpenVino(compiled.model_folder, compiled.index, Threads(), 0, "openvino_bf16")
    stage = BatchedStage([Together(network, compiled.index.batch_axes, network.of_frames(4), network.precision)])
    stage.try_out()
    with arena_for(compiled, slot_count=4) as arena:
        frames = fill(arena, compiled)
        stage.run_together(arena, (0, 1, 2, 3), time.thread_time)
        for slot, inputs in enumerate(frames):
            apart = how_far_apart(outputs_in(arena, slot, compiled), plainly(compiled, inputs))
            assert not why_apart(*apart, "openvino_bf16")
            assert why_apart(*apart)


def test_after_memory_was_short_nothing_holds_what_was_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all slots that were bound, not only of the one whose frame failed."""
    compiled = compile_model(residual(tmp_path))
    network = WholeOnOpenVino(compiled.model_folder, compiled.index, Threads(), weight_bytes=0)
    before = weakref.ref(network.compiled)
    with arena_for(compiled, slot_count=2) as arena:
        frames = fill(arena, compiled)
        runs = [network.on_slot(arena, slot) for slot in range(2)]
        for run in runs:
            run(untimed)

        def fails(*_: object) -> None:
            raise RuntimeError("bad allocation")

        with monkeypatch.context() as patched:
            patched.setattr(CompiledNetwork, "infer", fails)
            with pytest.raises(RuntimeError):
                runs[0](untimed)
        gc.collect()
        assert before() is None
        for slot, inputs in enumerate(frames):
            put(arena, slot, inputs)
            runs[slot](untimed)
            assert_close(outputs_in(arena, slot, compiled), plainly(compiled, inputs))


def mixing(folder: Path) -> Path:
    mean = helper.make_node("ReduceMean", ["x"], ["y"], axes=[0], keepdims=1)
    return write(network([mean], {"x": [1, 3, 4, 4]}, {"y": [1, 3, 4, 4]}), folder)


@pytest.mark.parametrize(("make", "can"), [(residual, True), (mixing, False)])
def test_a_worker_has_runs_of_several_frames_where_the_engine_can_have_them(
    tmp_path: Path, make: Callable[[Path], Path], can: bool
) -> None:
    """Where it cannot, single ones run, and the answer says why."""
    compiled = compile_model(make(tmp_path))
    with arena_for(compiled, slot_count=2) as arena, worker(compiled, arena) as (channel, _):
        arena.set_speed(0, 1.0)
        frames, talk = fill(arena, compiled), Talk(channel)
        answer = talk.ask(msgspec.structs.replace(order_on("openvino", compiled), batch=4))
        assert isinstance(answer, Prepared), answer
        assert (answer.alone == "") == can
        for slot, inputs in enumerate(frames):
            talk.run(1, 0, slot)
            assert_close(outputs_in(arena, slot, compiled), plainly(compiled, inputs))


def test_a_network_that_mixes_frames_has_no_runs_of_several(tmp_path: Path) -> None:
    compiled = compile_model(mixing(tmp_path))
    whole = WholeOnOpenVino(compiled.model_folder, compiled.index, Threads(), weight_bytes=0)
    with pytest.raises(MixesFrames):
        whole.of_frames(4)


NO_CORE = 4095  # as good as one that was taken away: the kernel refuses both alike


@two_cores
def test_a_team_on_openvino_outlives_its_cores(tmp_path: Path) -> None:
    """A control group may be moved to other cores at any time."""
    compiled = compile_model(residual(tmp_path))
    with arena_for(compiled, slot_count=1) as arena, worker(compiled, arena) as (channel, _):
        arena.set_speed(0, 1.0)
        (inputs,), talk = fill(arena, compiled), Talk(channel)
        answer = talk.ask(order_on("openvino", compiled, (CORES[0], NO_CORE)))
        assert isinstance(answer, Prepared), answer
        talk.run(1, 0, 0)
        assert_close(outputs_in(arena, 0, compiled), plainly(compiled, inputs))


def test_threads_of_a_run_that_failed_are_moved_too() -> None:
    """After memory was short in a team's first run, its threads stayed on any cores for good."""
    pool, ends = _Threads(), threading.Event()
    thread = threading.Thread(target=ends.wait, daemon=True)
    with contextlib.suppress(MemoryError), pool.starting():
        thread.start()
        raise MemoryError
    core = max(os.sched_getaffinity(0))
    pool.move_to((core,))
    assert os.sched_getaffinity(thread.native_id or 0) == {core}
    ends.set()
    thread.join()


def test_openvino_loads_though_the_cores_of_the_start_were_taken_away() -> None:
    before = os.sched_getaffinity(0)
    load_for_all_of({NO_CORE})
    assert os.sched_getaffinity(0) == before


@two_cores
@pytest.mark.parametrize("engine", ["openvino", "onnxruntime-spin"])
def test_a_team_has_the_cores_of_all_its_places(tmp_path: Path, engine: StageEngine) -> None:
    compiled = compile_model(residual(tmp_path))
    with arena_for(compiled) as arena, worker(compiled, arena) as (channel, pid):
        arena.set_speed(0, 1.0)
        (inputs,), talk = fill(arena, compiled), Talk(channel)
        answer = talk.ask(order_on(engine, compiled, CORES))
        assert isinstance(answer, Prepared), answer
        for _ in range(20):
            talk.run(1, 0, 0)
        assert_close(outputs_in(arena, 0, compiled), plainly(compiled, inputs))
        cores = [thread_cores for thread_cores, _, _ in threads_of(pid).values()]
        assert {CORES[0]} in cores  # the caller's
        assert {CORES[1]} in cores  # the other one's, which the engine has made
        assert os.sched_getaffinity(pid) == {CORES[0]}


def test_an_engine_that_computes_something_else_does_not_serve(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Its form of the network is made of another file here: that with other weights."""
    compiled = compile_model(residual(tmp_path))
    other = onnx.load(compiled.model_folder / "clean.onnx")
    for constant in other.graph.initializer:
        array = onnx.numpy_helper.to_array(constant)
        constant.CopyFrom(onnx.numpy_helper.from_array(np.asarray(array * 1.01, array.dtype), constant.name))
    folder = tmp_path_factory.mktemp("other")
    onnx.save(other, folder / "clean.onnx")
    with arena_for(compiled) as arena, worker(compiled, arena, model_folder=folder) as (channel, _):
        answer = Talk(channel).ask(order_on("openvino", compiled))
    assert isinstance(answer, PrepareFailed)
    assert "OpenVINO computes this" in answer.reason
    assert "of an output's largest value" in answer.reason


def test_how_far_answers_lie_apart() -> None:
    right: Arrays = {"y": np.array([1.0, -4.0], np.float32), "i": np.arange(2000), "none": np.zeros((0, 3), np.float32)}
    assert how_far_apart(right, right) == Apart(0.0, 0.0, 0.0)
    assert how_far_apart(right | {"y": right["y"] + np.float32(0.5)}, right) == Apart(0.125, 0.0, 0.125 / MOST_APART)
    assert how_far_apart(right | {"i": right["i"][::-1]}, right).unlike == 1.0
    assert how_far_apart({"y": right["y"]}, {"y": right["y"]}) == Apart(0.0, None, 0.0)
    for wrong, said in ((np.zeros(3, np.float32), "expected"), (np.array([1, np.inf], np.float32), "finite")):
        with pytest.raises(ValueError, match=said):
            how_far_apart(right | {"y": wrong}, right)
    both_infinite: Arrays = {"y": np.array([1.0, np.inf], np.float32)}
    assert how_far_apart(both_infinite, both_infinite).difference == 0.0


def test_what_stands_for_reals_may_be_a_step_off() -> None:
    right: Arrays = {"q": np.array([0, 200, 255], np.uint8), "b": np.array([True, False, False])}
    assert how_far_apart(right | {"q": np.array([1, 199, 255], np.uint8)}, right).unlike == 0.0
    assert how_far_apart(right | {"q": np.array([0, 200, 0], np.uint8)}, right).unlike == pytest.approx(1 / 3)
    assert how_far_apart(right | {"b": ~right["b"]}, right).unlike == 1.0


def test_infinities_are_right_where_they_are_the_same() -> None:
    right: Arrays = {"y": np.array([1.0, np.inf, np.nan], np.float32)}
    for wrong in ([1.0, -np.inf, np.nan], [1.0, np.inf, 1.0], [np.nan, np.inf, np.nan]):
        with pytest.raises(ValueError, match="finite elsewhere"):
            how_far_apart({"y": np.array(wrong, np.float32)}, right)


def test_nans_alone_are_no_comparison() -> None:
    nothing: Arrays = {"y": np.full(3, np.nan, np.float32)}
    assert how_far_apart(nothing, nothing) == Apart()


def test_what_hardly_other_inputs_change_says_nothing() -> None:
    right: Arrays = {"y": np.array([1e-6, 0.0]), "i": np.array([3, 4])}
    near: Arrays = {"y": np.array([1e-6, 2e-8]), "i": np.array([3, 5])}
    other: Arrays = {"y": np.array([1.01e-6, 1e-8]), "i": np.array([3, 6])}
    apart, explained = how_far_apart(other, right), how_far_apart(other, right, near)
    assert apart.difference == pytest.approx(0.01)
    assert explained.difference == apart.difference
    assert (apart.over_rounding, explained.over_rounding) == pytest.approx((0.01 / MOST_APART, 0.5))
    assert (apart.unlike, explained.unlike) == (0.5, 0.0)
    assert why_apart(*explained) == ""
    assert why_apart(*how_far_apart(other | {"y": np.array([1.03e-6, 0.0])}, right, near))
    assert how_far_apart(other | {"i": np.array([2, 4])}, right, near).unlike == 0.5


def test_a_step_of_a_quantised_output_is_as_long_as_another() -> None:
    """As floats the steps are not quite equal, by which an engine was refused."""
    right, near, other = ({"y": np.array(steps, np.float32) * np.float32(0.1)} for steps in ([5, 0], [4, 0], [5, 1]))
    apart = how_far_apart(other, right, near)
    assert apart.over_rounding is not None
    assert 1 < apart.over_rounding < 1.0001
    assert why_apart(*apart) == ""


def test_moved_inputs_are_hardly_others() -> None:
    inputs: Arrays = {
        "x": np.linspace(-4, 4, 100, dtype=np.float32),
        "half": np.linspace(1, 2, 100, dtype=np.float16),
        "i": np.arange(5),
        "one": np.array(2.0, np.float32),
    }
    changed = moved(inputs)
    assert all(isinstance(values, np.ndarray) for values in changed.values())
    assert all(changed[name].dtype == values.dtype for name, values in inputs.items())
    np.testing.assert_array_equal(changed["i"], inputs["i"])
    np.testing.assert_allclose(changed["x"], inputs["x"], rtol=2.0**-15)
    for name in ("x", "half"):
        assert (changed[name] != inputs[name]).mean() > 0.5


def test_rounding_is_allowed_and_no_more() -> None:
    assert why_apart(0.5, MOST_UNLIKE, 1.0) == why_apart(None, None, None) == ""
    assert "largest value" in why_apart(0.5, None, 1.01)
    assert "whole numbers" in why_apart(0.0, 1.01 * MOST_UNLIKE, 0.0)
