"""One small size: what is drawn, and the row that tells of it."""

from __future__ import annotations

from benchmarks.paper.exact_planner import Size, drawn, measured, measured_with_copies, with_teams
from benchmarks.report.figures import planner_figure
from shisha_rt.plan.rate import OBJECTIVES


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


def test_rows_with_copies() -> None:
    sizes = [Size(8, 6, kinds, draws=2, objective=objective) for kinds in (1, 2) for objective in OBJECTIVES]
    rows = measured_with_copies(sizes)
    assert [(row["kinds"], row["objective"]) for row in rows] == [(size.kinds, size.objective) for size in sizes]
    assert {row["space"] for row in rows} == {"chains of stages, each on any teams of its own"}


def test_teams_are_of_the_first_kind() -> None:
    teams = with_teams(drawn(Size(4, 9, 2), 0), Size(4, 9, 2)).teams
    assert [team.places for team in teams] == [("0", "2"), ("0", "2", "4", "6")]
