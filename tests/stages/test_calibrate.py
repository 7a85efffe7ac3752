"""Real calibrations: of their structure and of what is kept, never of the times themselves."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import psutil
import pytest
from onnx import helper

from shisha_rt.cache import cache_folder
from shisha_rt.costs.costs import Costs
from shisha_rt.costs.fit import spans_to_measure
from shisha_rt.costs.layer_costs import LayerCosts
from shisha_rt.costs.profiles import DISTURBED
from shisha_rt.errors import BadInput, Error, Failure
from shisha_rt.machine.config.machine_file import parse_machine
from shisha_rt.machine.host.cores import usable_cores
from shisha_rt.machine.machine import Machine
from shisha_rt.measure import profile
from shisha_rt.measure.compile import Tell, compile_model, read_compiled, silent
from shisha_rt.measure.compiled import Compiled
from shisha_rt.measure.model_on_machine import ModelOnMachine
from shisha_rt.measure.place_class import class_of
from shisha_rt.measure.profile import known_costs, profile_model
from shisha_rt.measure.sitting import Sitting, measure
from shisha_rt.messages.calibration import Calibrated, CalibrationJob, MeasuringJob, Progress
from shisha_rt.model.layers import operators_of
from shisha_rt.model.spans import groups_of, moved_bytes
from shisha_rt.model.zoo import zoo_path
from shisha_rt.process.child import Child, start_child
from shisha_rt.process.job import run_job
from stages.engines.onnxruntime.parts import PARTS_FILE
from stages.jobs.calibrate import standing
from tests.commands import command_of
from tests.model.networks import network, weight, write
from tests.stages.test_segments import residual
from tests.waiting import until
from tests.wording import raised

CORE = usable_cores()[0]
_LOST = 1023  # more than hosts have
_PR_SET_CHILD_SUBREAPER = 36


@pytest.fixture(scope="module")
def of_residual(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return compile_model(residual(tmp_path_factory.mktemp("residual")))


@pytest.fixture
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own for profiles; models may be compiled before, in the usual one."""
    (tmp_path / "cache" / "shisha-rt").mkdir(parents=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "shisha-rt" / "profiles.sqlite"


def decode(line: bytes) -> Progress | Calibrated:
    return msgspec.json.decode(line, type=Progress | Calibrated)


def paper_machine(*speeds: float, extra: str = "") -> Machine:
    """Places on this host's first core, as far as they can be told from the file."""
    places = [f'[[place]]\nname = "p{i}"\ncore_count = 1\nspeed = {speed}\n' for i, speed in enumerate(speeds)]
    return parse_machine(extra + "".join(places), name="paper", source="paper.toml")


_ATTEMPTS = 5
_ROOM_FOR_ONE_REPORT = 64  # its line has 37 to 57 bytes


@contextlib.contextmanager
def busy(core: int) -> Iterator[None]:
    """Meanwhile another program wants this core all the time: an orphan, as what we have started counts as ours.

    So this process must not take orphans in, as it does after some other tests.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 0)
    apart = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nif pid := os.fork(): print(pid), sys.exit()"
    code = f"{apart}\nos.close(1)\nwhile True: pass"
    started = subprocess.run([sys.executable, "-c", code, str(core)], stdout=subprocess.PIPE, check=True)
    try:
        yield
    finally:
        os.kill(int(started.stdout), signal.SIGKILL)


def calibrate(job: CalibrationJob) -> list[Progress | Calibrated]:
    lines: list[bytes] = []
    run_job("stages.jobs.calibrate", msgspec.json.encode(job).decode(), failed="it failed", hear=lines.append)
    return [decode(line) for line in lines]


@contextlib.contextmanager
def between_reports(module: str, job: MeasuringJob) -> Iterator[tuple[Child, Callable[[], list[bytes]]]]:
    """The process of a job after its first report, and its lines: until they are asked for, the second does not fit."""
    ours, theirs = os.pipe()
    with os.fdopen(ours, "rb") as said:
        with os.fdopen(theirs, "wb", buffering=0) as pipe:
            filled = fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 4096) - _ROOM_FOR_ONE_REPORT
            pipe.write(filled * b"\n")
            child = start_child(module, msgspec.json.encode(job).decode(), stdout=pipe)
        try:
            until(lambda: _waiting_bytes(ours) > filled, "the first report")
            yield child, lambda: said.read().split()
        finally:
            child.end()


def _waiting_bytes(pipe: int) -> int:
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def job_of(compiled: Compiled, spans: Sequence[tuple[int, int]], threads: int = 1) -> CalibrationJob:
    cores = usable_cores()[:threads]
    folder = str(compiled.engine_folder)
    return CalibrationJob(
        engine_folder=folder,
        cores=cores,
        threads=threads,
        spans=tuple(spans),
        budget_s=0.2,
        min_rounds=3,
        max_rounds=20,
    )


def test_every_span_is_measured_and_progress_only_grows() -> None:
    compiled = compile_model(zoo_path("squeezenet"))
    last = len(compiled.layers) - 1
    spans = [(0, last), (0, 3), (4, last), (last, last)]
    *progress, answer = calibrate(job_of(compiled, spans))
    ratios = [line.done_ratio for line in progress if isinstance(line, Progress)]
    assert len(ratios) == len(progress) >= 3
    assert ratios == sorted(ratios)
    assert ratios[-1] == 1
    assert isinstance(answer, Calibrated)
    assert len(answer.times) == len(spans)
    for time in answer.times:
        assert time.cpu_s > 0
        assert time.wall_s > 0
        assert time.spread_s >= 0
        assert time.runs == len(progress)
    assert answer.times[0].cpu_s > answer.times[-1].cpu_s  # the whole network, and its last layer


def test_a_run_moves_what_the_cleaned_graph_says() -> None:
    """But for channels that the engine pads."""
    compiled = compile_model(zoo_path("squeezenet"))
    spans = spans_to_measure(groups_of(len(compiled.layers), compiled.legal_cuts))
    *_, answer = calibrate(job_of(compiled, spans))
    assert isinstance(answer, Calibrated)
    for (first, last), time in zip(spans, answer.times, strict=True):
        expected = moved_bytes(compiled.model.graph, *operators_of(compiled.layers, first, last))
        assert time.moved_bytes == pytest.approx(expected, rel=0.01), (first, last)


def test_runs_of_several_frames() -> None:
    compiled = compile_model(zoo_path("squeezenet"))
    last = len(compiled.layers) - 1
    job = job_of(compiled, [(0, last), (last, last)])
    (*_, alone), (*_, four) = calibrate(job), calibrate(msgspec.structs.replace(job, frames=4))
    assert isinstance(alone, Calibrated)
    assert isinstance(four, Calibrated)
    for single, run in zip(alone.times, four.times, strict=True):
        assert run.cpu_s > single.cpu_s
        assert run.moved_bytes > single.moved_bytes


@pytest.mark.skipif(len(usable_cores()) < 2, reason="needs two cores")
def test_two_threads() -> None:
    compiled = compile_model(zoo_path("squeezenet"))
    *_, answer = calibrate(job_of(compiled, [(0, len(compiled.layers) - 1)], threads=2))
    assert isinstance(answer, Calibrated)
    assert answer.times[0].cpu_s > 0


@pytest.mark.parametrize(
    "lost",
    [
        {"cores": (_LOST,)},
        {"cores": (CORE, _LOST), "lead": (CORE,), "threads": 2},
        {"cores": (CORE, _LOST), "lead": (_LOST,), "threads": 2},
        {"neighbours": (_LOST,)},
    ],
)
def test_nothing_is_measured_on_other_cores(of_residual: Compiled, lost: dict[str, Any]) -> None:
    """A control group may lose cores between a job's start and its order; a team's times would be those of fewer."""
    job = msgspec.structs.replace(job_of(of_residual, [(0, 0)]), **lost)
    with raised(Failure, Error.FAILED, match=str(_LOST)):
        measure("it", "stages.jobs.calibrate", job, Calibrated, silent)


def test_cores_that_are_lost_meanwhile_end_a_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    may = {CORE}
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cores: None)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: may)
    job = CalibrationJob(engine_folder="", cores=(CORE,), threads=1, spans=(), budget_s=0, min_rounds=0, max_rounds=0)
    with standing(job):
        pass
    with raised(Failure, Error.FAILED, match=str(CORE)), standing(job):
        may.clear()


def costs_of(compiled: Compiled, machine: Machine) -> Costs:
    """Measured if need be."""
    return LayerCosts(profile_model(ModelOnMachine(compiled, machine)), machine).costs()


def at_work(folder: Path) -> list[int]:
    """Processes that run the model in `folder` as neighbours of a calibration."""
    pids = []
    for process in psutil.process_iter():
        line = command_of(process)
        if "stages.jobs.neighbour" in line and str(folder) in line[-1]:
            pids.append(process.pid)
    return pids


@pytest.mark.skipif(len(usable_cores()) < 2, reason="needs two cores")
@pytest.mark.parametrize("killed", [False, True])
def test_neighbours_are_at_work_meanwhile_and_never_longer(of_residual: Compiled, killed: bool) -> None:
    compiled = of_residual
    job = msgspec.structs.replace(job_of(compiled, [(0, 0)]), neighbours=usable_cores()[1:2])
    with between_reports("stages.jobs.calibrate", job) as (child, lines):
        (neighbour,) = at_work(compiled.engine_folder)
        if killed:
            child.kill()
        else:
            *progress, answer = map(decode, lines())
            assert progress
            assert isinstance(answer, Calibrated)
    until(lambda: at_work(compiled.engine_folder) == [], f"the end of neighbour {neighbour}")


def test_a_second_start_measures_nothing(
    of_residual: Compiled, own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = of_residual
    machine = paper_machine(1.0, 0.5)
    progress: list[str] = []
    first = profile_model(ModelOnMachine(compiled, machine), Sitting(progress.append))
    assert "measuring the layers" in progress[0]
    assert progress[-1].endswith(": 100%")
    assert own_store.is_file()
    monkeypatch.setattr(profile, "measure", None)  # whoever calls it fails
    progress.clear()
    second = profile_model(ModelOnMachine(compiled, machine), Sitting(progress.append))
    assert progress == []
    np.testing.assert_array_equal(first.times["p1"].cpu_s, second.times["p1"].cpu_s)
    assert first.times["p0"] is first.times["p1"]  # one class of places, measured once


def test_what_frames_take_that_share_a_run(own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a network whose last layer mixes frames."""
    compiled, machine = compile_model(mixing_at_the_end(tmp_path)), paper_machine(1.0, 0.5)
    costs = LayerCosts(profile_model(ModelOnMachine(compiled, machine), batches=(4, 8)), machine).costs()
    assert [batch.frames for batch in costs.batches] == [4, 8]
    for batch in costs.batches:
        assert np.isnan(batch.time_s).tolist() == [[False, False], [True, True]]
        np.testing.assert_allclose(batch.time_s[0, 1] / costs.time_s[0, 1], batch.time_s[0, 0] / costs.time_s[0, 0])
    monkeypatch.setattr(profile, "measure", None)  # whoever calls it fails
    again = LayerCosts(profile_model(ModelOnMachine(compiled, machine), batches=(4, 8)), machine).costs()
    np.testing.assert_array_equal(again.batches[1].time_s, costs.batches[1].time_s)
    assert LayerCosts(profile_model(ModelOnMachine(compiled, machine)), machine).costs().batches == ()


def mixing_at_the_end(folder: Path) -> Path:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], name="conv"),
        helper.make_node("Conv", ["a", "w"], ["b"], name="mixed"),
        helper.make_node("ReduceMean", ["b"], ["y"], name="mean", axes=[0], keepdims=1),
    ]
    shape = (1, 16, 4, 4)
    return write(network(nodes, {"x": shape}, {"y": shape}, {"w": weight(16, 16, 1, 1)}), folder)


def test_known_costs_are_those_that_were_measured(own_store: Path, tmp_path: Path) -> None:
    compiled, machine = compile_model(repeating(tmp_path / "a", "a", 3)), paper_machine(1.0)
    assert known_costs(ModelOnMachine(compiled, machine)) is None
    measured, known = profile_model(ModelOnMachine(compiled, machine)), known_costs(ModelOnMachine(compiled, machine))
    assert known is not None
    np.testing.assert_array_equal(known.times["p0"].cpu_s, measured.times["p0"].cpu_s)
    saved = read_compiled(compiled.model.name, compiled.model_folder, compiled.engine_folder)
    assert known_costs(ModelOnMachine(saved, machine)) is not None, (
        "another process finds them under the same fingerprints"
    )


@pytest.mark.skipif(len(usable_cores()) < 2, reason="a team has two cores")
def test_a_team_is_left_out_where_others_have_its_cores(own_store: Path, tmp_path: Path) -> None:
    """By the clock it would seem slower for good. What one thread takes is kept whatever goes on beside it."""
    text = "".join(f'[[place]]\nname = "p{core}"\ncores = [{core}]\n' for core in usable_cores()[:2])
    compiled, machine = (
        compile_model(repeating(tmp_path / "a", "a", 3)),
        parse_machine(text, name="two", source="two.toml"),
    )
    with busy(usable_cores()[1]):
        raw = profile_model(ModelOnMachine(compiled, machine, teams=True), Sitting(beside=os.getpid()))
    assert (len(raw.times), raw.teams) == (2, {})
    assert known_costs(ModelOnMachine(compiled, machine, teams=False)) is not None
    assert known_costs(ModelOnMachine(compiled, machine, teams=True)) is None


@pytest.mark.usefixtures("own_store")
def test_layers_that_cannot_be_parted_are_one_group(of_residual: Compiled) -> None:
    compiled = of_residual
    machine = paper_machine(1.0, 0.5)
    raw = profile_model(ModelOnMachine(compiled, machine))
    assert raw.groups == ((0, 0), (1, 2), (3, 3))
    costs = LayerCosts(raw, machine).costs()
    assert costs.legal_cuts == compiled.legal_cuts
    assert (costs.time_s > 0).all()
    ratio = costs.time_s[1, 0] / costs.time_s[2, 0]
    assert ratio == pytest.approx(compiled.layers[1].weight / compiled.layers[2].weight)
    np.testing.assert_allclose(costs.time_s[:, 1], 2 * costs.time_s[:, 0])


def repeating(folder: Path, name: str, count: int) -> Path:
    """`count` equal convolutions in a chain, then a pooling that makes the last one different."""
    nodes = [
        helper.make_node("Conv", [f"t{i}", "w"], [f"t{i + 1}"], name=f"{name}{i}", pads=[1, 1, 1, 1])
        for i in range(count)
    ]
    nodes.append(helper.make_node("GlobalAveragePool", [f"t{count}"], ["y"]))
    folder.mkdir()
    return write(network(nodes, {"t0": [1, 16, 8, 8]}, {"y": [1, 16, 1, 1]}, {"w": weight(16, 16, 3, 3)}), folder)


def test_equal_layers_are_measured_once_also_across_models(
    own_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def counting(subject: str, module: str, job: CalibrationJob, answer: type[Calibrated], tell: Tell) -> Calibrated:
        asked.append(len(job.spans))
        return measure(subject, module, job, answer, tell)

    monkeypatch.setattr(profile, "measure", counting)
    machine = paper_machine(1.0)
    costs_of(compile_model(repeating(tmp_path / "a", "a", 8)), machine)
    costs_of(compile_model(repeating(tmp_path / "b", "b", 8)), machine)
    assert len(asked) == 1  # the other model's names differ, and nothing else
    compiled = compile_model(repeating(tmp_path / "c", "c", 9))
    costs_of(compiled, machine)
    all_spans = spans_to_measure(groups_of(9, compiled.legal_cuts))
    assert len(asked) == 2
    assert asked[0] < len(all_spans)
    assert asked[1] < asked[0]


def test_a_model_of_one_layer(own_store: Path, tmp_path: Path) -> None:
    model = network([helper.make_node("Relu", ["x"], ["y"])], {"x": [1, 4]}, {"y": [1, 4]})
    path = tmp_path / "relu.onnx"
    onnx.save(model, path)
    costs = costs_of(compile_model(path), paper_machine(1.0))
    assert costs.time_s.shape == (1, 1)
    assert costs.time_s[0, 0] > 0
    assert costs.transfer_s.shape == (0,)


def test_failure_carries_the_childs_last_words(own_store: Path, tmp_path: Path) -> None:
    compiled = compile_model(residual(tmp_path))
    (compiled.engine_folder / PARTS_FILE).write_bytes(b"\xff damaged")
    with pytest.raises(Failure, match=r"not be measured: .*Error"):
        profile_model(ModelOnMachine(compiled, paper_machine(1.0)))


@pytest.mark.usefixtures("own_store")
def test_more_threads_than_this_host_has(of_residual: Compiled) -> None:
    compiled = of_residual
    machine = parse_machine('[[place]]\nname = "big"\ncore_count = 4096\n', name="big", source="big.toml")
    with pytest.raises(BadInput, match=r"big\.toml: place big: threads = 4096: cannot be measured"):
        costs_of(compiled, machine)


def test_the_cache_is_where_it_is_said_to_be(own_store: Path) -> None:
    assert own_store.parent == cache_folder()


@pytest.mark.skipif(len(usable_cores()) < 2, reason="needs two cores")
@pytest.mark.usefixtures("own_store")
def test_a_team_is_measured_once_and_only_if_asked_for(of_residual: Compiled, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = of_residual
    machine = paper_machine(1.0, 1.0, 0.5, 1.0)
    jobs: list[CalibrationJob] = []

    def noting(subject: str, module: str, job: CalibrationJob, answer: type[Calibrated], tell: Tell) -> object:
        jobs.append(job)
        return measure(subject, module, job, answer, tell)

    monkeypatch.setattr(profile, "measure", noting)
    assert profile_model(ModelOnMachine(compiled, machine)).teams == {}
    raw = profile_model(ModelOnMachine(compiled, machine, teams=True))
    sizes = [size for size in (2, 3) if size <= len(usable_cores())]
    assert list(raw.teams) == [("p0", "p1", "p3")[:size] for size in sizes]
    assert [job.threads for job in jobs] == [1, *sizes]
    for job, times in zip(jobs[1:], raw.teams.values(), strict=True):
        assert job.cores == usable_cores()[: job.threads]
        assert job.lead == job.cores[:1]
        assert times.threads == job.threads
    assert jobs[0].lead == ()
    costs = LayerCosts(raw, machine).costs()
    assert [team.places for team in costs.teams] == list(raw.teams)
    assert all((team.time_s > 0).all() for team in costs.teams)
    again = profile_model(ModelOnMachine(compiled, machine, teams=True))
    assert len(jobs) == 1 + len(sizes)
    for team, times in raw.teams.items():
        np.testing.assert_array_equal(again.teams[team].wall_s, times.wall_s)


def test_what_was_measured_beside_others_says_so_and_can_be_measured_again(own_store: Path, tmp_path: Path) -> None:
    """However busy this host is: a program that wants the core all the time takes half of it, at least.

    The kernel counts in ticks of 10 ms, and what we run elsewhere meanwhile counts as if it ran there: so for a while,
    and, as a quick host may be done before the ticks say it, more than once.
    """
    compiled, machine = compile_model(repeating(tmp_path / "a", "a", 3)), paper_machine(1.0)
    core = class_of(machine.places[0], machine, compiled).cores[0]
    for _ in range(_ATTEMPTS):
        own_store.unlink(missing_ok=True)
        with busy(core):
            raw = profile_model(ModelOnMachine(compiled, machine))
        if raw.others_ratio > DISTURBED:
            break
    assert raw.others_ratio > DISTURBED
    progress: list[str] = []
    assert profile_model(ModelOnMachine(compiled, machine), Sitting(progress.append)).others_ratio == raw.others_ratio
    assert progress == []  # it is used until there is a better one
    assert (
        profile_model(ModelOnMachine(compiled, machine), Sitting(progress.append, renew=True)).others_ratio
        <= raw.others_ratio
    )
    assert progress
