"""`submit` against a daemon that runs, and against gateways that misbehave as told."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shisha_rt.cli.submit import Tally, save
from shisha_rt.client import Answer
from shisha_rt.errors import Error
from tests.cli.conftest import Run
from tests.protocol.gateway import Frame, Gateway, Gone
from tests.serving.daemon_process import DaemonProcess
from tests.serving.identity_model import SHAPE, frame_of
from tests.waiting import PATIENCE_S
from tests.wording import says


class TestARunningDaemon:
    """The network answers each frame with its input, bit for bit."""

    def test_random_frames(self, run: Run, daemon: DaemonProcess) -> None:
        ran = run("submit", "--endpoint", daemon.endpoint, "--json")
        assert (ran.status, ran.err) == (0, "")
        summary = ran.object
        assert (summary["model"], summary["sent"], summary["completed"], summary["failed"]) == ("identity", 100, 100, 0)
        assert summary["outcomes"] == {"OK": 100}
        assert summary["throughput_fps"] == pytest.approx(100 / summary["elapsed_s"])
        latency_s = summary["latency_s"]
        assert 0 < latency_s["p50"] <= latency_s["p90"] <= latency_s["p99"] <= latency_s["max"]
        assert sum(summary["epochs"].values()) == 100
        assert (summary["first_error"], summary["failed_frames"]) == (None, [])

    def test_in_words(self, run: Run, daemon: DaemonProcess) -> None:
        ran = run("submit", "--endpoint", daemon.endpoint, "--frames", 20)
        assert (ran.status, ran.err) == (0, "")
        title, *rows = ran.out.splitlines()
        assert title.startswith("20 of 20 frames of identity")
        assert title.endswith(" frames/s")
        assert [row.split()[0] for row in rows] == ["latency", "outcomes", "epochs"]

    def test_files_there_and_back(self, run: Run, daemon: DaemonProcess, tmp_path: Path) -> None:
        numbers = np.stack([frame_of(i) for i in range(5)])
        np.save(tmp_path / "four.npy", numbers[:4])
        np.savez(tmp_path / "fifth.npz", x=numbers[4])
        inputs = ("--input", tmp_path / "four.npy", "--input", tmp_path / "fifth.npz")
        output = tmp_path / "answers.npz"
        ran = run("submit", "--endpoint", daemon.endpoint, *inputs, "--output", output)
        assert ran.status == 0
        assert "5 of 5 frames" in ran.out
        assert f"{output}: y {[5, *SHAPE]}" in ran.out
        with np.load(output) as answers:
            assert answers.files == ["y"]
            assert np.array_equal(answers["y"], numbers)

    def test_frames_along_the_batch_have_their_answers_there_too(
        self, run: Run, daemon: DaemonProcess, tmp_path: Path
    ) -> None:
        numbers = np.concatenate([frame_of(i) for i in range(4)])
        np.save(tmp_path / "four.npy", numbers)
        output = tmp_path / "answers.npz"
        ran = run("submit", "--endpoint", daemon.endpoint, "--input", tmp_path / "four.npy", "--output", output)
        assert f"{output}: y {list(numbers.shape)}" in ran.out
        with np.load(output) as answers:
            assert np.array_equal(answers["y"], numbers)

    @pytest.mark.parametrize("inputs", [("--frames", 3), ("--input", "one.npy", "--frames", 3)])
    def test_single_frames_are_saved_along_the_batch(
        self, run: Run, daemon: DaemonProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inputs: tuple[Any, ...]
    ) -> None:
        monkeypatch.chdir(tmp_path)
        np.save("one.npy", frame_of(1))
        assert run("submit", "--endpoint", daemon.endpoint, *inputs, "--output", "answers.npz").status == 0
        with np.load("answers.npz") as answers:
            assert answers["y"].shape == (3, *SHAPE[1:])

    def test_frames_start_over_when_there_are_too_few(self, run: Run, daemon: DaemonProcess, tmp_path: Path) -> None:
        numbers = np.stack([frame_of(i) for i in range(2)])
        np.save(tmp_path / "two.npy", numbers)
        output = tmp_path / "answers.npz"
        inputs = ("--input", tmp_path / "two.npy", "--frames", 5)
        assert run("submit", "--endpoint", daemon.endpoint, *inputs, "--output", output).status == 0
        with np.load(output) as answers:
            assert np.array_equal(answers["y"], numbers[[0, 1, 0, 1, 0]])

    def test_paced(self, run: Run, daemon: DaemonProcess) -> None:
        summary = run("submit", "--endpoint", daemon.endpoint, "--rate", 50, "--frames", 6, "--json").object
        assert summary["elapsed_s"] >= 5 / 50
        assert summary["completed"] == 6

    def test_a_stream_of_its_own_name(self, run: Run, daemon: DaemonProcess) -> None:
        options = ("--stream", "cam0", "--in-flight", 1, "--frames", 3)
        assert run("submit", "--endpoint", daemon.endpoint, *options).status == 0

    @pytest.mark.parametrize("as_json", [True, False])
    def test_frames_that_fail(self, run: Run, daemon: DaemonProcess, as_json: bool) -> None:
        options = ("--frames", 3, "--deadline-ms", 0, *(("--json",) if as_json else ()))
        ran = run("submit", "--endpoint", daemon.endpoint, *options)
        assert ran.status == 1
        assert ran.err == says("shisha-rt: 3 of 3 frames failed; the first … frame 0: DEADLINE_EXCEEDED: …")
        if as_json:
            assert ran.object["outcomes"] == {"DEADLINE_EXCEEDED": 3}
            assert ran.object["failed_frames"] == [0, 1, 2]
            assert ran.object["latency_s"] == {"p50": None, "p90": None, "p99": None, "max": None}
        else:
            assert "3 DEADLINE_EXCEEDED" in ran.out


class TestAGatewayWithAScript:
    def test_some_frames_fail(self, run: Run) -> None:
        counted = iter(range(9))

        def script(gateway: Gateway, frame: Frame) -> None:
            if next(counted) % 3 == 1:
                gateway.fail(frame, Error.TASK_FAILED, "the stage\nburnt down")
            else:
                gateway.answer(frame)

        with Gateway(script) as gateway:
            ran = run("submit", "--endpoint", gateway.endpoint, "--frames", 9, "--json")
        assert (ran.status, ran.object["outcomes"]) == (1, {"OK": 6, "INTERNAL": 3})
        assert ran.object["first_error"] == {
            "frame": 1,
            "code": "INTERNAL",
            "kind": "task_failed",
            "message": "the stage\nburnt down",
        }
        assert ran.object["failed_frames"] == [1, 4, 7]
        expected = "shisha-rt: 3 of 9 frames failed; the first … frame 1: INTERNAL: the stage burnt down; … --input …\n"
        assert ran.err == says(expected)

    def test_the_daemon_goes_away(self, run: Run) -> None:
        counted = iter(range(1000))

        def script(gateway: Gateway, frame: Frame) -> None:
            if next(counted) == 20:
                raise Gone
            gateway.answer(frame)

        with Gateway(script) as gateway:
            ran = run("submit", "--endpoint", gateway.endpoint, "--frames", 1000, "--json")
        assert ran.status == 1
        summary = ran.object
        assert 0 < summary["completed"] <= 20  # an answer may be lost with its sender
        assert summary["completed"] + summary["failed"] == summary["sent"] <= 28
        assert summary["outcomes"]["UNAVAILABLE"] == summary["failed"]
        assert f"frame {summary['completed']}: UNAVAILABLE: the connection to" in ran.err

    def test_a_frame_that_is_late_counts_from_when_it_was_due(self, run: Run) -> None:
        """All three are due at once, and each waits for those before it."""

        def script(gateway: Gateway, frame: Frame) -> None:
            time.sleep(0.1)
            gateway.answer(frame)

        with Gateway(script) as gateway:
            asked = ("--frames", 3, "--rate", 1e6, "--in-flight", 1)
            ran = run("submit", "--endpoint", gateway.endpoint, *asked, "--json")
        assert ran.object["latency_s"]["max"] >= 0.3 - 1e-5

    @pytest.mark.parametrize("as_json", [True, False])
    def test_ctrl_c_ends_with_what_there_is(self, run: Run, as_json: bool) -> None:
        counted = iter(range(1000))

        def script(gateway: Gateway, frame: Frame) -> None:
            number = next(counted)
            if number < 10:
                gateway.answer(frame)
            elif number == 12:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        with Gateway(script) as gateway:
            ran = run("submit", "--endpoint", gateway.endpoint, *(("--json",) if as_json else ()))
        assert (ran.status, ran.err) == (130, "")
        if as_json:
            assert 0 < ran.object["completed"] <= 10
            assert ran.object["sent"] == ran.object["completed"] + 8
            assert ran.object["failed"] == 0
        else:
            assert "frames of double" in ran.out
            assert "given up    8 in flight at" in ran.out


@pytest.fixture
def double() -> Iterator[Gateway]:
    """Doubles: x -> y, both FP32 [1, 3]."""
    with Gateway() as gateway:
        yield gateway


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.ones((1, 3)), "x: datatype FP64, expected FP32 (numpy float32)"),
        (np.ones((3, 1), np.float32), "x: shape [3, 1], expected [1, 3], or n of them"),
        (np.ones((0, 1, 3), np.float32), "no frames, …"),
    ],
)
def test_a_file_that_does_not_fit(run: Run, double: Gateway, tmp_path: Path, array: Any, expected: str) -> None:
    path = tmp_path / "a.npy"
    np.save(path, array)
    complaint = run("submit", "--endpoint", double.endpoint, "--input", path).complaint_of(Error.WRONG_FRAMES)
    assert complaint == says(f"shisha-rt: {path}: {expected}")


def test_a_file_with_other_names(run: Run, double: Gateway, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, image=np.ones((1, 3), np.float32))
    complaint = run("submit", "--endpoint", double.endpoint, "--input", path).complaint_of(Error.WRONG_FRAMES)
    assert complaint == says(f"shisha-rt: {path}: arrays image, … model's inputs: x")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--input", "none.npy"), "shisha-rt: none.npy: cannot be read"),
        (("--rate", 0), "shisha-rt: --rate 0"),
        (("--rate", "nan"), "shisha-rt: --rate nan"),
        (("--rate", "1e-300"), "shisha-rt: --rate 1e-300"),
        (("--frames", 0), "shisha-rt submit: invalid value for '--frames': Input should be"),
        (("--frames", 10**30), "shisha-rt submit: invalid value for '--frames': Input should be"),
        (("--in-flight", 0), "shisha-rt submit: invalid value for '--in-flight'"),
        (("--deadline-ms", -1), "shisha-rt submit: invalid value for '--deadline-ms'"),
        (("--stream", ""), "shisha-rt: --stream"),
        (("--stream", "x" * 257), "shisha-rt: --stream"),
        (("--output", "a.txt"), "shisha-rt: --output a.txt"),
        (("--output", "no/such/a.npz"), "shisha-rt: --output no/such/a.npz: cannot be written"),
        (("--endpoint", "nonsense"), "shisha-rt: endpoint 'nonsense': "),
    ],
)
def test_refused(run: Run, options: tuple[object, ...], expected: str) -> None:
    assert run("submit", *options).complaint.startswith(expected)


def test_no_daemon(tmp_path: Path) -> None:
    """Each waits for one as long as it would for its user, so all do at once."""
    endpoint = f"ipc://{tmp_path}/nobody"
    asking = [
        subprocess.Popen(
            [sys.executable, "-m", "shisha_rt", command, "--endpoint", endpoint],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for command in ("submit", "status", "top")
    ]
    said = [process.communicate(timeout=PATIENCE_S) for process in asking]
    assert [process.returncode for process in asking] == [1, 1, 1]
    start = "… one there with: shisha-rt serve MODEL.onnx"
    assert said == [("", says(f"shisha-rt: no daemon at {endpoint} within 5 s; {start} [no_daemon]\n"))] * 3


def test_save_takes_any_name(tmp_path: Path) -> None:
    arrays = {"file": np.arange(3), "a/b": np.zeros((2, 0)), "allow_pickle": np.array(True)}
    save(tmp_path / "a.npz", arrays)
    with np.load(tmp_path / "a.npz") as saved:
        assert sorted(saved.files) == sorted(arrays)
        assert all(np.array_equal(saved[name], array) for name, array in arrays.items())


def test_what_cannot_be_saved_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.npz"
    save(path, {"y": np.arange(3)})
    before = path.read_bytes()

    def full_disk(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(np.lib.format, "write_array", full_disk)
    with pytest.raises(OSError, match="No space left") as failed:
        save(path, {"y": np.arange(4)})
    assert failed.value.filename == str(path)
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [before]


def test_outputs_of_varying_shape_are_saved_by_frame(tmp_path: Path) -> None:
    tally = Tally(keep_outputs=True, open_outputs=frozenset({"boxes"}))
    for frame, count in ((0, 2), (3, 0)):
        outputs = {"boxes": np.full((count, 4), frame), "y": np.full(3, frame)}
        tally.add_answer(frame, Answer("id", outputs, 1, frame, None, 0.0, 0.0), 0.1)
    save(tmp_path / "o.npz", tally.arrays())
    with np.load(tmp_path / "o.npz") as saved:
        assert {name: saved[name].tolist() for name in saved.files} == {
            "boxes[0]": [[0] * 4] * 2,
            "boxes[3]": [],
            "y": [[0] * 3, [3] * 3],
        }
    assert "2 arrays boxes[FRAME], y [2, 3]" in tally.in_words(tmp_path / "o.npz")
