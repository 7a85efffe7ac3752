"""What counts as within 1% and as a frame lost, and every tuner on one small machine."""

from __future__ import annotations

import math
import random

import pytest

from benchmarks.paper.guided import GUIDED, TUNERS, Case, Tuned, drawn, quantile, row
from shisha_rt.papers.simulate.simulated_evaluator import FRAMES
from tests.planner.test_guided import drawn as drawn_costs

CASE = Case("by hand", "C0", drawn_costs(random.Random(1), layers=9, places=3))


def tuned(*ratios: float, final: float = 1.0) -> Tuned:
    return Tuned(CASE, GUIDED, ratios, final, cpu_s=0.001 * len(ratios))


def test_the_first_trial_within_one_percent_counts() -> None:
    assert tuned(1.3, 1.011, 1.01, 1.0).trials_to_optimum == 3
    assert tuned(1.3, 1.011).trials_to_optimum == math.inf


def test_frames_lost_are_what_the_optimum_would_have_done_meanwhile() -> None:
    # Trials that take 1.5 and 2 times as long as the optimum's: half as many again, and as many again.
    assert tuned(1.5, 2.0, 1.0).frames_lost == 1.5 * FRAMES


def test_the_row_of_a_tuner() -> None:
    runs = [tuned(1.5, 1.0), tuned(1.0), tuned(1.5, 1.5, 1.5, final=1.5), tuned(*[1.5] * 5, 1.0)]
    figures = row(runs, "all", "C0")
    assert (figures["runs"], figures["trials"]) == (4, 2.5)
    assert (figures["to 1%: median"], figures["95%"]) == (2, math.inf)
    assert (figures["within 4 %"], figures["within 8 %"], figures["ever %"]) == (50, 75, 75)
    assert (figures["final / optimum"], figures["its 95%"]) == (1.0, 1.5)
    assert figures["frames lost"] == (1 + 0 + 3 + 5) / 2 * FRAMES / 4
    assert figures["CPU ms"] == pytest.approx(1)


def test_quantiles_are_values_that_occur() -> None:
    assert quantile([1, 2, 3, math.inf], 0.5) == 2
    assert quantile([1, 2, 3, math.inf], 0.75) == 3
    assert quantile([1, 2, 3, math.inf], 0.76) == math.inf


def test_every_tuner_on_the_same_true_costs() -> None:
    by_tuner = {run.tuner: run for run in drawn(CASE, draw=0, sigma=0.3, tuners=list(TUNERS))}
    assert list(by_tuner) == list(TUNERS)
    for run in by_tuner.values():
        assert min(run.ratios) >= 1 - 1e-9  # none beats what is proven
        assert run.final in run.ratios
    again = next(drawn(CASE, draw=0, sigma=0.3, tuners=[GUIDED]))
    assert (again.ratios, again.final) == (by_tuner[GUIDED].ratios, by_tuner[GUIDED].final)


def test_told_the_truth_the_first_trial_is_the_optimum() -> None:
    assert next(drawn(CASE, draw=0, sigma=0.0, tuners=[GUIDED])).trials_to_optimum == 1
