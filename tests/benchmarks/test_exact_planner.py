"""One small size: what is drawn, and the row that tells of it."""

from __future__ import annotations

from benchmarks.paper.exact_planner import Size, drawn, measured
from benchmarks.report.figures import planner_figure


def test_what_is_drawn_is_of_that_size_and_repeats() -> None:
    size = Size(12, 5, 2, transfers=True)
    costs = drawn(size, 0)
    assert costs.time_s.shape == (12, 5)
    assert len({tuple(column) for column in costs.time_s.T}) == 2
    assert costs.transfer_s.all()
    assert (drawn(size, 0).time_s == costs.time_s).all()
    assert (drawn(size, 1).time_s != costs.time_s).all()


def test_a_row_and_its_figure() -> None:
    row = measured(Size(12, 5, 2, draws=2))
    assert (row["layers"], row["places"], row["kinds"], row["transfers"]) == (12, 5, 2, "no")
    assert (row["cells"], row["latency proven"], row["worst latency gap %"]) == (12, "2 of 2", 0)
    panels = planner_figure([row], [row]).axes
    assert [axes.get_ylabel() for axes in panels] == ["CPU time, s", "peak memory, MiB"] * 2
