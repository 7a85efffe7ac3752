"""A short run of what `benchmarks fuzz` does for long, and that it notices what it is there for."""

from __future__ import annotations

import contextlib
import os

import pytest

from benchmarks.robust.fuzz import fuzzed
from benchmarks.robust.targets import TARGETS, Refused, kept

SEED = int(os.environ.get("SHISHA_FUZZ_SEED", "0"))
SHORT = 3000


@pytest.mark.parametrize("name", TARGETS)
def test_what_nobody_should_send_is_taken_or_refused_in_one_line(name: str) -> None:
    count = max(40, round(SHORT * TARGETS[name].share))
    counts, defects = fuzzed(name, SEED, 0, count)
    assert defects == []
    assert counts["taken"] + counts["refused"] == count
    assert min(counts["taken"], counts["refused"]) > 0, "cases that are all alike find nothing"


@pytest.mark.parametrize("name", TARGETS)
def test_what_it_begins_with_is_taken(name: str) -> None:
    for data in TARGETS[name].bases():
        TARGETS[name].take(data)


@pytest.mark.parametrize("name", TARGETS)
def test_what_was_found_once_is_found_no_more(name: str) -> None:
    for data in kept(name):
        with contextlib.suppress(Refused):
            TARGETS[name].take(data)


def test_a_case_is_the_same_each_time() -> None:
    for name, target in TARGETS.items():
        assert target.case(name, 3, 7) == target.case(name, 3, 7)
        assert len({target.case(name, 3, number) for number in range(30)}) > 10
