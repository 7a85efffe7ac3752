"""Engines really tried on small networks: what comes of each, never the times themselves."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Any

import msgspec
import onnx
import psutil
import pytest
from onnx import TensorProto, helper

from shisha_rt.costs.engine_trials import EnginesTried, usable, why_not
from shisha_rt.errors import Failure
from shisha_rt.machine.host.cores import usable_cores
from shisha_rt.machine.host.processor import has_bfloat16
from shisha_rt.measure.compile import compile_model
from shisha_rt.measure.compiled import Compiled
from shisha_rt.measure.installed import installed_engines
from shisha_rt.measure.shapes import compile_shapes
from shisha_rt.messages import try_engines as te
from shisha_rt.messages.calibration import Progress
from shisha_rt.messages.try_engines import EnginesJob
from shisha_rt.model.input_sizes import InputSizes
from shisha_rt.model.zoo import zoo_path
from shisha_rt.process.channel import Channel, OtherEndGone
from shisha_rt.process.job import how_ended
from stages.engines.onnxruntime.versions import newest_taken
from stages.jobs import one_engine
from stages.jobs.try_engines import _Process, try_engines
from tests.commands import command_of
from tests.model.int8 import qdq_network
from tests.model.networks import network, odd_network, weight, write
from tests.processor import X86
from tests.real import REAL
from tests.stages.test_calibrate import CORE, busy
from tests.stages.test_profile_devices import WITHOUT_OPENVINO
from tests.stages.test_segments import residual
from tests.wild.odd_networks import SERVED, thresholds_as_inputs

EXACT = installed_engines()
WINDOWED = 25  # the first opset whose attention may look at some of the keys alone


def job_of(compiled: Compiled, threads: int = 1, **changed: Any) -> EnginesJob:
    cores = usable_cores()[:threads]
    job = EnginesJob(
        cores=cores,
        threads=threads,
        lead=cores[:1] if threads > 1 else (),
        folders=tuple((str(shape.model_folder), str(shape.engine_folder)) for shape in compiled.each),
        engines=EXACT,
        family=os.getpid(),
        budget_s=0.1,
        min_rounds=3,
        max_rounds=10,
    )
    return msgspec.structs.replace(job, **changed)


def tried(job: EnginesJob) -> EnginesTried:
    """Progress only grows."""
    ratios: list[float] = []
    answer = try_engines(job, lambda progress: ratios.append(progress.done_ratio))
    assert ratios == sorted(ratios)
    return answer


@pytest.mark.parametrize(("before", "after"), [("0\n", "1000"), (None, None)])
def test_an_engine_is_killed_first_unless_a_sandbox_has_no_scores(
    before: str | None, after: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There every trial died at its start, and nothing was tuned."""
    score = tmp_path / "proc" / "oom_score_adj"
    if before is not None:
        score.parent.mkdir()
        score.write_text(before)

    def here(path: Path) -> Path:
        return score if path.name == score.name else path

    read, write = Path.read_text, Path.write_text
    monkeypatch.setattr(Path, "read_text", lambda path: read(here(path)))
    monkeypatch.setattr(Path, "write_text", lambda path, text: write(here(path), text))
    channel, theirs = Channel.pair()
    channel.close()
    with contextlib.closing(Channel.inherited(theirs.detach())) as line:
        monkeypatch.setattr(one_engine, "line_to_parent", lambda _: line)
        with pytest.raises(OtherEndGone):  # it gets as far as to wait for its network
            one_engine.main([])
    assert (score.read_text() if score.exists() else None) == after


def compiled_tiny(model: onnx.ModelProto, folder: Path) -> Compiled:
    return compile_model(write(model, folder))


@pytest.mark.parametrize("threads", sorted({1, min(2, len(usable_cores()))}))
def test_engines_agree_and_are_timed_in_turns(threads: int, tmp_path: Path) -> None:
    trials = tried(job_of(compile_model(residual(tmp_path)), threads))
    assert [trial.engine for trial in trials.engines] == list(EXACT)
    assert usable(trials) == tuple(EXACT)
    for trial in trials.engines:
        (time,) = trial.times
        assert time.threads == threads
        assert time.runs >= 3
        assert min(time.wall_s, time.cpu_s, trial.build_s, trial.private_bytes) > 0
    right, *others = trials.engines
    assert (right.difference, right.unlike) == (None, None)
    assert all(trial.difference is not None and trial.difference < 1e-5 for trial in others)


def test_runs_of_several_frames_are_timed_on_each_engine(tmp_path: Path) -> None:
    for trial in tried(job_of(compile_model(residual(tmp_path)), batch=4)).engines:
        (together,) = trial.batch_times
        assert together.frames == 4
        assert trial.gain_of_batches > together.gain > 0, "of so small a network what a run costs is most of it"
        assert trial.private_bytes_of(8) >= trial.private_bytes_of(4) >= trial.private_bytes > 0


def test_a_network_that_mixes_frames_has_no_runs_of_several(tmp_path: Path) -> None:
    """Forced on it here, it is seen by its answers, and the engine stays usable."""
    mean = helper.make_node("ReduceMean", ["x"], ["y"], axes=[0], keepdims=1)
    trials = tried(job_of(compiled_tiny(network([mean], {"x": [1, 3, 4, 4]}, {"y": [1, 3, 4, 4]}), tmp_path), batch=4))
    assert usable(trials)[0] == "onnxruntime"
    assert not any(trial.batch_times for trial in trials.engines)


@pytest.mark.skipif(not has_bfloat16(), reason="this processor has neither AVX-512 BF16 nor AMX")
def test_bfloat16_is_tried_beside_the_others_and_its_answers_differ_more(tmp_path: Path) -> None:
    answer = tried(job_of(compile_model(residual(tmp_path)), engines=installed_engines("any"), batch=4))
    _, exact, coarse = answer.engines
    assert usable(answer) == ("onnxruntime", "openvino", "openvino_bf16")
    assert (exact.difference or 0.0) < 1e-3 < (coarse.difference or 0.0)
    assert coarse.times
    assert coarse.batch_times


@WITHOUT_OPENVINO
def test_a_model_in_several_shapes_is_tried_in_each(tmp_path: Path) -> None:
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"], pads=[1] * 4), helper.make_node("Relu", ["a"], ["y"])]
    path = write(network(nodes, {"x": [1, 4, "h", 8]}, {"y": [1, 4, "h", 8]}, {"w": weight(4, 4, 3, 3)}), tmp_path)
    both = compile_shapes(path, [InputSizes({"h": 8}), InputSizes({"h": 16})])
    assert len(job_of(both).folders) == 2
    trials = tried(job_of(both))
    assert [len(trial.times) for trial in trials.engines] == [1, 1]
    assert usable(trials) == tuple(EXACT)


@WITHOUT_OPENVINO
def test_what_an_engine_does_not_run_is_an_outcome(tmp_path: Path) -> None:
    right, other = tried(job_of(compiled_tiny(odd_network(), tmp_path))).engines
    assert (right.runs, len(right.times)) == (True, 1)
    assert (other.runs, other.times) == (False, ())
    assert "Det" in why_not(other)


@WITHOUT_OPENVINO
def test_thresholds_and_divisors_that_noise_does_not_hit(tmp_path: Path) -> None:
    right, _ = tried(job_of(compiled_tiny(thresholds_as_inputs(), tmp_path))).engines
    assert right.runs
    assert not right.reason


def test_of_a_long_refusal_the_cause_is_told() -> None:
    """As OpenVINO refuses a node whose inputs it names: it was cut before the cause."""
    where = ["Exception from src/core/node.cpp:1:", "Check 'a < b' failed at src/op.cpp:2:", f"While {'x' * 300}:"]
    assert (
        one_engine._in_a_line(RuntimeError("\n".join([*where, "Axis 5 out of range.", ""]))) == "Axis 5 out of range."
    )
    assert len(one_engine._in_a_line(RuntimeError("y" * 300))) == 200
    assert one_engine._in_a_line(RuntimeError("a\n b")) == "a b"
    assert one_engine._in_a_line(RuntimeError("\n".join([*where, "Summary:", "-- If-13", ""]))) == "If-13"


@WITHOUT_OPENVINO
def test_outputs_as_large_as_the_data_makes_them_are_left_to_onnxruntime(tmp_path: Path) -> None:
    right, other = tried(job_of(compiled_tiny(SERVED["suppressed_boxes"](), tmp_path))).engines
    assert len(right.times) == 1
    assert (other.runs, other.build_s) == (False, 0.0)
    assert why_not(other).endswith("depends on the data")


@WITHOUT_OPENVINO
def test_an_engine_that_dies_of_it_costs_no_other_its_figures(tmp_path: Path) -> None:
    before = psutil.Process().children()

    def end_the_last(_: Progress) -> None:
        new = [child for child in psutil.Process().children() if child not in before]
        engines = [child for child in new if "stages.jobs.one_engine" in command_of(child)]
        for child in sorted(engines, key=lambda child: child.pid)[1:]:
            child.kill()

    right, other = try_engines(job_of(compile_model(residual(tmp_path))), end_the_last).engines
    assert right.times[0].runs >= 3
    assert (other.runs, other.times) == (False, ())
    assert "SIGKILL" in why_not(other)


def test_a_process_that_dies_of_runs_of_several_frames_costs_its_engine_those_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = _Process.ask

    def killed_first(process: Any, message: te.ToEngine, answer: type[Any]) -> Any:
        if isinstance(message, te.TimeFrames) and message.together:
            process._child.kill()
        return ask(process, message, answer)

    monkeypatch.setattr(_Process, "ask", killed_first)
    trials = tried(job_of(compile_model(residual(tmp_path)), batch=4))
    assert usable(trials) == tuple(EXACT)
    for trial in trials.engines:
        assert trial.times[0].runs >= 3
        assert not trial.batch_times


@WITHOUT_OPENVINO
def test_a_process_that_hangs_in_batches_costs_its_engine_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = _Process.ask

    def stopped(process: Any, message: te.ToEngine, answer: type[Any]) -> Any:
        if isinstance(message, te.TimeFrames) and message.together and process is processes[-1]:
            os.kill(process._child.pid, signal.SIGSTOP)
            process.limit_s = 0.5
        elif process not in processes:
            processes.append(process)
        return ask(process, message, answer)

    processes: list[Any] = []
    monkeypatch.setattr(_Process, "ask", stopped)
    right, other = tried(job_of(compile_model(residual(tmp_path)), batch=4)).engines
    assert len(right.batch_times) == 1
    assert why_not(other) == how_ended(None)


@WITHOUT_OPENVINO
def test_an_engine_whose_answers_nothing_could_be_compared_with_is_not_for_it(tmp_path: Path) -> None:
    """0 / 0 in each answer: one that computes something else is not noticed by that."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Sub", ["c", "c"], ["none"]),
        helper.make_node("Div", ["none", "none"], ["y"]),
    ]
    model = network(nodes, {"x": [1, 8, 6, 6]}, {"y": [1, 8, 6, 6]}, {"w": weight(8, 8, 3, 3)})
    right, *others = tried(job_of(compiled_tiny(model, tmp_path))).engines
    assert why_not(right) == ""
    assert others
    assert all(why_not(trial) for trial in others)


@WITHOUT_OPENVINO
def test_other_answers_are_not_right_however_fast(tmp_path: Path) -> None:
    """As if the engine had computed with other weights."""
    models = []
    for seed in range(2):
        folder = tmp_path / str(seed)
        folder.mkdir()
        weights = {"w": weight(4, 4, 3, 3, seed=seed)}
        nodes = [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4)]
        model = network(nodes, {"x": [1, 4, 8, 8]}, {"y": [1, 4, 8, 8]}, weights)
        models.append(compiled_tiny(model, folder))
    folders = (str(models[1].model_folder), str(models[0].engine_folder))
    trials = tried(job_of(models[0], folders=(folders,)))
    right, other = trials.engines
    assert usable(trials) == ("onnxruntime",)
    assert other.difference is not None
    assert other.difference > 0.1
    assert (len(right.times), other.times) == (1, ())


@WITHOUT_OPENVINO
@X86
def test_integers_that_an_engine_saturates_are_not_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On processors without VNNI; on others OpenVINO can be kept from it."""
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    trials = tried(job_of(compiled_tiny(qdq_network(), tmp_path)))
    assert usable(trials) == ("onnxruntime",)
    assert "answers differ by" in why_not(trials.engines[1])


@WITHOUT_OPENVINO
@pytest.mark.skipif(newest_taken().opsets[""] < WINDOWED, reason="ONNX Runtime has no attention over a window")
def test_an_engine_is_tried_with_masks_that_hide_nothing(tmp_path: Path) -> None:
    """With masks that hide what is looked for every answer is 0; this engine passes over the window."""
    attention = helper.make_node("Attention", ["q", "k", "v", "mask"], ["y"], is_causal=1, left_window_size=2)
    shapes = {"q": [1, 3, 4, 8], "k": [1, 3, 6, 8], "v": [1, 3, 6, 8], "mask": [6]}
    model = network([attention], shapes, {"y": [1, 3, 4, 8]}, opset=WINDOWED)
    model.graph.input[3].type.tensor_type.elem_type = TensorProto.BOOL
    trials = tried(job_of(compiled_tiny(model, tmp_path)))
    assert usable(trials) == ("onnxruntime",)


@REAL
@WITHOUT_OPENVINO
def test_a_detector_that_sees_nothing_tells_rounding_from_errors() -> None:
    """Its answers to noise are near 0, where an engine has hardly a digit right."""
    small = InputSizes({"height": 64, "width": 128})
    trials = tried(job_of(compile_model(zoo_path("text_detector"), small)))
    assert usable(trials) == tuple(EXACT)


def test_where_onnxruntime_fails_nothing_is_told(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="4095"):
        try_engines(job_of(compile_model(residual(tmp_path)), cores=(4095,)), lambda _: None)


def test_beside_a_busy_daemon_times_are_given_up_and_answers_are_not(tmp_path: Path) -> None:
    compiled = compile_model(residual(tmp_path))
    with busy(CORE), busy(CORE):
        trials = tried(job_of(compiled, undisturbed=True, budget_s=2.0, min_rounds=5))
    assert all(trial.times == () and trial.runs for trial in trials.engines)
    assert all(trial.difference is not None for trial in trials.engines[1:])
