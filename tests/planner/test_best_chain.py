"""`exact` with copies and teams against every chain there is, by hand, and at its limits."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from shisha_rt.costs.alike import kinds_of
from shisha_rt.costs.costs import CostPlace, Costs, CostTeam
from shisha_rt.costs.costs_evaluator import CostsEvaluator
from shisha_rt.outcome import Outcome
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.rate import OBJECTIVES, Objective
from shisha_rt.planner.exact import exact_plan
from shisha_rt.planner.goal import Goal
from shisha_rt.planner.solution import PlanSolution
from tests.drawn import chunks
from tests.planner.evaluators import costs_of
from tests.planner.every_chain import ROUNDING, best, every_chain, random_costs
from tests.wording import says

INSTANCES = 1000


def measured(costs: Costs, solution: PlanSolution) -> Measurement:
    """The plan passes the gate, and can run."""
    assert solution.plan is not None
    assert solution.plan.is_chain
    measurement = CostsEvaluator(costs).measurement_of(solution.plan)
    assert measurement.can_run
    return measurement


class TestAgainstEveryChain:
    @pytest.mark.parametrize("seeds", chunks(INSTANCES, 50, short=50))
    def test_it_finds_the_optimum(self, seeds: range) -> None:
        outcomes = set()
        for seed in seeds:
            rng = random.Random(seed)
            costs = random_costs(rng, rng.randint(1, 7), rng.randint(1, 5), rng.choice([None, 1.0, 0.1]))
            most_stages = rng.choice([None, None, rng.randint(1, 4)])
            for objective in OBJECTIVES:
                solution = exact_plan(costs, Goal(most_stages=most_stages, replicate=True, objective=objective))
                outcomes.add(solution.outcome)
                chains = every_chain(costs, most_stages or len(costs.places))
                optimum = best(chains, latency=objective == "latency")
                if optimum is None:
                    assert (solution.plan, solution.outcome) == (None, Outcome.INFEASIBLE), seed
                    continue
                measurement = measured(costs, solution)
                if objective == "throughput" and len(kinds_of(costs)) > 2 and measurement.bottleneck_s < optimum[0]:
                    # Places left of another kind serve, too: no chain of the enumeration has that.
                    assert solution.lower_bound_s is not None
                    assert solution.lower_bound_s <= measurement.bottleneck_s
                    assert solution.outcome in (Outcome.OPTIMAL, Outcome.FEASIBLE)
                    continue
                assert (measurement.bottleneck_s, measurement.latency_s) == pytest.approx(optimum, rel=ROUNDING), (
                    seed,
                    objective,
                )
                assert (solution.outcome, solution.latency_proven) == (Outcome.OPTIMAL, True), seed
                assert solution.lower_bound_s == measurement.value(objective)
                assert most_stages is None or len(solution.plan.stages if solution.plan else ()) <= most_stages
        assert outcomes >= {Outcome.OPTIMAL, Outcome.INFEASIBLE}


def stop_after(asked: int) -> Callable[[], bool]:
    asks = count()
    return lambda: next(asks) >= asked


class TestByHand:
    def test_copies_of_a_layer_that_cannot_be_parted(self) -> None:
        # Layer 1 takes 8 s whatever is done: with three copies of it a frame comes every 8/3 s.
        costs = costs_of([[1] * 4, [8] * 4, [1] * 4], ranks=(1,) * 4)
        solution = exact_plan(costs, Goal(replicate=True))
        assert (str(solution.plan), solution.lower_bound_s) == ("p0, p1, p2, p3: 0-2", 2.5)
        assert exact_plan(costs).lower_bound_s == 8

    def test_copies_on_unlike_places(self) -> None:
        costs = costs_of([[2, 2, 6]] * 3, ranks=(1, 1, 2))
        solution = exact_plan(costs, Goal(replicate=True))
        assert str(solution.plan) == "p0, p1, p2: 0-2"
        assert solution.lower_bound_s == pytest.approx(1 / (1 / 6 + 1 / 6 + 1 / 18))

    def test_with_three_kinds_places_left_become_further_copies(self) -> None:
        # With a kind for each stage the best is p0 alone, 4 s, while the other two idle.
        solution = exact_plan(costs_of([[2, 4, 6]] * 2, ranks=(1, 2, 3)), Goal(replicate=True))
        assert (str(solution.plan), solution.outcome) == ("p0, p1, p2: 0-1", Outcome.OPTIMAL)
        assert solution.lower_bound_s == pytest.approx(1 / (1 / 4 + 1 / 8 + 1 / 12))

    def test_with_three_kinds_that_may_not_be_mixed_each_stage_has_one(self) -> None:
        costs = replace(costs_of([[2, 4, 6]] * 2, ranks=(1, 2, 3)), mixed=False)
        solution = exact_plan(costs, Goal(replicate=True))
        assert (solution.lower_bound_s, solution.outcome) == (4, Outcome.OPTIMAL)
        assert solution.space == says("chains of stages, …")

    def test_a_slow_place_of_a_third_kind_makes_nothing_slower(self) -> None:
        # Of two kinds a stage may have both, of three it has one: both served as copies, then one did alone.
        costs = costs_of([[1, 1, 2, 2]], ranks=(1, 1, 2, 2))
        more = costs_of([[1, 1, 2, 2, 99]], ranks=(1, 1, 2, 2, 3))
        before_s, after_s = (
            measured(each, exact_plan(each, Goal(replicate=True))).bottleneck_s for each in (costs, more)
        )
        assert after_s <= before_s

    def test_each_copy_has_to_hold_the_weights(self) -> None:
        costs = costs_of([[4] * 3] * 2, ranks=(1,) * 3)
        layers = tuple(replace(layer, weight_bytes=10) for layer in costs.layers)
        places = tuple(CostPlace(place.name, 1, 15) for place in costs.places)
        assert str(exact_plan(replace(costs, layers=layers), Goal(replicate=True)).plan) == "p0, p1, p2: 0-1"
        small = exact_plan(replace(costs, layers=layers, places=places), Goal(replicate=True))
        assert (small.lower_bound_s, len(small.plan.stages if small.plan else ())) == (4, 2)

    def test_latency_in_plain_chains(self) -> None:
        costs = replace(costs_of([[1, 3], [1, 3]], ranks=(1, 2)), transfer_s=np.array([1.5]))
        solution = exact_plan(costs, Goal(objective="latency"))
        assert (str(solution.plan), solution.lower_bound_s, solution.latency_proven) == ("p0: 0-1", 2, True)

    def test_a_team_that_runs_what_no_place_can(self) -> None:
        team = CostTeam(("p0", "p1"), np.array([1.0, 1.0]))
        costs = replace(costs_of([[1, 1], [None, None]], ranks=(1, 1)), teams=(team,))
        assert str(exact_plan(costs, Goal(replicate=True)).plan) == "p0+p1: 0-1"
        assert exact_plan(costs).outcome is Outcome.INFEASIBLE

    @pytest.mark.parametrize("objective", OBJECTIVES)
    def test_why_there_is_none(self, objective: Objective) -> None:
        costs = costs_of([[1, None], [None, 1], [1, None]], ranks=(1, 1))
        solution = exact_plan(costs, Goal(replicate=True, objective=objective))
        assert (solution.outcome, solution.lower_bound_s) == (Outcome.INFEASIBLE, None)
        assert solution.reason == says("… of up to 2 stages has … layers 0-2 (2)")
        nobody = exact_plan(costs_of([[1, 1], [None, None]], ranks=(1, 2)), Goal(replicate=True, objective=objective))
        assert (nobody.reason or "").startswith("no place can run layer 1: ")


class TestLimits:
    @pytest.mark.parametrize("objective", OBJECTIVES)
    def test_what_is_known_when_it_is_stopped_is_true(self, objective: Objective) -> None:
        rng = random.Random(2)
        times = [[rng.uniform(1, 3)] * 4 + [rng.uniform(2, 6)] * 3 for _ in range(8)]
        costs = costs_of(times, ranks=(1,) * 7)
        optimum = exact_plan(costs, Goal(replicate=True, objective=objective))
        best_s = measured(costs, optimum).value(objective)
        outcomes = []
        for asked in count():
            solution = exact_plan(costs, Goal(replicate=True, objective=objective, should_stop=stop_after(asked)))
            outcomes.append(solution.outcome)
            assert solution.lower_bound_s is not None
            assert solution.lower_bound_s <= best_s * (1 + ROUNDING)
            if solution.plan is None:
                assert (solution.outcome, solution.reason) == (Outcome.LIMIT, says("stopped before the …"))
                continue
            found_s = measured(costs, solution).value(objective)
            assert (solution.outcome is Outcome.OPTIMAL) == (found_s == solution.lower_bound_s)
            if solution == optimum:
                break
        assert set(outcomes) == {Outcome.LIMIT, Outcome.FEASIBLE, Outcome.OPTIMAL}

    @pytest.mark.parametrize("objective", OBJECTIVES)
    def test_more_kinds_than_can_be_told_apart(self, objective: Objective) -> None:
        costs = costs_of([[1 + i / 100 for i in range(40)]] * 40, ranks=[1] * 40)
        solution = exact_plan(costs, Goal(replicate=True, objective=objective))
        measurement = measured(costs, solution)
        if objective == "latency":  # 40 s on the quickest place, which no plan beats
            assert solution.outcome is Outcome.OPTIMAL
            assert measurement.latency_s == pytest.approx(40)
            return
        assert solution.outcome is Outcome.OPTIMAL  # one stage, on all of them
        assert measurement.bottleneck_s == pytest.approx(40 / sum(1 / (1 + i / 100) for i in range(40)))

    def test_a_kind_that_is_left_out_may_have_teams(self) -> None:
        team = CostTeam(("p2", "p3"), np.array([5.0, 5.0]))
        costs = replace(costs_of([[1, 2, 9, 9]] * 2, ranks=(1, 2, 3, 3)), teams=(team,))
        solution = exact_plan(costs, Goal(replicate=True, most_cells=3))
        assert solution.is_partial
        assert measured(costs, solution).bottleneck_s <= 2

    def test_a_search_on_some_places_proves_no_latency(self) -> None:
        """It finds the smallest bottleneck, but leaves out the kind whose team is as fast with a lower latency."""
        team = CostTeam(("p0", "p1"), np.array([7.0]))
        costs = replace(costs_of([[14, 14, 14, 8]], ranks=(1, 1, 1, 1)), teams=(team,))
        some, every = (exact_plan(costs, Goal(replicate=True, most_cells=cells)) for cells in (3, 100))
        assert (some.is_partial, every.is_partial, some.outcome) == (True, False, Outcome.OPTIMAL)
        assert measured(costs, some).bottleneck_s == measured(costs, every).bottleneck_s
        assert measured(costs, some).latency_s > measured(costs, every).latency_s
        assert (some.latency_proven, every.latency_proven) == (False, True)

    def test_more_layers_than_can_be_told_apart(self) -> None:
        # The second half cannot run where the first can: stages have to end in the middle.
        costs = costs_of([[1] * 60 + [None] * 40] * 210 + [[None] * 60 + [1] * 40] * 210, ranks=[1] * 100)
        solution = exact_plan(costs, Goal(replicate=True))
        assert measured(costs, solution).bottleneck_s == 210 / 40
        assert solution.lower_bound_s is not None
        assert solution.lower_bound_s > 0.999 * 210 / 40  # the kinds cannot help each other, and prices say so

    def test_many_places_of_two_kinds(self) -> None:
        costs = costs_of([[1] * 32 + [2] * 32] * 50, ranks=[1] * 32 + [2] * 32)
        solution = exact_plan(costs, Goal(replicate=True))
        assert solution.outcome is Outcome.OPTIMAL
        assert measured(costs, solution).bottleneck_s == pytest.approx(50 / 48)

    @pytest.mark.parametrize(("layers", "places"), [(3, 17_000), pytest.param(90, 3_000, marks=pytest.mark.long)])
    def test_more_places_than_anyone_has(self, layers: int, places: int) -> None:
        """All of them serve, those too that the search itself leaves out (a thousand of the three)."""
        costs = costs_of([[1] * places] * layers, ranks=[1] * places)
        solution = exact_plan(costs, Goal(replicate=True))
        assert solution.outcome is Outcome.OPTIMAL
        assert measured(costs, solution).bottleneck_s == pytest.approx(layers / places)
