"""A search's trials: what counts as the best of them."""

from __future__ import annotations

import math

import pytest

from shisha_rt.core.tuning.run import SearchRun, moves_between
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan


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


def plan(text: str) -> Plan:
    """From `a: 0-4 | b, c: 5-7`: stages with their copies."""
    stages = [stage.split(": ") for stage in text.split(" | ")]
    return Plan.chain((int(layers[0]), int(layers[2]), names.split(", ")) for names, layers in stages)


@pytest.mark.parametrize(
    ("before", "after", "moves"),
    [
        ("a: 0-4 | b: 5-7", "a: 0-3 | b: 4-7", 1),
        ("a: 0-4 | b: 5-7", "a: 0-4 | b: 5-7", 0),
        ("a: 0-4 | b: 5-7", "a: 0-1 | b: 2-7", 3),
        ("a: 0-3 | b: 4-5 | c: 6-7", "a: 0-2 | b: 3-4 | c: 5-7", 2),  # one to the stage after the next
        ("a: 0-4 | b: 5-5 | c: 6-7", "a: 0-5 | c: 6-7", 1),  # an emptied stage
        ("a: 0-5 | c: 6-7", "a: 0-4 | b: 5-5 | c: 6-7", 1),
        ("a, b: 0-4 | c: 5-7", "a, b: 0-5 | c: 6-7", 1),
        ("a: 0-4 | b: 5-7", "b: 0-3 | a: 4-7", 0),  # no moves lead there
        ("a: 0-4 | b: 5-7", "a: 0-3 | c: 4-7", 0),
        ("a: 0-4 | b: 5-7", "a, b: 0-7", 0),
        ("a: 0-4 | b: 5-7", "a: 0-3 | b: 5-9", 1),  # no gate has passed it
    ],
)
def test_moves_are_layers_that_pass_from_a_stage_to_its_neighbour(before: str, after: str, moves: int) -> None:
    assert moves_between(plan(before), plan(after)) == moves


def test_moves_are_counted_from_the_plan_tried_before() -> None:
    run = SearchRun(1)
    counted = []
    for text in ("a: 0-4 | b: 5-7", "a: 0-3 | b: 4-7", "a: 0-1 | b: 2-7", "a: 0-7"):
        counted.append(run.moves_to(plan(text)))
        run.judge(plan(text), of(1.0)[1])
    assert counted == [0, 1, 2, 6]
