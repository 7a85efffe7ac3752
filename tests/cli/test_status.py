"""`status`: the object, and what a reader sees of a daemon in every condition."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from typing import Any
from unittest.mock import Mock

import pytest

from shisha_rt.cli.models import show_models
from shisha_rt.cli.options import DaemonOptions
from shisha_rt.cli.status import _duration, _show
from shisha_rt.errors import Error
from shisha_rt.show.picture import milliseconds
from shisha_rt.show.screen import _tuner
from tests.cli.conftest import Run
from tests.cli.statuses import FORK, FORK_S, STATUS, branches, copies, status_of, team
from tests.serving.daemon_process import DaemonProcess


class TestARunningDaemon:
    def test_json_is_the_wire_s_object(self, run: Run, daemon: DaemonProcess) -> None:
        ran = run("status", "--endpoint", daemon.endpoint, "--json")
        assert (ran.status, ran.err) == (0, "")
        assert ran.object.keys() == daemon.control.status().keys()
        assert ran.object["pid"] == daemon.pid

    def test_in_words(self, run: Run, daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", "100")
        assert run("submit", "--endpoint", daemon.endpoint, "--frames", 20).status == 0
        ran = run("status", "--endpoint", daemon.endpoint)
        assert (ran.status, ran.err) == (0, "")
        for text in ("identity · serving · epoch ", "9 layers", f"pid {daemon.pid}", " slowest ┓", " ─▶ ", " ms █"):
            assert text in ran.out
        for place in daemon.control.status()["places"]:
            assert f"{place['name']}  up" in ran.out
            assert str(place["pid"]) in ran.out


@pytest.fixture
def status() -> dict[str, Any]:
    return copy.deepcopy(STATUS)


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    def show(status: dict[str, Any], columns: int = 100) -> str:
        monkeypatch.setenv("COLUMNS", str(columns))
        _show(status)
        return capsys.readouterr().out

    return show


def test_what_the_profiler_waits_for(shown: Any) -> None:
    status = status_of(FORK, FORK_S)
    assert "34 s while" not in shown(status)
    status["profiler_waits_s"] = 34.2
    assert "34 s while" in shown(status)
    assert "34 s while" in "".join(_tuner(status["tuner"], 34.2))


def test_all_is_well(status: dict[str, Any], shown: Any) -> None:
    text = shown(status)
    assert text.startswith("net · serving · epoch 3 · up to 250 frames/s · latency 6.00 ms (unloaded)\n")
    assert "26 layers, 25 cuts · compiled for onnxruntime 1.23 · machine board · pid 4242 · up 1 h 2 min\n" in text
    assert "┌ fast0 " in text
    assert "┏ slow0 " in text
    assert "2.00 ms ██" in text
    assert "frames answered: 90 OK, 1 CANCELLED · in flight: 2 (2 of 6 slots taken)\n" in text
    for word in ("last error", "fault", "emulated", "run again"):
        assert word not in text


def test_a_form_that_costs_something_is_named(status: dict[str, Any], shown: Any) -> None:
    status["model"]["form"] = "as_is"
    assert " · compiled for onnxruntime 1.23, as_is (" in shown(status)


@pytest.mark.parametrize("columns", [40, 56, 80, 140])
def test_the_picture_fits_its_terminal(status: dict[str, Any], shown: Any, columns: int) -> None:
    picture = [line for line in shown(status, columns).splitlines() if line[:1] in ("┌", "┏", "│", "┃", "└", "┗")]
    assert picture
    assert max(map(len, picture)) <= columns


@pytest.mark.parametrize("columns", [26, 40, 60, 80, 140])
@pytest.mark.parametrize(
    "report",
    [
        *(status_of(copies(count), [0.0032]) for count in (1, 2, 8, 64)),
        *(status_of(team(size), [0.0032]) for size in (2, 8, 64)),
        status_of(FORK, FORK_S, 3),
        status_of(FORK, [None] * 4, None),
        status_of(branches(10), [0.001] * 12, 11),
    ],
    ids=["one", "x2", "x8", "x64", "team 2", "team 8", "team 64", "fork", "unknown", "branches"],
)
def test_every_plan_fits(report: dict[str, Any], shown: Any, columns: int) -> None:
    """Its whole picture, and each place in the table."""
    text = shown(report, columns)
    corners = ("┌", "┏", "│", "┃", "└", "┗")
    picture = [line for line in text.splitlines() if line[:1] in corners]
    assert len({len(line) for line in picture}) <= 2  # the last row may have fewer boxes
    assert max(map(len, picture)) <= columns
    assert text.count("slowest") == (report["bottleneck_stage"] is not None)
    assert len([line for line in text.splitlines() if "  up" in line]) == len(report["places"])


def test_copies_are_one_box(shown: Any) -> None:
    text = shown(status_of(copies(2), [0.0032]), 60)
    assert "┏ x2: core0, core1 ━" in text
    assert "┃ 3.20 ms / 2 ████" in text
    assert text.count("core0 ") == 1, "alike copies are not told one by one"


def test_the_time_of_unlike_copies_agrees_with_the_throughput(shown: Any) -> None:
    """1 / 0.6 ms + 1 / 0.3 ms is 5000 frames a second, whatever the median of all frames is."""
    text = shown(status_of(copies(2), [0.0006], team_s={"core0": 0.0006, "core1": 0.0003}), 60)
    assert "┃ 0.400 ms / 2 ████" in text


def test_copies_that_are_not_alike_are_told_one_by_one(shown: Any) -> None:
    text = shown(status_of(copies(2), [0.0028], team_s={"core0": 0.0021, "core1": 0.0042}, state={"core1": "starting"}))
    assert "┃ core0 2.10 ms  " in text
    assert "┃ core1 4.20 ms, starting  " in text
    unlike = {f"core{i}": 0.001 * (i + 1) for i in range(8)}
    text = shown(status_of(copies(8), [0.0028], team_s=unlike, state={"core3": "out", "core4": "starting"}))
    assert "┃ 1.00 ms (core0) to 8.00 ms (core7) " in text
    assert "┃ 2 of 8 not up  " in text
    text = shown(status_of(copies(2), [0.0021], team_s={"core1": None}))
    assert "core0 2.10 ms" not in text, "there is nothing to compare it with"


def test_a_team(shown: Any) -> None:
    text = shown(status_of(team(2), [0.0017]))
    assert "┏ 2 together: core0+core1 ━" in text
    assert "┃ 1.70 ms ███" in text


def test_branches_stand_side_by_side_and_a_pool_of_several_stages_is_told(shown: Any) -> None:
    text = shown(status_of(FORK, FORK_S, 3), 80)
    assert "┌ 1 · b ──" in text
    assert "┌ 2 · x2: c, d ──" in text
    assert "after 0 · layers 3-5, 9 " in text
    assert "after 1, 2 · layers 10-11 " in text
    assert "layers 0-2 and layers 10-11 share a: 2.40 ms a frame\n" in text
    assert "layers 0-2 and layers 10-11 share a\n" in shown(status_of(FORK, [None, *FORK_S[1:]], None), 80)


def test_an_objective_other_than_throughput_is_told(shown: Any) -> None:
    report = status_of(team(2), [0.0017])
    assert "tuner watching (guided) ·" in shown(report)
    report["tuner"] |= {"objective": "latency", "serves": "latency"}
    assert "(guided for latency) ·" in shown(report)
    report["tuner"] |= {"objective": "auto", "utilisation": 0.12}
    assert "a load of 12%) ·" in shown(report)


def test_trouble_is_told(status: dict[str, Any], shown: Any) -> None:
    reason = f"[boom] {'boom ' * 9}at last"
    status["places"][1] |= {"state": "out", "available": False, "pid": None, "restarts": 6, "last_error": reason}
    status["frames"]["replayed"] = 7
    status["tuner"] = {"state": "watching", "strategy": "shisha", "trials_total": 8, "moves_total": 5}
    status["tuner"] |= {"objective": "throughput", "serves": "throughput"}
    status["fault"] = "no plan fits"
    status["preparing"] = 4
    text = shown(status, 60)
    assert "preparing epoch 4" in text
    assert "out, not in" in text
    assert "last error" in text
    assert reason in text  # in one line, and no markup
    assert "parts run again: 7" in text
    assert "tuner watching (shisha) · trials: 8 · layers moved: 5" in text
    assert "fault: no plan fits" in text


def test_what_is_emulated_says_so(status: dict[str, Any], shown: Any) -> None:
    status["machine"]["emulated"] = True
    status["places"][1] |= {"emulated": True, "speed": 0.25}
    text = shown(status)
    assert "machine board (emulated)" in text
    assert "up, emulated at 0.25" in text


def test_before_the_first_plan_and_the_first_frame(status: dict[str, Any], shown: Any) -> None:
    status["plan"]["stages"][1]["service_s"] = None
    status |= {"throughput_fps": None, "bottleneck_s": None, "bottleneck_stage": None, "latency_s": None}
    text = shown(status)
    assert "no frames yet" in text
    assert "slowest" not in text
    status |= {"state": "starting", "plan": {"epoch": None, "stages": []}}
    status["frames"]["answered"] = {}
    text = shown(status)
    assert text.startswith("net · starting\n")
    assert "no plan is" in text
    assert "frames answered: none" in text


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.5, "0 s"), (59.9, "59 s"), (61, "1 min 1 s"), (3600, "1 h 0 min"), (90_000, "1 d 1 h")],
)
def test_duration(seconds: float, expected: str) -> None:
    assert _duration(seconds) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0.0000123, "0.0123 ms"), (0.0015, "1.50 ms"), (0.123, "123 ms"), (1.5, "1500 ms")]
)
def test_milliseconds(seconds: float, expected: str) -> None:
    assert milliseconds(seconds) == expected


def test_names_in_brackets_are_names(capsys: pytest.CaptureFixture[str]) -> None:
    """They are no markup."""
    listed = [{"name": "det[v2]", "version": "1[beta]", "state": "LOADING", "reason": "input 'x' [/models/*]"}]
    show_models(listed)
    shown = capsys.readouterr().out
    for words in ("det[v2]", "1[beta]", "[/models/*]"):
        assert words in shown


def test_a_long_name_is_shown_whole(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    name = "".join(f"part-{number}-" for number in range(12))
    frames = {"in_flight": 3, "answered": {"OK": 1234567}}
    show_models([{"name": name, "version": "1", "state": "READY", "reason": "", "frames": frames}])
    shown = capsys.readouterr().out
    assert name in "".join(line.partition(" ")[0] for line in shown.splitlines())
    assert "1234567" in shown


def test_models_of_one_daemon(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon of one model says of it what a host of several says of each."""
    daemon = Mock(status=lambda: STATUS)
    daemon.call.return_value = {"models": [{"name": "net", "version": "1", "state": "READY", "reason": ""}]}
    monkeypatch.setattr(DaemonOptions, "client", lambda _: nullcontext(daemon))
    monkeypatch.setenv("COLUMNS", "60")
    whole = {"state", "places", "answered", "net", "READY", "fast0", "slow0", "250", "90"}
    assert whole <= set(run("models").out.split())
    (listed,) = run("models", "--json").object["models"]
    assert listed["places"] == ["fast0", "slow0"]


def test_why_is_asked_of_one_model(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    daemons = Mock(status=lambda: {"models": [{"name": "a"}, {"name": "b"}]})
    monkeypatch.setattr(DaemonOptions, "client", lambda _: nullcontext(daemons))
    assert "--model with one of a, b" in run("status", "--why").complaint_of(Error.UNKNOWN_MODEL)
