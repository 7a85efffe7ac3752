"""Shisha's first figures: what assignments of threads take by rates made up here, and the triad itself, very short."""

from __future__ import annotations

import threading
from itertools import product

import numpy as np

from benchmarks.report.page import Statement, tally
from benchmarks.report.results import Spread
from benchmarks.shisha import bandwidth
from benchmarks.shisha.bandwidth import MEMORIES, SIZES_GB, THREADS, Assignment, host_rows, predicted, statements
from tests.wording import says

ONE = 0.3e9
AS_DESCRIBED = [predicted(x, y, ONE) for x, y in product((0, *THREADS), THREADS)]


def said(stated: list[Statement], what: str) -> Statement:
    (statement,) = (each for each in stated if what in each.what)
    return statement


def test_threads_add_up_until_the_memory_is_full() -> None:
    assert predicted(2, 1, ONE) == Assignment(2, 1, 0.6e9, 0.3e9)
    assert predicted(8, 8, ONE) == Assignment(8, 8, MEMORIES["hbm"], MEMORIES["ddr"])


def test_the_memory_that_takes_longest_counts() -> None:
    """15 GB in HBM, the rest in DDR; without threads on HBM everything is in DDR."""
    both = Assignment(4, 2, 1e9, 0.5e9)
    assert [both.seconds(size) for size in SIZES_GB] == [15, 32]
    assert Assignment(0, 2, 0.0, 0.5e9).seconds(19) == 38
    row = both.row(Assignment(4, 2, 2e9, 0.5e9))
    assert (row["19 GB, s"], row["19 GB, predicted s"], row["threads on hbm + ddr"]) == (15, 8, "[4+2]")


def test_statements_of_memories_as_they_are_described() -> None:
    stated = statements(AS_DESCRIBED, [10.0, 15.0])
    assert {each.repeats for each in stated if each.kind == "by construction"} == {"yes"}
    assert said(stated, "second thread").repeats == "yes"
    quicker = said(stated, "both memories")
    assert (quicker.repeats, quicker.kind) == ("yes", "predicted")
    assert quicker.ours["ours"] == says("…19 GB: 8.0 s with [8+2], 38.0 s in DDR; 31 GB: 32.0 s with …, 62.0 s in DDR")
    best = said(stated, "another best assignment")
    assert best.repeats == "yes"
    assert best.ours["ours"] == says("…[15-4] GB: [8+2], [15-16] GB: [2+2]")
    fewer = said(stated, "fewer threads")
    assert (fewer.repeats, fewer.ours["ours"]) == ("no", says("…[8+8]: 19 GB: 1.00, 31 GB: 1.00"))
    assert sum(each.repeats == "untried" for each in stated) == 2
    assert str(tally(each.row() for each in stated)) == "3, 0, 1 of 4; apart from these: 2 by construction"


def test_what_one_core_cannot_decide_is_left_open() -> None:
    stated = statements(AS_DESCRIBED, [10.0])
    assert said(stated, "second thread").repeats == "untried"
    assert said(statements(AS_DESCRIBED, [10.0, 10.1]), "second thread").repeats == "no"


def test_the_triad_is_one() -> None:
    a, b, c = np.zeros(20_000), np.arange(20_000.0), np.ones(20_000)
    bandwidth._pass(a, b, c)
    assert (a == b + 3).all()


def test_rates_of_this_host_are_rates() -> None:
    """In small arrays, so of caches: that they are counted, no more."""
    before = threading.active_count()
    rows = list(host_rows(rounds=1, elements=1 << 14))
    assert [row["threads"] for row in rows] == [1, 2][: len(rows)]
    for row in rows:
        rates = row["GB/s"]
        assert rates is None if row["undisturbed"] == 0 else isinstance(rates, Spread) and rates.median > 0
    assert threading.active_count() == before
