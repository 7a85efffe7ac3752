"""`tuner`: what it shows, and how what goes wrong is said. Steering itself is tested where the wire is."""

from __future__ import annotations

from typing import Any

import pytest

from shisha_rt.cli.tuner import _lines
from tests.cli.conftest import Run
from tests.serving.daemon_process import DaemonProcess
from tests.wording import says

FOUND: dict[str, Any] = {
    "state": "tuning", "strategy": "shisha", "alpha": 10, "balance": "nlfep", "run": 2, "trials": 4, "trials_total": 9,
    "moves_total": 7, "trying": "layer 12 from stage 1 (slow0) to stage 0 (fast0)", "best_throughput_fps": 250.04,
    "objective": "throughput", "serves": "throughput", "utilisation": None, "best_latency_s": 0.006,
    "best_plan": "fast0: 0-12 | slow0: 13-25",
}  # fmt: skip


def test_a_search_in_words() -> None:
    assert _lines(FOUND) == [
        "tuning (shisha, alpha 10, balance nlfep)",
        "trying      layer 12 from stage 1 (slow0) to stage 0 (fast0)",
        "run 2       trials: 4",
        "its best    250 frames/s, latency 6.00 ms (unloaded): fast0: 0-12 | slow0: 13-25",
        "in all      trials: 9, layers moved: 7",
    ]


def test_a_search_for_latency() -> None:
    tuner = FOUND | {"objective": "latency", "serves": "latency"}
    assert _lines(tuner)[0] == says("… for latency, alpha 10, balance nlfep)")


def test_the_plans_between_which_the_load_chooses() -> None:
    quick = {"plan": "fast0+slow0: 0-25", "throughput_fps": 180.0, "latency_s": 0.0055}
    most = {"plan": "fast0, slow0: 0-25", "throughput_fps": 250.0, "latency_s": 0.008}
    tuner = FOUND | {"state": "watching", "objective": "auto", "serves": "throughput", "utilisation": 0.834}
    lines = _lines(tuner | {"trying": None, "plans": {"throughput": most, "latency": quick}})
    assert lines[0] == says("… a load of 83%, alpha 10, balance nlfep)")
    assert lines[2:4] == [
        "throughput  250 frames/s, latency 8.00 ms (unloaded): fast0, slow0: 0-25",
        "latency     180 frames/s, latency 5.50 ms (unloaded): fast0+slow0: 0-25",
    ]
    lines = _lines(tuner | {"utilisation": None, "trying": None, "plans": {"throughput": most, "latency": None}})
    assert lines[0].startswith("watching (shisha for")
    assert [line.split()[0] for line in lines[2:]] == ["throughput", "in"]


def test_a_daemon_without_a_tuner(run: Run, daemon: DaemonProcess) -> None:
    ran = run("tuner", "--endpoint", daemon.endpoint, "--json")
    assert (ran.status, ran.err) == (0, "")
    assert ran.object == daemon.control.call("tuner_get")["tuner"]
    assert run("tuner", "--endpoint", daemon.endpoint).out.startswith("off (seed, alpha")
    ran = run("tuner", "pause", "--endpoint", daemon.endpoint)
    assert (ran.status, ran.out) == (1, "")
    assert ran.err == says("shisha-rt: the daemon … (strategy seed)\n")


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (("stop",), "shisha-rt tuner: invalid value for 'action': 'stop' is … of 'pause', 'resume', 'restart'"),
        (
            ("restart", "--objective", "power"),
            "shisha-rt tuner: invalid value for '--objective': 'power' is not",
        ),
        (("restart", "--strategy", "exact"), "shisha-rt tuner: invalid value for '--strategy': 'exact' is not"),
        (("restart", "--alpha", "0"), "shisha-rt tuner: invalid value for '--alpha'"),
    ],
)
def test_bad_input_is_one_line(run: Run, argv: tuple[str, ...], expected: str) -> None:
    assert run("tuner", *argv).complaint == says(expected + "…")
