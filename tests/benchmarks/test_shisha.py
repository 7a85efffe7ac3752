"""How Shisha's figures are counted: on one small machine, and on rows made up to be counted by hand."""

from __future__ import annotations

import random

import pytest

from benchmarks.report.results import Row
from benchmarks.shisha.cases import SYNTHNET, Case, Run, best_with_assignment_fps, case, searched, seeded, tuned
from benchmarks.shisha.searches import (
    EXHAUSTIVE,
    PIPE_SEARCH,
    SHISHA,
    alpha_rows,
    compared,
    from_seeds,
    heuristic_rows,
    kept,
    restarted_s,
    search_rows,
    table_1,
    table_2,
)
from benchmarks.shisha.statements import alpha_statements, convergence_statements, heuristic_statements
from shisha_rt.papers.shisha.exhaustive import trial_count
from shisha_rt.papers.shisha.search import Limit
from shisha_rt.papers.simulate.simulated_evaluator import FRAMES


@pytest.fixture(scope="module")
def two_places() -> Case:
    return case(SYNTHNET, "C1")


def test_gains_rise_and_pass_virtual_time(two_places: Case) -> None:
    run = tuned(two_places, seeded(two_places))
    times_s, fps = zip(*run.gains, strict=True)
    assert list(times_s) == sorted(times_s)
    assert list(fps) == sorted(fps)
    assert times_s[0] > FRAMES / fps[0]
    assert run.paper_trials == run.trials_to_best + 10


def test_the_database_of_pipe_search_takes_wall_time_before_it_begins(two_places: Case) -> None:
    run = searched(two_places, "pipe_search", random.Random(0), Limit(1))
    # Of two stages or one, as long for each as in Figure 4.
    assert run.setup_wall_s == pytest.approx(1200 * 18 / 41226)
    assert FRAMES / run.fps < run.time_to_best_s <= (FRAMES + 2) / run.fps


def test_every_search_is_held_against_the_optimum(two_places: Case) -> None:
    by_search = compared(two_places, 3, most_plans=100)
    rows = {str(row["search"]): row for row in search_rows(two_places, by_search)}
    assert {name: row["runs"] for name, row in rows.items() if row["runs"]} == {
        **dict.fromkeys((SHISHA, PIPE_SEARCH, EXHAUSTIVE), 1),
        **dict.fromkeys(("SA", "SA_s", "HC", "HC_s", "RW"), 3),
    }
    assert rows[EXHAUSTIVE]["over optimum"] == 1
    assert rows[EXHAUSTIVE]["trials"] == trial_count(two_places.space) == 36
    assert all(float(str(row["over optimum"])) <= 1 for row in rows.values())
    assert rows[SHISHA]["times as long"] == 1


def test_exhaustive_search_is_left_out_where_it_is_too_large(two_places: Case) -> None:
    assert EXHAUSTIVE not in compared(two_places, 1, most_plans=35)


def test_the_kept_run_is_the_best_and_of_equals_the_soonest() -> None:
    runs = [Run(((at_s, fps),), at_s, 1, 1) for at_s, fps in ((1.0, 5.0), (3.0, 7.0), (2.0, 7.0))]
    assert kept(runs) is runs[2]


def test_runs_that_end_too_early_count_until_one_is_as_good() -> None:
    runs = [Run(((1.0, 5.0),), 4.0, 2, 1), Run(((1.0, 3.0), (2.0, 7.0)), 9.0, 3, 2)]
    assert restarted_s(runs, 6.0) == 4 + 2
    assert restarted_s(runs, 8.0) is None


def test_nothing_with_the_seeds_places_is_better_than_its_best(two_places: Case) -> None:
    start = seeded(two_places)
    assert tuned(two_places, start).fps <= best_with_assignment_fps(two_places, start) <= two_places.optimum_fps


def test_random_seeds_repeat(two_places: Case) -> None:
    first, again = (from_seeds(two_places, 5) for _ in range(2))
    assert first == again
    assert first.row()["random seeds"] == len({run.gains[0] for run in first.drawn}) == 5


def test_tables() -> None:
    assert table_1()[3] == {"heuristic": "H4", "assignment of EPs": "Rank_w", "balancing": "nFEP"}
    assert table_2()[5] == {"machine": "C6", "FEPs": "8 4-core", "SEPs": "none"}


def test_heuristics_are_counted_by_case(two_places: Case) -> None:
    rows = heuristic_rows(two_places, draws=3)
    assert [row["draws"] for row in rows] == [1, 1, 1, 1, 3, 3]
    best, lightest, sooner = heuristic_statements(_heuristic_rows("a", h2_fps=9.0) + _heuristic_rows("b", h2_fps=11.0))
    assert (*best.ours.values(), best.repeats) == ("50%, 1 of 2 (within 0.1%)", "no")
    assert (*lightest.ours.values(), lightest.repeats) == ("at least nFEP, same assignment: 83%, 5 of 6", "partly")
    assert (*sooner.ours.values(), sooner.repeats) == ("100%: sooner in 2, the same in 0 of 2", "yes")


def _heuristic_rows(network: str, h2_fps: float) -> list[Row]:
    fps = {"H1": 10.0, "H2": h2_fps, "H3": 8.0, "H4": 8.0, "H5": 7.0, "H6": 7.0}
    return [
        {"network": network, "machine": "C1", "heuristic": name, "fps": of, "virtual s to best": of}
        for name, of in fps.items()
    ]


def test_alpha_that_is_needed_is_the_least_within_a_hundredth(two_places: Case) -> None:
    rows = list(alpha_rows([(3, two_places)]))
    assert rows[-1]["alpha"] == 100
    assert rows[-1]["over alpha = 100"] == 1
    made_up: list[Row] = [
        {"network": "a", "machine": "C1", "times slower": slowdown, "alpha": alpha, "over alpha = 100": share}
        for slowdown, shares in ((3, (0.995, 1.0)), (6, (0.9, 1.0)))
        for alpha, share in zip((1, 2), shares, strict=True)
    ]
    rises, alike = alpha_statements(made_up)
    assert (*rises.ours.values(), rises.repeats) == ("a, C1: 1, 2", "yes")
    assert (*alike.ours.values(), alike.repeats) == ("alpha = 1: C1: 0.99, 0.90", "no")


def test_no_rival_need_ever_be_as_good(two_places: Case) -> None:
    """Few runs of searches are seldom as good as Shisha; then there is no mean of their times."""
    rows = [dict(row) for row in search_rows(two_places, compared(two_places, 1))]
    for row in rows:
        row["until as good, times as long"] = None
    *_, longer = convergence_statements(rows)
    assert "begun anew until as good as Shisha: never, by 0 of 6 searches" in longer.ours["ours, simulated"]


def test_wall_seconds_of_a_database_are_in_no_sum_of_virtual_ones(two_places: Case) -> None:
    rows = {str(row["search"]): row for row in search_rows(two_places, compared(two_places, 1))}
    assert float(str(rows[PIPE_SEARCH]["wall s before"])) > 0
    run = searched(two_places, "pipe_search", random.Random(0), Limit(1))
    assert rows[SHISHA]["wall s before"] == 0
    assert run.time_s == pytest.approx(run.time_to_best_s)
