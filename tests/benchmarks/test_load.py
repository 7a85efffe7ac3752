"""What the load sweep draws, and what it makes of latencies and events."""

from __future__ import annotations

import math
import statistics
from itertools import pairwise
from typing import Any

import pytest

from benchmarks.live.load import (
    AtRate,
    Step,
    poisson,
    step_row,
    switched_s,
)
from benchmarks.report.results import Spread
from benchmarks.rigs.asking import ANSWERED, Asking, Came, Heard


def test_arrivals_are_a_poisson_process_and_the_same_for_all_sides() -> None:
    at_s = poisson(100.0, 100.0, "net 30 0")
    assert at_s == poisson(100.0, 100.0, "net 30 0") != poisson(100.0, 100.0, "net 30 1")
    assert at_s == sorted(at_s)
    assert 0 <= at_s[0] < at_s[-1] < 100.0
    assert len(at_s) == pytest.approx(10_000, abs=4 * math.sqrt(10_000))
    gaps_s = [after - before for before, after in pairwise(at_s)]
    assert statistics.stdev(gaps_s) == pytest.approx(0.01, rel=0.05)  # as their mean
    assert len(poisson(0.001, 1.0, "rare")) == 1


def heard(*latencies_s: float, refused: int = 0) -> Heard:
    return Heard(list(latencies_s), refused, failed=0, lost=0)


class Late(Came):
    """Answers a frame when the next one is sent."""

    def __init__(self) -> None:
        super().__init__()
        self._held: list[int] = []

    def send(self, number: int) -> None:
        for held in self._held:
            self._came.put((held, ANSWERED))
        self._held = [number]


def test_an_answer_that_comes_after_its_frame_was_counted_as_lost_is_not_another_frames() -> None:
    """MLServer answered so late beyond its capacity, and the benchmark ended with a KeyError."""
    asking = Asking(Late(), drain_s=0.01)
    assert [asking.arrivals([0.0, 0.01])["lost"] for _ in range(2)] == [1, 1]
    assert len(asking.arrivals([0.0, 0.01])["latencies_s"]) == 1


AT_RATE = AtRate(
    "net",
    120.0,
    10.0,
    [
        {
            "daemon_auto": heard(0.011, 0.011, refused=2),
            "daemon_latency": heard(0.020),
            "daemon_throughput": heard(0.010),
            "mosec": heard(0.020),
        },
        {
            "daemon_auto": heard(0.024, 0.024),
            "daemon_latency": heard(0.040),
            "daemon_throughput": heard(0.020),
            "mosec": heard(0.020),
        },
    ],
)


def test_latencies_are_of_what_was_taken_and_the_rest_is_told() -> None:
    row = AT_RATE.row("daemon_auto")
    assert row["p50 ms"] == Spread.of([11.0, 24.0])
    assert row["p99 ms"] == pytest.approx(24.0)
    assert (row["sent"], row["refused %"]) == (6, pytest.approx(100 * 2 / 6))


def test_a_side_that_answered_nothing_has_no_latency() -> None:
    silent = AtRate("net", 120.0, 10.0, [{"daemon_latency": heard(refused=3)}])
    assert silent.row("daemon_latency")["p50 ms"] is None


def changed(at_s: float, objective: str) -> dict[str, Any]:
    return {"kind": "objective_changed", "time_s": at_s, "objective": objective, "plan": objective}


def live(at_s: float, plan: str) -> dict[str, Any]:
    return {"kind": "plan_live", "time_s": at_s, "plan": plan}


def test_a_step_is_followed_when_the_plan_for_its_objective_is_live() -> None:
    events = [
        live(1.0, "tried before"),
        live(10.6, "tried"),
        live(10.75, "throughput"),
        changed(10.75, "throughput"),
        live(16.5, "latency"),
        changed(16.5, "latency"),
        changed(20.5, "throughput") | {"plan": None},  # it is searched for
        live(21.0, "tried"),
    ]
    up, down, again = Step("throughput", 10.0, 15.0), Step("latency", 15.0, 20.0), Step("throughput", 20.0, 25.0)
    assert [switched_s(step, events) for step in (up, down, again)] == [0.75, 1.5, None]
    row = step_row("net", [up, down, again], events, [heard(0.01), heard(0.01, refused=1)])
    assert row["steps not followed"] == 1
    assert (row["plan changes"], row["other plans"]) == (2, 2)
    assert row["longest s"] == 1.5
    assert (row["frames"], row["refused"], row["lost"]) == (3, 1, 0)
