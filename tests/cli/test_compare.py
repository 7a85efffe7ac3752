"""`compare`: what is said of sides that were measured, and all of it with a small network."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import onnx
import pytest

from shisha_rt.cli.compare import Compared, CompareOptions
from shisha_rt.cli.drive import compared as drive
from shisha_rt.cli.drive.compared import DAEMON, ENGINES, Comparison, MeasuredSide, MeasuredSides, _Daemon, _engine
from shisha_rt.client.link import TIMEOUT_S
from shisha_rt.errors import Error, Failure
from shisha_rt.machine.config.machine_file import load_machine
from tests.cli.conftest import Run
from tests.serving.identity_model import SHAPE, write_identity_model
from tests.wording import says

THREADS, COPIES, LATENCY, THROUGHPUT = ENGINES.values()


def compared(daemon_fps: tuple[float, ...], tuner: str = "watching", others_ratio: float = 0.05) -> Compared:
    """Beside the daemon an engine of 100 frames a second, a slower one, and one that is not installed."""
    sides = (
        MeasuredSide(DAEMON, daemon_fps, (0.02,) * len(daemon_fps), plan="core0: 0-3", tuner=tuner),
        MeasuredSide(THREADS, (100.0, 100.0, 100.0), (0.01, 0.012, 0.011)),
        MeasuredSide(COPIES, (50.0, 60.0, 40.0), (0.03, 0.03, 0.03)),
        MeasuredSide(THROUGHPUT, reason="not installed"),
    )
    return Compared("m", (0, 1), MeasuredSides(sides, others_ratio))


@pytest.mark.parametrize(
    ("daemon_fps", "verdict"),
    [
        (
            (120.0, 110.0, 130.0),
            f"{DAEMON} is the fastest: 1.20 times (… 1.10 to 1.30) the",
        ),
        (
            (70.0, 60.0, 80.0),
            f"{THREADS} is the fastest: {DAEMON} has 0.70 times (… 0.60 to 0.80) its",
        ),
        (
            (100.0, 90.0, 110.0),
            f"{DAEMON} and {THREADS} are alike … noise: 1.00 times (… 0.90 to 1.10)",
        ),
    ],
)
def test_who_is_the_fastest(daemon_fps: tuple[float, ...], verdict: str) -> None:
    lines = compared(daemon_fps).in_words().splitlines()
    assert lines[-3] == says(verdict + "…")
    assert lines[-2:] == [says(f"… of one frame: {THREADS}"), "the daemon's plan: core0: 0-3"]


def test_the_table_has_the_fastest_first_and_what_was_left_out_last() -> None:
    lines = compared((70.0, 60.0, 80.0)).in_words().splitlines()
    assert lines[0] == says("m on 2 cores, medians of …")
    assert [line.partition("  ")[0] for line in lines[2:6]] == [THREADS, DAEMON, COPIES, THROUGHPUT]
    assert lines[2].endswith(" 11.0 ms (10.0 to 12.0)")
    assert lines[5].endswith("left out: not installed")


def test_a_daemon_that_is_still_tuned_is_told_of() -> None:
    assert compared((70.0, 60.0, 80.0), "tuning").in_words().endswith("still tuning: --tune gives it longer)")
    in_fp32 = replace(compared((70.0, 60.0, 80.0)), has_faster=True)
    assert "--precision any" in in_fp32.in_words().splitlines()[-1]


def test_a_machine_that_others_use_is_told_of() -> None:
    """Before the verdict, which may be wrong: who had read that it is the fastest read no further."""
    _, conclusions = compared((120.0, 110.0, 130.0), others_ratio=0.43).in_words().split("\n\n")
    assert conclusions.splitlines()[0] == says("other programs had 43% of the cores meanwhile: …")


def test_another_daemon_on_the_cores_is_told_of() -> None:
    alone = compared((120.0, 110.0, 130.0))
    beside = replace(alone, measured=replace(alone.measured, leased=(0, 1)))
    assert beside.in_words().split("\n\n")[1].splitlines()[0] == says("… cores 0, 1: …")
    assert (alone.as_object()["leased_by_others"], beside.as_object()["leased_by_others"]) == ([], [0, 1])


def test_cores_of_another_daemon_are_shared_or_missing(tmp_path: Path) -> None:
    comparison = Comparison(CompareOptions("m"), load_machine("this-machine"), tmp_path)
    first, *others = comparison.cores

    def status(cores: list[int], shared: list[int]) -> dict[str, Any]:
        return {"places": [{"cores": [core]} for core in cores], "host": {"shared": shared}}

    assert comparison.leased_by_others(status([first, *others], [])) == ()
    assert comparison.leased_by_others(status([first, *others], [first])) == (first,)
    assert comparison.leased_by_others(status(others, [])) == (first,)


def test_figures_have_no_exponent() -> None:
    assert compared((1234.5, 12345.6, 99.96)).in_words().splitlines()[2].split()[1:4] == ["1234", "(100", "to"]


def test_as_an_object() -> None:
    comparison = json.loads(json.dumps(compared((120.0, 110.0, 130.0)).as_object()))
    assert (comparison["fastest"], comparison["best_engine"]) == (DAEMON, THREADS)
    assert comparison["rate_over_best_engine"] == {"median": 1.2, "least": 1.1, "most": 1.3}
    assert comparison["others_ratio"] == 0.05
    assert comparison["sides"][3] == {
        "name": THROUGHPUT, "rate_fps": None, "rates_fps": [], "latency_s": None, "latencies_s": [], "plan": None,
        "latency_plan": None, "tuner": None, "reason": "not installed",
    }  # fmt: skip


@pytest.mark.parametrize("engine", ENGINES)
def test_engines_run_a_network(tmp_path: Path, engine: str) -> None:
    frame = {"x": np.ones(SHAPE, np.float32)}
    with _engine(engine, write_identity_model(tmp_path), frame, sorted(os.sched_getaffinity(0))) as side:
        side.ask(None)
        assert side.rate_fps(0.05) > 0
        assert 0 < side.latency_s(0.05) < 1


def test_an_engine_that_fails_says_why(tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"no model")
    with _engine("ort_threads", tmp_path / "bad.onnx", {}, [0]) as side, pytest.raises(Failure, match=r"bad\.onnx"):
        side.ask(None)


@pytest.mark.parametrize("seconds", ["0", "inf", "nan", "1e+308"])
@pytest.mark.parametrize("option", ["--seconds", "--tune"])
def test_refused(run: Run, tiny_model: Path, option: str, seconds: str) -> None:
    ran = run("compare", tiny_model, option, seconds)
    assert ran.complaint == says(f"shisha-rt: {option} {seconds}: … 0…")


def test_sizes_that_are_missing_are_told_as_serve_tells_them(run: Run, tiny_model: Path, tmp_path: Path) -> None:
    model = onnx.load(tiny_model)
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "width"
    onnx.save(model, tmp_path / "open.onnx")
    ran = run("compare", tmp_path / "open.onnx")
    assert (ran.status, ran.kind) == (2, Error.UNKNOWN_SIZES)
    assert ran.complaint == says("shisha-rt: …open.onnx: …'width'… --shape x=1x4x8x8 …")


def test_a_folder_is_no_model_to_compare(run: Run, tmp_path: Path) -> None:
    """`serve` would serve its models, several at an address; a comparison is of one."""
    write_identity_model(tmp_path)
    assert str(tmp_path) in run("compare", tmp_path).complaint_of(Error.MODEL_UNREADABLE)


def test_frames_that_do_not_fit_are_refused(run: Run, tiny_model: Path, tmp_path: Path) -> None:
    frames = tmp_path / "frames.npz"
    ran = run("compare", tiny_model, "--dim", "N=1", "--input", frames)
    assert (ran.status, ran.kind) == (2, Error.UNREADABLE_FILE)
    np.savez(frames, y=np.zeros(3))
    ran = run("compare", tiny_model, "--dim", "N=1", "--input", frames)
    assert (ran.status, ran.kind) == (2, Error.WRONG_FRAMES)
    assert str(frames) in ran.complaint


def test_a_daemon_that_takes_long_for_a_frame_is_waited_for(
    run: Run, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a client's usual patience a network of some seconds a frame was given up on a busy host."""
    waits_s: list[float] = []

    def connect(_endpoint: str, *, timeout_s: float = TIMEOUT_S) -> NoReturn:
        waits_s.append(timeout_s)
        raise Failure("enough")

    monkeypatch.setattr(drive, "Client", connect)
    assert run("compare", tiny_model, "--dim", "N=1").status == 1
    assert waits_s[0] > 2 * TIMEOUT_S


class TwoAtOnce:
    """A daemon's client, and its clock: two places answer a frame each at the same moment, once a second."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.in_flight = 0

    def monotonic(self) -> float:
        return self.now_s

    def status(self) -> object:
        return {"places": [{}, {}]}

    def call(self, *_: object, **__: object) -> object:
        return {"tuner": {"plans": {"throughput": None, "latency": None}}}

    def plan(self) -> object:
        return {"stages": []}

    def stream(self, in_flight: int) -> AbstractContextManager[TwoAtOnce]:
        self.in_flight = in_flight
        return nullcontext(self)

    def run(self, frames: Iterator[object]) -> Iterator[object]:
        waiting = list(islice(frames, self.in_flight))
        while waiting:
            self.now_s += 1.0
            for _ in range(min(2, len(waiting))):
                yield waiting.pop()
                waiting += islice(frames, 1)


def test_answers_that_come_together_make_no_daemon_faster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the time from the first answer of a window to its last, it had 3 frames a second in place of 2."""
    together: Any = TwoAtOnce()
    monkeypatch.setattr(drive, "time", together)
    monkeypatch.setattr(drive, "plan_of", str)
    daemon = _Daemon(together, [{}], Comparison(CompareOptions("m"), load_machine("this-machine"), tmp_path))
    assert daemon.rate_fps(2.0) == 2.0


@pytest.mark.long
def test_all_of_it(run: Run, tiny_model: Path, tmp_path: Path) -> None:
    picture = tmp_path / "c.png"
    np.savez(tmp_path / "frames.npz", x=np.zeros((3, 4, 8, 8), np.float32))
    quick = ("--seconds", 0.1, "--rounds", 2, "--tune", 4, "--input", tmp_path / "frames.npz")
    ran = run("compare", tiny_model, "--dim", "N=1", *quick, "--json", "--png", picture)
    assert (ran.status, ran.err) == (0, "")
    assert all(len(side["rates_fps"]) == 2 for side in ran.object["sides"] if side["reason"] is None)
    assert ran.object["sides"][0]["plan"]
    assert ran.object["sides"][0]["latency_plan"]
    assert picture.read_bytes().startswith(b"\x89PNG")
