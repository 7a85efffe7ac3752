"""The long run under random changes: how long it is, and what its samples are summed up to."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks.live.disturbance import Busy, LongRun
from benchmarks.rigs.resources import Sample, summary
from benchmarks.rigs.tuned import Case, Tuned
from shisha_rt.machine.config.machine_file import load_machine


def test_it_is_as_long_as_it_says() -> None:
    """Of a daemon that answers and nothing else: what is looked at is this process."""
    calls: list[tuple[str, Any]] = []
    control = SimpleNamespace(
        status=lambda: {"places": []}, call=lambda operation, **arguments: calls.append((operation, arguments))
    )
    daemon = SimpleNamespace(child=SimpleNamespace(pid=os.getpid()), control=control, rest=lambda: None)
    case = SimpleNamespace(machine=load_machine("demo"))
    process = Busy(core=0)
    run = LongRun(cast(Tuned, daemon), cast(Case, case), process)
    try:
        samples = run.go_on(minutes=0.005)
    finally:
        process.end()
    assert calls[0] == ("tuner_set", {"resume": True})
    assert run.changes == 1
    (own,) = [row for row in summary(samples) if row["what"] == "daemon"]
    assert float(str(own["minutes"])) >= 0.005


def test_all_samples_are_summed_up() -> None:
    samples = [Sample(60.0 * minute, "daemon", 2**20 * (50 + minute), 2**20 * 90, 34) for minute in range(10)]
    (row,) = summary(samples)
    assert (row["samples"], row["minutes"]) == (10, 9.0)
    assert row["anon MiB/min"] == pytest.approx(1.0)
    assert (row["anon MiB, first"], row["anon MiB, last"]) == (50.5, 58.5)
