"""A search's trials: what counts as the best of them."""

from __future__ import annotations

import math

import pytest

from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan
from shisha_rt.tuning.run import SearchRun


def of(bottleneck_s: float) -> tuple[Plan, Measurement]:
    """A plan that takes so long, and no other does, within a band of 5%."""
    return Plan.of([(0, round(1e3 * min(bottleneck_s, 1e3)), "a")]), Measurement((bottleneck_s,), 0.05, 32, 1.0)


@pytest.mark.parametrize(
    ("trials_s", "verdicts", "best"),
    [
        ((1.0, 0.9), ("first", "better"), 1),
        ((1.0, 1.1), ("first", "not_better"), 0),
        ((1.0, 0.97, 0.98), ("first", "not_better", "not_better"), 0),
        ((1.0, 0.9, 0.87), ("first", "better", "not_better"), 1),
        ((1.0, 0.96, 0.93), ("first", "not_better", "better"), 2),
        ((math.inf, 1.0), ("cannot_run", "better"), 1),
        ((1.0, math.inf), ("first", "cannot_run"), 0),
    ],
)
def test_the_best_is_the_best_beyond_noise(trials_s: tuple[float, ...], verdicts: tuple[str, ...], best: int) -> None:
    run = SearchRun(1)
    assert tuple(run.judge(*of(trial_s)) for trial_s in trials_s) == verdicts
    assert run.trials == len(trials_s)
    assert run.best == of(trials_s[best])
