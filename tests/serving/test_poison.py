"""Frames that make an engine fail in every way harm themselves alone: one clear line each, and the others go on."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import psutil
import pytest

from shisha_rt.client import Answer, Client, Internal
from shisha_rt.errors import Error
from shisha_rt.plan.engine import StageEngine
from shisha_rt.plan.plan import Plan, Stage
from tests.machine.host.control_group import memory_group
from tests.serving.daemon_process import DaemonProcess, machine_file
from tests.serving.identity_model import LAYERS, frame_of
from tests.serving.load import PAUSE_S, Load, assert_kept
from tests.serving.page import shared_runs
from tests.serving.poison_model import (
    DEATH,
    FATAL,
    FLOATS,
    INDEX,
    NAME,
    TURNS,
    poison,
    write_fatal_model,
    write_poison_model,
)
from tests.waiting import PATIENCE_S, until
from tests.wording import raised, says

PLACES: Final = ("a", "b")
MOST: Final = 16
MAX_BYTES: Final = 300 << 20
SHARE_BYTES: Final = MAX_BYTES // len(PLACES)


def copies(engine: StageEngine = "onnxruntime") -> Plan:
    return Plan((Stage(((0, LAYERS - 1),), tuple((place,) for place in PLACES), engine=engine),))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    folder = tmp_path_factory.mktemp("poison")
    options = ("--machine", machine_file(folder, PLACES), "--max-worker-bytes", MAX_BYTES)
    with DaemonProcess(folder, write_poison_model(folder), *options) as process:
        yield process


@pytest.fixture
def daemon(running: DaemonProcess) -> DaemonProcess:
    for place in PLACES:
        running.control.call("place_set", place=place, up=True)
    running.wait_for_workers()
    assert running.control.set_plan(copies())["outcome"] == "live"
    return running


@pytest.fixture
def load(daemon: DaemonProcess) -> Iterator[Load]:
    with Load(daemon.endpoint, model_name=NAME, pause_s=PAUSE_S) as load:
        load.wait_for_answers(1)
        yield load
        load.wait_for_answers(50)
    assert_kept(load)


def restarts(daemon: DaemonProcess) -> int:
    return sum(place["restarts"] for place in daemon.control.status()["places"])


def said_last(daemon: DaemonProcess) -> str:
    return daemon.stderr().splitlines()[-1]


@pytest.mark.usefixtures("load")
@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_a_frame_that_asks_for_all_memory_is_told_of_the_limit(engine: StageEngine, daemon: DaemonProcess) -> None:
    if engine == "openvino":
        pytest.importorskip("openvino")
        assert daemon.control.set_plan(copies(engine))["outcome"] == "live"
    before = restarts(daemon)
    with Client(daemon.endpoint, timeout_s=PATIENCE_S) as client:
        for _ in PLACES:
            with raised(Internal, Error.TASK_FAILED) as caught:
                client.infer(poison(FLOATS, 4e8))
            assert caught.value.message == says("the frame asks … 300 MiB, … --max-worker-bytes …1600000000…")
            assert said_last(daemon).endswith(caught.value.message)
    assert restarts(daemon) == before


def test_what_a_frame_has_made_the_engine_keep_is_given_back(daemon: DaemonProcess) -> None:
    def private_bytes() -> int:
        return max(psutil.Process(pid).memory_full_info().uss for pid in daemon.wait_for_workers().values())

    before = private_bytes()
    with Client(daemon.endpoint, timeout_s=PATIENCE_S) as client:
        client.infer(poison(FLOATS, 5e7))
    until(lambda: private_bytes() < before + SHARE_BYTES, "what was kept")


@pytest.mark.usefixtures("load")
@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_what_the_engine_raises_is_a_line_and_no_answer(engine: StageEngine, daemon: DaemonProcess) -> None:
    """A run that fails leaves in its outputs what was there: that is nobody's answer."""
    order, amount = INDEX, 5.0
    if engine == "openvino":
        pytest.importorskip("openvino")
        assert daemon.control.set_plan(copies(engine))["outcome"] == "live"
        order, amount = FLOATS, 3e9  # which it takes for a size below 0
    with Client(daemon.endpoint, timeout_s=PATIENCE_S) as client, raised(Internal, Error.TASK_FAILED) as caught:
        client.infer(poison(order, amount))
    line = said_last(daemon)
    assert line.endswith(caught.value.message)
    assert ".cc:" not in line
    assert ".cpp:" not in line


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors do not trap")
def test_a_frame_that_ends_its_worker_each_time_is_told_how(daemon: DaemonProcess, load: Load) -> None:
    before = restarts(daemon)
    with Client(daemon.endpoint, timeout_s=PATIENCE_S) as client, raised(Internal, Error.WORKER_DIED, "SIGFPE"):
        client.infer(poison(DEATH, 1))
    assert restarts(daemon) == before + 2
    assert "SIGFPE" in said_last(daemon)
    assert load.codes.total() == 0


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors do not trap")
def test_a_frame_that_ends_its_worker_amid_fifteen_others_fails_alone(tmp_path: Path) -> None:
    options = ("--machine", machine_file(tmp_path, ["only"]), "--batch", MOST, "--batch-delay-us", 500_000)
    with DaemonProcess(tmp_path, write_fatal_model(tmp_path), *options) as daemon:
        daemon.wait_for_workers()
        last = daemon.control.plan()["stages"][-1]["last"]
        assert (
            daemon.control.set_plan([{"first": 0, "last": last, "places": ["only"], "batch": MOST}])["outcome"]
            == "live"
        )
        frames = [frame_of(number) for number in range(MOST)]
        frames[MOST // 2] = poison(DEATH, FATAL)
        with daemon.control.stream(in_flight=MOST) as stream:
            outcomes = list(stream.run(frames, errors="return"))
        failed = outcomes.pop(MOST // 2)
        del frames[MOST // 2]
        assert isinstance(failed, Internal)
        assert failed.kind == Error.WORKER_DIED
        for frame, outcome in zip(frames, outcomes, strict=True):
            assert isinstance(outcome, Answer)
            np.testing.assert_array_equal(outcome.output, frame)
        runs, answered = shared_runs(daemon.metrics)
        assert runs["0"] == answered["0"] == MOST - 1, "all shared the run that ended the worker: each ran alone then"
        assert restarts(daemon) == 2


def test_a_frame_that_never_ends_hangs_after_what_the_daemon_is_told(tmp_path: Path) -> None:
    options = ("--machine", machine_file(tmp_path, PLACES), "--hang-s", 0.3)
    with DaemonProcess(tmp_path, write_poison_model(tmp_path), *options) as daemon:
        daemon.wait_for_workers()
        assert daemon.control.set_plan(copies())["outcome"] == "live"
        with (
            Load(daemon.endpoint, model_name=NAME, pause_s=PAUSE_S) as load,
            Client(daemon.endpoint, timeout_s=PATIENCE_S) as client,
        ):
            with raised(Internal, Error.WORKER_DIED, "the limit is 0.3 s"):
                client.infer(poison(TURNS, 1e15))
            load.wait_for_answers(50)
        assert_kept(load)


@pytest.mark.long
def test_where_the_kernel_has_no_memory_left_it_ends_the_worker_and_that_is_told(tmp_path: Path) -> None:
    """The limit is more than there is. Also where filling the memory takes long, no frame counts as hung."""
    options = ("--machine", machine_file(tmp_path, PLACES), "--max-worker-bytes", 1 << 40, "--hang-s", PATIENCE_S)
    model = write_poison_model(tmp_path)
    with memory_group(640 << 20) as group:
        with group.entered():
            process = DaemonProcess(tmp_path, model, *options, is_program=True)
        with process as daemon:
            daemon.wait_for_workers()
            assert daemon.control.set_plan(copies())["outcome"] == "live"
            with (
                Load(daemon.endpoint, model_name=NAME, pause_s=PAUSE_S) as load,
                Client(daemon.endpoint, timeout_s=PATIENCE_S) as client,
            ):
                with raised(Internal, Error.WORKER_DIED, "SIGKILL.*--max-worker-bytes"):
                    client.infer(poison(FLOATS, 8e8))
                load.wait_for_answers(50)
            assert_kept(load)
            errors = [place["last_error"] for place in daemon.control.status()["places"] if place["restarts"]]
            assert errors == [says("killed … memory ran out; frames may take 1048576 MiB …")]
            assert "memory ran out" in said_last(daemon)
