"""How the turns of a daemon's loop are noted: every second of CPU time once, under the name of what it was spent on."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator

import pytest

from benchmarks.rigs.loop_process import Turns, figures


@pytest.fixture
def turns() -> Iterator[Turns]:
    before = gc.callbacks[:]
    yield Turns()
    gc.callbacks[:] = before


def spend(seconds: float) -> None:
    end_s = time.thread_time() + seconds
    while time.thread_time() < end_s:
        pass


def test_what_is_within_counts_under_its_own_name(turns: Turns) -> None:
    turns.begin()
    with turns.doing("outer"):
        spend(0.002)
        for _ in range(2):
            with turns.doing("inner"):
                spend(0.003)
    turns.end()
    ((took_s, _, parts),) = turns.longest
    assert {what for what, _ in parts} >= {"outer", "inner"}
    assert len(turns.by_what["inner"]) == 2
    assert turns.by_what["inner"][0] >= 0.003
    assert took_s >= sum(seconds for _, seconds in parts) >= 0.008
    assert turns.by_what["outer"][0] <= took_s - 0.006


def test_a_collection_of_garbage_is_told_of(turns: Turns) -> None:
    with turns.doing("outer"):
        gc.collect()
    turns.end()
    assert len(turns.by_what["collection 2"]) == 1


def test_the_longest_turns_are_kept(turns: Turns) -> None:
    for number in range(200):
        turns.begin()
        if number == 100:
            spend(0.02)
        turns.end()
    assert len(turns.turns_s) == 200
    assert max(turns.longest)[1] == 101
    assert len(turns.longest) < 100


def test_figures_of_many() -> None:
    summary = figures(number / 1000 for number in range(1, 1001))
    assert summary == {"count": 1000, "p50": 0.501, "p99": 0.991, "p99.9": 1.0, "largest": 1.0}
    assert figures([2.0])["p99"] == 2.0
