"""`exact` with places on other hosts: against every chain there is, by hand, and at its limits."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from shisha_rt.costs.alike import kinds_of
from shisha_rt.costs.costs_evaluator import CostsEvaluator
from shisha_rt.outcome import Outcome
from shisha_rt.planner.exact import exact_plan
from shisha_rt.planner.goal import Goal
from tests.drawn import chunks
from tests.planner.every_far_chain import every_far_chain, random_far_costs

INSTANCES = 500
ROUNDING = 1e-9


class TestAgainstEveryChain:
    @pytest.mark.parametrize("copies", [False, True])
    @pytest.mark.parametrize("seeds", chunks(INSTANCES, 50, short=20))
    def test_what_is_proven_is_so_and_no_bound_is_too_high(self, seeds: range, copies: bool) -> None:
        outcomes: Counter[Outcome] = Counter()
        for seed in seeds:
            rng = random.Random(seed)
            costs = random_far_costs(rng, rng.randint(1, 7), rng.randint(1, 4))
            most_stages = rng.choice([None, None, rng.randint(1, 4)])
            chains = list(every_far_chain(costs, most_stages or len(costs.places), copies=copies))
            fastest = exact_plan(costs, Goal(most_stages=most_stages, replicate=copies))
            quickest = exact_plan(costs, Goal(most_stages=most_stages, replicate=copies, objective="latency"))
            outcomes[fastest.outcome] += 1
            if not chains:
                assert (fastest.outcome, quickest.outcome) == (Outcome.INFEASIBLE,) * 2, seed
                continue
            assert fastest.plan is not None
            assert quickest.plan is not None
            assert fastest.lower_bound_s is not None
            measurement = CostsEvaluator(costs).measurement_of(fastest.plan)
            least_s = min(chain.period_s for chain in chains)
            if copies and len(kinds_of(costs)) > 2 and measurement.bottleneck_s < least_s * (1 - ROUNDING):
                # Places left of another kind serve, too: no chain of the enumeration has that.
                assert fastest.lower_bound_s <= measurement.bottleneck_s, seed
                continue
            assert measurement.bottleneck_s >= least_s * (1 - ROUNDING), seed
            assert fastest.lower_bound_s <= least_s * (1 + ROUNDING), seed
            if fastest.outcome is Outcome.OPTIMAL:
                assert measurement.bottleneck_s == pytest.approx(least_s, rel=ROUNDING), seed
                assert fastest.lower_bound_s == measurement.bottleneck_s
                if fastest.latency_proven:
                    as_fast = [chain.latency_s for chain in chains if chain.period_s <= least_s * (1 + ROUNDING)]
                    assert measurement.latency_s == pytest.approx(min(as_fast), rel=ROUNDING), seed
            else:  # some chain is as fast as is said but for what its places share of a link
                assert any(chain.stages_s < chain.links_s for chain in chains), seed
            alone = CostsEvaluator(costs).measurement_of(quickest.plan)
            assert quickest.outcome is Outcome.OPTIMAL, seed
            assert alone.latency_s == pytest.approx(min(chain.latency_s for chain in chains), rel=ROUNDING), seed
            assert quickest.lower_bound_s == pytest.approx(alone.latency_s)
        assert outcomes[Outcome.OPTIMAL] > len(seeds) / 2
