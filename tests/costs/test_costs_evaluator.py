"""Measuring a plan from a file of costs."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from shisha_rt.costs.costs_evaluator import CostsEvaluator
from shisha_rt.costs.costs_file import parse_costs
from shisha_rt.plan.evaluator import Evaluator, Proposal
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan


def evaluator(**changes: Any) -> CostsEvaluator:
    costs = {
        "layers": [{"name": name, "weight": 1, "weight_bytes": 10, "live_bytes": 4} for name in "abcd"],
        "places": [{"name": "p", "rank": 1}, {"name": "q", "rank": 2}, {"name": "r", "rank": 2, "memory_bytes": 24}],
        "time_s": [[1, 2, 3], [2, 4, 3], [0.5, 1, 3], [1, None, 3]],
        "transfer_s": [0.25, None, 0.125],
    }
    return CostsEvaluator(parse_costs(json.dumps({**costs, **changes}), "C.json"))


def test_times_add_up_with_the_entry_transfer() -> None:
    assert evaluator().measurement_of(Plan.of([(0, 0, "q"), (1, 2, "p"), (3, 3, "r")])) == Measurement(
        (2.0, 2.75, 3.125), band=0.0, frames=1, took_s=3.125
    )


def test_what_is_proposed_is_measured() -> None:
    whole: Evaluator = evaluator(time_s=[[1, 2, 3]] * 4)
    assert whole.measure(Proposal(Plan.of([(0, 3, "p")]), "why not")).service_s == (4.0,)


def test_equal_stages_have_equal_times_to_the_last_bit() -> None:
    same = evaluator(time_s=[[0.1] * 3, [0.2] * 3, [0.2] * 3, [0.1] * 3], transfer_s=[0, 0, 0])
    found = same.measurement_of(Plan.of([(0, 1, "p"), (2, 3, "q")]))
    assert found.service_s[0] == found.service_s[1]


@pytest.mark.parametrize(
    ("stages", "service_s"),
    [
        ([(0, 2, "p"), (3, 3, "q")], (3.5, math.inf)),  # q cannot run layer 3
        ([(0, 0, "p"), (1, 3, "r")], (1.0, math.inf)),  # r has room for two layers, not three
    ],
)
def test_a_stage_that_cannot_run_takes_for_ever_and_costs_no_trial_time(
    stages: list[tuple[int, int, str]], service_s: tuple[float, ...]
) -> None:
    assert evaluator().measurement_of(Plan.of(stages)) == Measurement(service_s, band=0.0, frames=1, took_s=0.0)


@pytest.mark.parametrize(
    ("stages", "fault"),
    [
        ([(0, 1, "p"), (2, 3, "r")], "cut 1, between layers 1 and 2, .* is not legal"),
        ([(0, 3, "x")], "is on 'x', expected one of p, q, r"),
        ([(0, 2, "p")], "layer 3 is in no stage, expected one"),
    ],
)
def test_a_plan_that_no_planner_should_have_made(stages: list[tuple[int, int, str]], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        evaluator().measurement_of(Plan.of(stages))
