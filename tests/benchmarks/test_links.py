"""A few small instances, and the rows that tell of them."""

from __future__ import annotations

import pytest

from benchmarks.paper.links import LinkedSize, enumerated, measured_links


@pytest.mark.parametrize("copies", [False, True])
def test_what_is_proven_is_the_best_of_all_chains(copies: bool) -> None:
    row = enumerated(10, copies=copies)
    assert row["instances"] == 10
    assert row["proven"] == row["of these the best"] != 0


def test_rows_of_drawn_networks() -> None:
    row = measured_links(LinkedSize(10, 2, alike=False, draws=1, places=2))
    assert (row["layers"], row["places"], row["hosts"], row["links"], row["copies"]) == (10, 4, 2, "unlike", "no")
