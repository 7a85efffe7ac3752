"""Measuring a plan from a file of costs."""

from __future__ import annotations

import json
import math
from typing import Any, ClassVar

import pytest

from shisha_rt.costs.costs_evaluator import CostsEvaluator
from shisha_rt.costs.costs_file import parse_costs
from shisha_rt.plan.evaluator import Evaluator, Proposal
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan, Stage


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
    measurement = same.measurement_of(Plan.of([(0, 1, "p"), (2, 3, "q")]))
    assert measurement.service_s[0] == measurement.service_s[1]


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
        ([(0, 2, "p")], "layer 3 is in no"),
    ],
)
def test_a_plan_that_no_planner_should_have_made(stages: list[tuple[int, int, str]], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        evaluator().measurement_of(Plan.of(stages))


class TestAnyPlan:
    """p, q and r take 2, 4 and 6 s for layers a, b and c; any two of them together take half as long."""

    COSTS: ClassVar[dict[str, Any]] = {
        "layers": [{"name": name, "weight": 1, "weight_bytes": 10, "live_bytes": 4} for name in "abc"],
        "places": [{"name": name, "rank": 1} for name in "pqr"],
        "time_s": [[2] * 3, [4] * 3, [6] * 3],
        "transfer_s": [0.5, 0.25],
        "teams": [{"places": ["p", "q"], "time_s": [1, 2, 3]}],
    }

    def measured(self, plan: Plan, needs: tuple[frozenset[int], ...] = (), **changes: Any) -> Measurement:
        return CostsEvaluator(parse_costs(json.dumps({**self.COSTS, **changes}), "C.json"), needs).measurement_of(plan)

    def test_copies(self) -> None:
        measurement = self.measured(Plan.chain([(0, 1, [("q",)]), (2, 2, [("p",), ("r",)])]))
        assert (measurement.service_s, measurement.team_s) == ((6.0, 6.25), ((6.0,), (6.25, 6.25)))
        assert (measurement.bottleneck_s, measurement.latency_s, measurement.took_s) == (6.0, 12.25, 6.0)

    def test_a_team_that_is_as_good_as_the_one_told_of(self) -> None:
        measurement = self.measured(Plan.chain([(0, 2, [("r", "p"), ("q",)])]))
        assert measurement.team_s == ((6.0, 12.0),)
        assert measurement.bottleneck_s == pytest.approx(4.0)
        assert measurement.latency_s == 6.0

    def test_a_team_of_which_nothing_is_known(self) -> None:
        assert not self.measured(Plan.chain([(0, 2, [("r", "p", "q")])])).can_run

    def test_a_pool_of_two_stages_has_to_hold_both(self) -> None:
        plan = Plan.chain([(0, 0, [("p",), ("q",)]), (1, 1, [("r",)]), (2, 2, [("p",), ("q",)])])
        rate = self.measured(plan).rate
        assert rate is not None
        assert rate.period_s == ((2 + 6.25) / 2, 4.5, (2 + 6.25) / 2)
        small = [{"name": name, "rank": 1, "memory_bytes": 23} for name in "pqr"]
        assert self.measured(plan, places=small).service_s == (math.inf, 4.5, math.inf)

    def test_branches(self) -> None:
        both_of_the_first = (frozenset[int](), frozenset({0}), frozenset({0}))
        fork = Plan((Stage(((0, 0),), (("p",),)), Stage(((1, 1),), (("q",),), (0,)), Stage(((2, 2),), (("r",),), (0,))))
        measurement = self.measured(fork, both_of_the_first)
        assert (measurement.service_s, measurement.latency_s) == ((2.0, 4.5, 6.25), 8.25)
        with pytest.raises(ValueError, match="needs what layer 1 makes"):
            self.measured(fork)

    def test_a_stage_of_two_runs_pays_for_both_entries(self) -> None:
        plan = Plan((Stage(((0, 0), (2, 2)), (("p",),)), Stage(((1, 1),), (("q",),))))
        assert self.measured(plan, (frozenset[int](),) * 3).service_s == (8.25, 4.5)
