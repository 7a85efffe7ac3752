"""`demo`: a real run, and that nothing of it is left whatever ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from shisha_rt.cli.demo import moved_cuts
from shisha_rt.errors import Failure
from tests.cli.conftest import Run
from tests.serving.daemon_process import PATIENCE_S, leftovers, until

_MARK = "SHISHA_RT_TEST_DEMO"


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A runtime folder of the test's own, and a mark on every process that comes of it."""
    folder = tmp_path / "runtime"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.setenv(_MARK, str(tmp_path))
    return folder


def descendants(mark: Path) -> list[psutil.Process]:
    """Living processes that carry the mark, but for this one."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(_MARK) == str(mark) and process.pid != os.getpid():
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def assert_nothing_left(mark: Path, runtime: Path) -> None:
    until(lambda: not descendants(mark), "the end of every process of the demo")
    assert leftovers(runtime) == []


def test_the_whole_of_it(run: Run, tmp_path: Path, runtime: Path) -> None:
    ran = run("demo", "--seconds", 0.5, "--json")
    assert (ran.status, ran.err) == (0, "")
    found = ran.object
    assert found["model"] == "squeezenet"
    assert found["sent"] == found["answered"] > 50
    assert (found["lost"], found["out_of_order"], found["different"], found["errors"]) == (0, 0, 0, 0)
    assert found["faults"] == []
    plans = found["plans"]
    assert [plan["epoch"] for plan in plans] == list(range(1, len(plans) + 1))
    assert len(plans) >= 3
    assert plans[0]["note"] == "the seed"
    assert plans[-1]["note"].startswith("the best, as in epoch ")
    assert len({str([(stage["first"], stage["last"]) for stage in plan["stages"]]) for plan in plans}) == len(plans) - 1
    for plan in plans:
        assert plan["frames"] > 2
        assert plan["throughput_fps"] > 0
    assert any(line == f"shisha_plan_epoch {len(plans)}.0" for line in found["metrics"])
    assert_nothing_left(tmp_path, runtime)


def test_what_a_reader_sees(run: Run) -> None:
    ran = run("demo", "--seconds", 0.3)
    assert (ran.status, ran.err) == (0, "")
    seen = ["The seed: 26 layers", "made by hand", "the seed\n", "the best, as in epoch", "none lost, all in order"]
    for text in [*seen, "frames/s with the seed", "slowest ┓", "shisha_plan_epoch", "shisha-rt submit"]:
        assert text in ran.out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_whatever_ends_it_nothing_is_left(tmp_path: Path, runtime: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "shisha_rt", "demo"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        assert demo.stderr is not None
        began_s = time.monotonic()
        while "the seed\n" not in (line := demo.stdout.readline()):  # frames flow
            assert line, demo.stderr.read()
            assert time.monotonic() < began_s + PATIENCE_S
        demo.send_signal(number)
        _, said = demo.communicate(timeout=PATIENCE_S)
    assert demo.returncode == (-number if number is signal.SIGKILL else 130)
    assert said == ""
    assert_nothing_left(tmp_path, runtime)


def test_a_daemon_that_does_not_start(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "shisha_rt.cli.demo._machine", lambda folder: ("no-such-machine", "a machine that is not there")
    )
    ran = run("demo")
    assert ran.status == 1
    assert ran.err.startswith('shisha-rt: the daemon did not start: shisha-rt: machine "no-such-machine": ')


def test_a_daemon_that_dies_says_why(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def dies(show: Any) -> Any:
        os.kill(show._daemon.pid, signal.SIGKILL)
        raise Failure("the daemon went away")

    monkeypatch.setattr("shisha_rt.cli.demo._Show.run", dies)
    ran = run("demo", "--json")
    assert (ran.status, ran.out) == (1, "")
    assert ran.err == "shisha-rt: the daemon ended with status -9: it said nothing\n"


class TestMovedCuts:
    def stages(self, *spans: tuple[int, int, float]) -> list[dict[str, Any]]:
        return [
            {"first": first, "last": last, "places": [f"p{i}"], "service_s": service_s}
            for i, (first, last, service_s) in enumerate(spans)
        ]

    def cuts(self, stages: list[dict[str, Any]], legal: frozenset[int]) -> list[list[int]]:
        return [[stage["last"] for stage in plan] for _, plan in moved_cuts(stages, legal)]

    def test_each_way(self) -> None:
        found = moved_cuts(self.stages((0, 9, 1.0), (10, 19, 2.0)), frozenset(range(19)))
        assert [(note, plan[0]["last"], plan[1]["first"]) for note, plan in found] == [
            ("the cut 4 layers earlier", 5, 6),
            ("the cut 2 layers earlier", 7, 8),
            ("the cut 2 layers later", 11, 12),
            ("the cut 4 layers later", 13, 14),
        ]
        assert found[0][1][0].keys() == {"first", "last", "places"}

    def test_beside_the_slowest_stage_towards_the_faster_neighbour(self) -> None:
        stages = self.stages((0, 9, 2.0), (10, 19, 3.0), (20, 29, 1.0))
        assert self.cuts(stages, frozenset(range(29))) == [[9, to, 29] for to in (15, 17, 21, 23)]

    def test_only_where_there_are_layers_and_legal_cuts(self) -> None:
        assert self.cuts(self.stages((0, 2, 1.0), (3, 5, 2.0)), frozenset(range(5))) == [[0, 5], [4, 5]]
        assert self.cuts(self.stages((0, 2, 1.0), (3, 5, 2.0)), frozenset({2, 4})) == [[4, 5]]

    def test_one_stage_has_no_cut(self) -> None:
        assert moved_cuts(self.stages((0, 9, 1.0)), frozenset(range(9))) == []
