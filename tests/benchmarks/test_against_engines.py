"""What the contest with plain engines makes of its rounds."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.live.against_engines import DAEMON, Measured, Reading, contest_row, cpu_row
from benchmarks.report.results import Spread

ROUNDS = tuple(
    {
        DAEMON: Reading(daemon_s, {"workers": daemon_s, "client": 0.001}),
        "openvino_throughput": Reading(0.009),
        "ort_threads": Reading(0.006),
        "ort_copies": Reading(copies_s),
    }
    for daemon_s, copies_s in ((0.005, 0.004), (0.010, 0.008), (0.005, 0.005))
)


def status(cpu_s: float | None) -> dict[str, Any]:
    stage = {"places": ["core0"], "first": 0, "last": 3, "placement": None}
    stages = [{**stage, "cpu_s": 0.002}, {**stage, "cpu_s": cpu_s}]
    return {"plan": {"stages": stages}, "tuner": {"trials_total": 3}, "bottleneck_s": None}


def test_each_figure_has_its_spread() -> None:
    row = contest_row(Measured("net", 2, ROUNDS, status(0.001), placed_anew=1))
    assert row["best rival"] == "ort_copies"
    assert row["best rival / daemon"] == Spread(0.8, 0.8, 0.9)
    assert row["daemon ms"] == Spread(5.0, 5.0, 7.5)
    assert row["placed anew"] == 1


def test_what_was_not_measured_is_not_a_nought() -> None:
    measured, unmeasured = (cpu_row(Measured("net", 2, ROUNDS, status(s), placed_anew=0)) for s in (0.001, None))
    assert measured["engines in workers ms"] == pytest.approx(3.0)
    assert unmeasured["engines in workers ms"] is None
    assert unmeasured["slowest stage ms"] is None
    waiting = unmeasured["waiting ms"]
    assert isinstance(waiting, Spread)
    assert waiting.median == pytest.approx(4.0)  # of 10 ms of two cores 5 in workers, 1 in the client
