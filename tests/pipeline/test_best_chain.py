"""`exact` with copies and teams against every chain there is, by hand, and at its limits."""

from __future__ import annotations

import random

import pytest

from shisha_rt.costs.costs import Costs
from shisha_rt.costs.costs_evaluator import CostsEvaluator
from shisha_rt.outcome import Outcome
from shisha_rt.pipeline.exact import exact_plan
from shisha_rt.pipeline.solution import PlanSolution
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.rate import OBJECTIVES
from tests.drawn import chunks
from tests.pipeline.every_chain import ROUNDING, best, every_chain, random_costs

INSTANCES = 1000


def measured(costs: Costs, solution: PlanSolution) -> Measurement:
    """The plan passes the gate, and can run."""
    assert solution.plan is not None
    assert solution.plan.is_chain
    found = CostsEvaluator(costs).measurement_of(solution.plan)
    assert found.can_run
    return found


class TestAgainstEveryChain:
    @pytest.mark.parametrize("seeds", chunks(INSTANCES, 50, short=100))
    def test_it_finds_the_optimum(self, seeds: range) -> None:
        outcomes = set()
        for seed in seeds:
            rng = random.Random(seed)
            costs = random_costs(rng, rng.randint(1, 7), rng.randint(1, 5), rng.choice([None, 1.0, 0.1]))
            most_stages = rng.choice([None, None, rng.randint(1, 4)])
            for objective in OBJECTIVES:
                solution = exact_plan(costs, most_stages=most_stages, replicate=True, objective=objective)
                outcomes.add(solution.outcome)
                chains = every_chain(costs, most_stages or len(costs.places))
                optimum = best(chains, latency=objective == "latency")
                if optimum is None:
                    assert (solution.plan, solution.outcome) == (None, Outcome.INFEASIBLE), seed
                    continue
                found = measured(costs, solution)
                assert (found.bottleneck_s, found.latency_s) == pytest.approx(optimum, rel=ROUNDING), (seed, objective)
                assert (solution.outcome, solution.latency_proven) == (Outcome.OPTIMAL, True), seed
                assert solution.lower_bound_s == found.value_s(objective)
                assert most_stages is None or len(solution.plan.stages if solution.plan else ()) <= most_stages
        assert outcomes == {Outcome.OPTIMAL, Outcome.INFEASIBLE}
