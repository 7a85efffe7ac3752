"""`status`: the object, and what a reader sees of a daemon in every condition."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from shisha_rt.cli.status import _duration, _show
from shisha_rt.cli.views.picture import milliseconds
from tests.cli.conftest import Run
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


STATUS: dict[str, Any] = {
    "state": "serving",
    "version": "0.1.0",
    "instance": "abc",
    "pid": 4242,
    "uptime_s": 3725.4,
    "model": {"name": "net", "layers": 26, "legal_cuts": 25, "engine": "onnxruntime 1.23", "form": "prepacked"},
    "machine": {"name": "board", "emulated": False},
    "plan": {
        "epoch": 3,
        "stages": [
            {"first": 0, "last": 11, "places": ["fast0"], "service_s": 0.002},
            {"first": 12, "last": 25, "places": ["slow0"], "service_s": 0.004},
        ],
    },
    "preparing": None,
    "throughput_fps": 250.0,
    "bottleneck_s": 0.004,
    "places": [
        {"name": "fast0", "state": "up", "available": True, "pid": 1, "cores": [0, 1], "threads": 2, "speed": 1.0,
         "emulated": False, "restarts": 0, "last_error": None},
        {"name": "slow0", "state": "up", "available": True, "pid": 2, "cores": [2], "threads": 1, "speed": 1.0,
         "emulated": False, "restarts": 0, "last_error": None},
    ],
    "frames": {"in_flight": 2, "slots": 6, "slots_free": 4, "answered": {"OK": 90, "CANCELLED": 1}, "replayed": 0},
    "fault": None,
}  # fmt: skip


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


def test_all_is_well(status: dict[str, Any], shown: Any) -> None:
    text = shown(status)
    assert text.startswith("net · serving · epoch 3 · up to 250 frames/s (1 / slowest stage)\n")
    assert "26 layers, 25 cuts · onnxruntime 1.23 prepacked · machine board · pid 4242 · up 1 h 2 min\n" in text
    assert "┌ fast0 " in text
    assert "┏ slow0 " in text
    assert "2.00 ms ██" in text
    assert "frames answered: 90 OK, 1 CANCELLED · in flight: 2 (2 of 6 slots taken)\n" in text
    for word in ("last error", "fault", "emulated", "run again"):
        assert word not in text


@pytest.mark.parametrize("columns", [40, 56, 80, 140])
def test_the_picture_fits_its_terminal(status: dict[str, Any], shown: Any, columns: int) -> None:
    picture = [line for line in shown(status, columns).splitlines() if line[:1] in ("┌", "┏", "│", "┃", "└", "┗")]
    assert picture
    assert max(map(len, picture)) <= columns


def test_trouble_is_told(status: dict[str, Any], shown: Any) -> None:
    status["places"][1] |= {"state": "out", "available": False, "pid": None, "restarts": 6, "last_error": "[boom]"}
    status["frames"]["replayed"] = 7
    status["tuner"] = {"state": "watching", "strategy": "shisha", "trials_total": 8, "moves_total": 5}
    status["fault"] = "no plan fits"
    status["preparing"] = 4
    text = shown(status, 120)
    assert "preparing epoch 4" in text
    assert "out, not in planning" in text
    assert "last error" in text
    assert "[boom]" in text  # and no markup
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
    status |= {"throughput_fps": None, "bottleneck_s": None}
    text = shown(status)
    assert "no frames yet" in text
    assert "slowest" not in text
    status |= {"state": "starting", "plan": {"epoch": None, "stages": []}}
    status["frames"]["answered"] = {}
    text = shown(status)
    assert text.startswith("net · starting\n")
    assert "no plan is live yet" in text
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
