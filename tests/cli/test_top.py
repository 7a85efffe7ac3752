"""`top`: what a frame of it shows in any width, and a real one at a terminal, which `q` ends."""

from __future__ import annotations

import copy
import os
import pty
import select
import signal
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from shisha_rt.plan.plan import Plan
from shisha_rt.show.screen import Screen
from tests.cli.conftest import Run
from tests.cli.journal import a_run, event, trial
from tests.cli.statuses import FORK, FORK_S, STATUS, branches, copies, status_of, team
from tests.serving.daemon_process import DaemonProcess
from tests.waiting import PATIENCE_S

TUNER = {
    "state": "watching",
    "strategy": "shisha",
    "objective": "throughput",
    "serves": "throughput",
    "alpha": 10,
    "trials_total": 9,
    "moves_total": 7,
}


@pytest.fixture
def status() -> dict[str, Any]:
    report = copy.deepcopy(STATUS) | {"tuner": dict(TUNER)}
    report["machine"]["emulated"] = True
    report["places"][1] |= {"emulated": True, "speed": 0.25}
    idle = report["places"][1] | {"name": "slow1", "pid": None, "state": "down", "available": False, "emulated": False}
    report["places"].append(idle | {"restarts": 6, "last_error": "killed by signal 9"})
    return report


def drawn(screen: Screen, columns: int = 100, rows: int = 40) -> list[str]:
    console = Console(file=StringIO(), width=columns, height=rows, highlight=False)
    with console.capture() as captured:
        console.print(screen)
    return captured.get().splitlines()


def line_with(lines: list[str], text: str) -> str:
    (match,) = (line for line in lines if text in line)
    return match


def test_stages_stand_on_their_places_and_the_slowest_is_marked(status: dict[str, Any]) -> None:
    screen = Screen()
    screen.update(status, [])
    lines = drawn(screen)
    assert lines[0] == "net · serving · epoch 3 · machine board (emulated)"
    assert lines[1] == "up to 250 frames/s · 90 answered · 1 failed · 2 in flight"
    assert lines[2] == "tuner watching · shisha, alpha 10 · trials: 9 · layers moved: 7"
    fast, slow, lost = (line_with(lines, name) for name in ("fast0", "slow0", "slow1"))
    assert fast.split()[:4] == ["fast0", "1", "0-11", "0"]
    assert "2.00 ms  ███" in fast
    assert "slowest" not in fast
    assert "0.25*" in slow
    assert slow.rstrip().endswith("█  slowest")
    assert slow.count("█") == 2 * fast.count("█")
    assert "6" in lost.split()
    assert "not in planning: killed by signal 9" in lost
    assert line_with(lines, "* emulated")


def test_nothing_is_slowest_before_the_first_frame(status: dict[str, Any]) -> None:
    status["plan"]["stages"][1]["service_s"] = None
    status |= {"throughput_fps": None, "bottleneck_s": None, "bottleneck_stage": None}
    screen = Screen()
    screen.update(status, [])
    text = "\n".join(drawn(screen))
    assert "not timed yet" in text
    assert "no frames yet" in text
    assert "slowest" not in text
    status |= {"state": "starting", "plan": {"epoch": None, "stages": []}, "fault": "no plan fits"}
    screen.update(status, [])
    assert "fault: no plan fits" in drawn(screen)


def test_frames_a_second_come_from_two_looks(status: dict[str, Any]) -> None:
    screen = Screen()
    screen.update(status, [])
    later = copy.deepcopy(status)
    later["uptime_s"] += 2
    later["frames"]["answered"]["OK"] += 240
    screen.update(later, [])
    assert drawn(screen)[1].startswith("120 frames/s · up to 250 frames/s · ")


def test_trials_of_the_run_and_what_else_happened(status: dict[str, Any]) -> None:
    screen = Screen()
    screen.update(status, [trial(3, 7, "better", 111.0), *a_run()])
    lines = drawn(screen)
    assert "111" not in "".join(lines), "an earlier run is over"
    assert line_with(lines, "at best").startswith("run 2  ")
    assert line_with(lines, "at best").endswith("  200.0 to 250.0 frames/s at best")
    assert "better" in line_with(lines, " 250.0  ")
    assert "layer 12 from stage 1 (slow0) to stage 0 (fast0)" in line_with(lines, " 250.0  ")
    assert line_with(lines, "cannot run").split()[:2] == ["3", "-"]
    assert line_with(lines, "tuning ended after 4 trials and 3.2 s at 250.0 frames/s")
    assert line_with(lines, "tuning began")
    assert line_with(lines, "slow1 is down, by request")
    assert not any(word in "".join(lines) for word in ("slow0: 13-25 ", "cannot_run"))
    assert "fast0: 0-12 | slow0: 13-25" in line_with(drawn(screen, columns=140), " 250.0  ")


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
@pytest.mark.parametrize("rows", [24, 50])
def test_it_fits_its_terminal(status: dict[str, Any], columns: int, rows: int) -> None:
    screen = Screen()
    trials = [trial(20 + i, i, "better", 100.0 + i) for i in range(40)]
    screen.update(status, [a_run()[0], *trials, *(event(90 + i, "place_up", place="x" * 200) for i in range(9))])
    lines = drawn(screen, columns, rows)
    assert max(map(len, lines)) <= columns
    assert len(lines) <= rows
    assert any(line.lstrip().startswith("39 ") for line in lines)


def test_each_copy_has_a_row_and_so_has_each_place_of_a_team() -> None:
    plan = Plan.chain([(0, 9, (("core0",), ("core1",))), (10, 25, (("core2", "core3"),))])
    report = status_of(plan, [0.0028, 0.0012], team_s={"core0": 0.0021, "core1": None})
    report["places"] += [report["places"][0] | {"name": "core4"}]
    screen = Screen()
    screen.update(report, [])
    lines = drawn(screen, 80)
    rows = [next(line.rstrip() for line in lines if line.startswith(f"core{i}")) for i in (0, 1, 2, 4)]
    assert rows[0].split()[:5] == ["core0", "1", "0-9", "2.10", "ms"]
    assert "2.10 ms / 2  ███" in rows[0]
    assert rows[0].endswith("█  slowest")
    assert "no frames yet" in rows[1]
    assert "10-25         1.20 ms  ███" in rows[2]
    assert line_with(lines, "with core2").split()[:2] == ["core3", "1"]
    assert rows[3].endswith("no stage")


def test_a_place_of_several_stages_has_a_row_for_each() -> None:
    screen = Screen()
    screen.update(status_of(FORK, FORK_S, 3), [])
    lines = drawn(screen, 80)
    first = next(i for i, line in enumerate(lines) if line.startswith("a "))
    assert "0: 0-2 input " in lines[first]
    assert lines[first + 1].strip().startswith("3: 10-11 after 1, 2 ")
    assert lines[first + 1].rstrip().endswith("slowest")
    assert line_with(lines, "b ").split()[:5] == ["b", "1", "1:", "3-5,9", "after"]
    assert line_with(lines, "share a: 2.40 ms a frame")


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
@pytest.mark.parametrize(
    "report",
    [status_of(copies(64), [0.003]), status_of(team(64), [0.003]), status_of(branches(10), [0.001] * 12, None)],
    ids=["copies", "team", "branches"],
)
def test_many_places_leave_room_for_the_trials(report: dict[str, Any], columns: int) -> None:
    screen = Screen()
    screen.update(report, [a_run()[0], *(trial(20 + i, i, "better", 100.0 + i) for i in range(40))])
    console = Console(
        file=StringIO(), width=columns, height=30, highlight=False, force_terminal=True, color_system=None
    )
    with console.capture() as captured:
        console.print(screen)
    lines = captured.get().splitlines()
    assert len(lines) <= 30
    assert max(map(len, lines)) <= columns
    assert any(line.lstrip().startswith("39 ") for line in lines)
    names = {place["name"] for place in report["places"]}
    left_out = next((int(line.split()[1]) for line in lines if line.startswith("… ")), 0)
    assert len({line.split()[0] for line in lines if line} & names) == len(names) - left_out
    assert (left_out > 0) is (len(names) == 64)
    in_a_file = drawn(screen, columns, 30)
    assert all(any(line.startswith(name) for line in in_a_file) for name in names), "no terminal"


def test_for_latency_trials_are_judged_by_it(status: dict[str, Any]) -> None:
    screen = Screen()
    trials = [trial(11, 0, "first", 200.0, latency_s=0.012), trial(12, 1, "better", 150.0, latency_s=0.006)]
    trials.append(trial(13, 2, "cannot_run", None, latency_s=None))
    status["tuner"] |= {"objective": "latency", "serves": "latency"}
    screen.update(status | {"objective": "latency"}, [a_run()[0], *trials])
    lines = drawn(screen)
    assert lines[1].startswith("up to 250 frames/s · latency 6.00 ms (unloaded) · 90 answered")
    assert line_with(lines, "tuner watching · shisha for latency, alpha 10")
    assert line_with(lines, "at best").endswith("  12.0 to 6.00 ms alone at best")
    assert line_with(lines, "better  ").split()[:2] == ["1", "6.00"]
    assert line_with(lines, "cannot run").split()[:2] == ["2", "-"]


def test_once_against_a_daemon(run: Run, daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run("submit", "--endpoint", daemon.endpoint, "--frames", 20).status == 0
    ran = run("top", "--once", "--endpoint", daemon.endpoint)
    assert (ran.status, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0].startswith("identity · serving · epoch ")
    assert all(any(line.startswith(place) for line in lines) for place in ("fast0", "slow0"))
    assert line_with(lines, "tuner off")
    assert "slowest" in ran.out
    assert "\x1b" not in ran.out
    assert run("top", "--endpoint", daemon.endpoint).status == 0  # no terminal: one frame, too


def at_a_terminal(endpoint: str, stderr: Path) -> tuple[subprocess.Popen[bytes], int]:
    """`top` with a terminal of its own; its standard error goes to a file."""
    ours, theirs = pty.openpty()
    code = "import sys; from shisha_rt.cli.app import main; sys.exit(main())"
    with stderr.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", code, "top", "--endpoint", endpoint, "--interval", "0.1"],
            stdin=theirs,
            stdout=theirs,
            stderr=file,
            env=os.environ | {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40"},
        )
    os.close(theirs)
    return process, ours


def read_until(terminal: int, text: bytes) -> bytes:
    """What the terminal gets, up to and with `text`. (Empty `text`: to the end.)"""
    seen, end_s = b"", time.monotonic() + PATIENCE_S
    while not text or text not in seen:
        assert select.select([terminal], [], [], max(0.0, end_s - time.monotonic()))[0], seen
        try:
            more = os.read(terminal, 65536)
        except OSError:  # nobody holds its other end any more
            more = b""
        if not more:
            assert not text, seen
            return seen
        seen += more
    return seen


@pytest.mark.parametrize("by", ["a key", "a signal"])
def test_it_draws_until_it_is_ended(daemon: DaemonProcess, tmp_path: Path, by: str) -> None:
    process, terminal = at_a_terminal(daemon.endpoint, tmp_path / "stderr")
    try:
        read_until(terminal, b"serving")
        read_until(terminal, b"serving")  # drawn again
        if by == "a key":
            os.write(terminal, b"q")
        else:
            process.send_signal(signal.SIGINT)
        rest = read_until(terminal, b"")
        assert process.wait(PATIENCE_S) == (0 if by == "a key" else 130)
        assert b"\x1b[?1049l" in rest  # the screen is as it was before
        assert (tmp_path / "stderr").read_bytes() == b""
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
