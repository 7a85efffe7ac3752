"""`exact` against every plan there is, against an integer programme, and on what a plan can fail for."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count

import numpy as np
import pytest

from shisha_rt.costs.costs import CostLayer, CostPlace, Costs, stage_service_s, why_infeasible
from shisha_rt.costs.costs_evaluator import CostsEvaluator
from shisha_rt.outcome import Outcome
from shisha_rt.planner.exact import exact_plan
from shisha_rt.planner.goal import Goal
from shisha_rt.planner.solution import PlanSolution
from tests.drawn import chunks
from tests.planner.evaluators import costs_of
from tests.planner.every_chain import random_costs
from tests.wording import says

# About one in four cannot be planned at all.
INSTANCES = 1400
LARGER_INSTANCES = 65
ROUNDING = 1e-9
ANOTHER_S = math.nextafter(1.0, 2.0)


def every_plan(costs: Costs, most_stages: int) -> Iterator[tuple[float, float]]:
    """Bottleneck and latency of each plan that can run, worked out from the definitions."""
    layers, places = len(costs.layers), len(costs.places)

    def service_s(first: int, last: int, place: int) -> float:
        rows, capacity = range(first, last + 1), costs.places[place].memory_bytes
        need = sum(costs.layers[i].weight_bytes for i in rows) + max(costs.layers[i].live_bytes for i in rows)
        if capacity is not None and need > capacity:
            return math.nan
        return math.fsum([costs.transfer_s[first - 1] if first else 0.0, *(costs.time_s[i, place] for i in rows)])

    table = {
        (first, last, place): taken
        for place in range(places)
        for first in range(layers)
        for last in range(first, layers)
        if not math.isnan(taken := service_s(first, last, place))
    }

    def extend(first: int, free: frozenset[int], times: tuple[float, ...]) -> Iterator[tuple[float, float]]:
        if first == layers:
            yield max(times), math.fsum(times)
        elif len(times) < most_stages:
            for last in range(first, layers):
                for place in free:
                    taken = table.get((first, last, place))
                    if taken is not None:
                        yield from extend(last + 1, free - {place}, (*times, taken))

    return extend(0, frozenset(range(places)), ())


def random_instance(seed: int) -> tuple[Costs, int | None]:
    rng = random.Random(seed)
    layers, places = rng.randint(1, 9), rng.randint(1, 5)
    # Of tenths, sums that are equal on paper differ in their last bits with the order of adding them up.
    costs = random_costs(rng, layers, places, rng.choice([None, 1.0, 0.1]), most_kinds=places)
    return costs, rng.choice([None, None, rng.randint(1, 5)])


def checked(costs: Costs, solution: PlanSolution, most_stages: int | None = None) -> tuple[float, float]:
    """Bottleneck and latency of the plan, which can run and is as good as it is said to be."""
    assert solution.plan is not None
    measured = CostsEvaluator(costs).measurement_of(solution.plan)
    assert measured.can_run
    assert most_stages is None or len(solution.plan.stages) <= most_stages
    assert (solution.outcome, solution.lower_bound_s) == (Outcome.OPTIMAL, measured.bottleneck_s)
    return measured.bottleneck_s, math.fsum(measured.service_s)


class TestAgainstEveryPlan:
    @pytest.mark.parametrize("seeds", chunks(INSTANCES, 140, short=140))
    def test_it_finds_the_optimum_to_the_last_bit(self, seeds: range) -> None:
        outcomes = set()
        for seed in seeds:
            costs, most_stages = random_instance(seed)
            solution = exact_plan(costs, Goal(most_stages=most_stages))
            outcomes.add(solution.outcome)
            optimum = min(every_plan(costs, most_stages or len(costs.places)), default=None)
            if optimum is None:
                assert (solution.plan, solution.outcome) == (None, Outcome.INFEASIBLE), seed
                continue
            bottleneck_s, latency_s = checked(costs, solution, most_stages)
            assert bottleneck_s == optimum[0], seed
            assert solution.latency_proven
            assert latency_s == pytest.approx(optimum[1], rel=ROUNDING), seed
        assert outcomes == {Outcome.OPTIMAL, Outcome.INFEASIBLE}


def with_transfers(costs: Costs, transfer_s: Sequence[float]) -> Costs:
    return replace(costs, transfer_s=np.array(transfer_s, dtype=np.float64))


def with_bytes(costs: Costs, weight_bytes: Sequence[int], memory_bytes: Sequence[int | None]) -> Costs:
    return replace(
        costs,
        layers=tuple(CostLayer(str(i), 1.0, weight, 1) for i, weight in enumerate(weight_bytes)),
        places=tuple(CostPlace(f"p{i}", 1, capacity) for i, capacity in enumerate(memory_bytes)),
    )


def stop_after(asked: int) -> Callable[[], bool]:
    asks = count()
    return lambda: next(asks) >= asked


class TestByHand:
    def test_a_later_begin_may_be_dearer(self) -> None:
        # Without the prefix maximum the answer is 18: the fast place gets to layer 1, the slow ones no further than 2.
        # If it stops short of layer 1, one slow place takes layers 1 and 2 without the transfer of 19: 16.
        costs = with_transfers(costs_of([[4, 18, 18], [6, 10, 10], [20, 6, 6]], ranks=(1, 2, 2)), [0, 19])
        solution = exact_plan(costs)
        assert str(solution.plan) == "p0: 0-0 | p1: 1-2"
        assert solution.lower_bound_s == 16

    def test_no_kind_is_used_more_often_than_it_has_places(self) -> None:
        # Four fast places would take 2 s; there are three, and each slow one takes 4 s for a layer.
        costs = costs_of([[4, 5, 1, 1, 1]] * 8, ranks=(2, 2, 1, 1, 1))
        assert exact_plan(costs).lower_bound_s == 3

    @pytest.mark.parametrize("order", [1, -1])
    def test_times_that_differ_by_one_bit(self, order: int) -> None:
        costs = costs_of([[ANOTHER_S, math.nextafter(ANOTHER_S, 2.0)][::order]], ranks=(1, 1))
        solution = exact_plan(costs, Goal(should_stop=stop_after(100)))
        assert (solution.outcome, solution.lower_bound_s) == (Outcome.OPTIMAL, ANOTHER_S)

    def test_of_equal_bottlenecks_the_least_latency(self) -> None:
        # Layer 0 takes 10 s anywhere; the fast place is better used for the others: 12 s against 16.
        solution = exact_plan(costs_of([[10, 10], [1, 3], [1, 3]], ranks=(1, 2)))
        assert str(solution.plan) == "p1: 0-0 | p0: 1-2"
        assert (solution.lower_bound_s, solution.latency_proven) == (10, True)

    def test_no_more_stages_than_asked_for(self) -> None:
        costs = costs_of([[1, 1, 1, 1]] * 8, ranks=(1,) * 4)
        assert [exact_plan(costs, Goal(most_stages=most)).lower_bound_s for most in (1, 2, 3, 4, 9)] == [8, 4, 3, 2, 2]

    def test_costs_of_zero(self) -> None:
        solution = exact_plan(costs_of([[0, -0.0]] * 3, ranks=(1, 1)))
        assert (solution.outcome, solution.lower_bound_s, solution.statistics["kinds"]) == (Outcome.OPTIMAL, 0, 1)

    def test_places_that_nothing_tells_apart_are_one_kind(self) -> None:
        alike = costs_of([[1, 2, 1, 2]] * 3, ranks=(1, 2, 3, 4))
        assert exact_plan(alike).statistics["kinds"] == 2
        # The network needs 31 bytes in all: 40 are as good as any number.
        assert exact_plan(with_bytes(alike, [10] * 3, [None, 40, 31, 30])).statistics["kinds"] == 3


class TestInfeasible:
    @pytest.mark.parametrize(
        ("costs", "most_stages", "reason"),
        [
            (
                costs_of([[1, 1], [None, None], [1, 1]], ranks=(1, 1)),
                None,
                "… can run layer 1: p0 cannot run layer 1 (1)",
            ),
            (
                costs_of([[1, None], [None, 1], [1, 1]], ranks=(1, 1), illegal_cuts=[0]),
                None,
                "… can run layers 0-1, which no … parts: p0 cannot run layer 1 (1); p1 cannot run layer 0 (0)",
            ),
            (
                with_bytes(costs_of([[1, 1], [1, 1]], ranks=(1, 1)), [10, 50], [20, 40]),
                None,
                "… can run layer 1: layers 1-1 need 51 bytes, and p0 has 20; layers 1-1 need 51 bytes, and p1 has 40",
            ),
            (
                with_bytes(costs_of([[1, 1]] * 5, ranks=(1, 1)), [10] * 5, [21, 21]),
                None,
                "… of up to 2 stages has … layers 0-4 (4)",
            ),
            (
                costs_of([[1, None], [None, 1], [1, None]], ranks=(1, 1)),
                1,
                "… of up to 1 stages has … layers 0-1 (1)",
            ),
        ],
    )
    def test_the_reason_names_the_layer(self, costs: Costs, most_stages: int | None, reason: str) -> None:
        solution = exact_plan(costs, Goal(most_stages=most_stages))
        assert (solution.plan, solution.outcome, solution.lower_bound_s) == (None, Outcome.INFEASIBLE, None)
        assert solution.reason == says(reason)

    def test_places_are_used_once(self) -> None:
        costs = costs_of([[1, None], [None, 1], [1, None]], ranks=(1, 1))
        assert exact_plan(costs).reason == says("… of up to 2 stages has … layers 0-2 (2)")

    def test_a_number_of_stages_that_makes_no_sense(self) -> None:
        with pytest.raises(ValueError, match="most_stages = 0"):
            exact_plan(costs_of([[1]], ranks=(1,)), Goal(most_stages=0))


class TestLimits:
    def test_what_is_known_when_it_is_stopped_is_true(self) -> None:
        costs = random_costs(random.Random(5), layers=14, places=6, unit_s=None)
        optimum_s, latency_s = checked(costs, exact_plan(costs))
        outcomes = []
        for asked in count():
            solution = exact_plan(costs, Goal(should_stop=stop_after(asked)))
            outcomes.append(solution.outcome)
            assert solution.lower_bound_s is not None
            assert solution.lower_bound_s <= optimum_s
            if solution.plan is None:
                assert (solution.outcome, solution.reason) == (Outcome.LIMIT, says("stopped before the …"))
                continue
            measured = CostsEvaluator(costs).measurement_of(solution.plan)
            assert measured.bottleneck_s >= optimum_s
            assert (measured.bottleneck_s == solution.lower_bound_s) == (solution.outcome is Outcome.OPTIMAL)
            if solution.latency_proven:
                assert math.fsum(measured.service_s) == pytest.approx(latency_s, rel=ROUNDING)
                break
        assert list(dict.fromkeys(outcomes)) == [Outcome.LIMIT, Outcome.FEASIBLE, Outcome.OPTIMAL]

    @pytest.mark.parametrize("kinds", [40, 100])
    def test_more_kinds_than_can_be_told_apart(self, kinds: int) -> None:
        # Places that take 1 s, 1.01 s, ... for each of as many layers: a plan without a proof, and a bound for all.
        costs = costs_of([[1 + i / 100 for i in range(kinds)]] * kinds, ranks=[1] * kinds)
        solution = exact_plan(costs)
        assert solution.plan is not None
        assert solution.outcome is Outcome.FEASIBLE
        assert solution.lower_bound_s == pytest.approx({40: 1.2, 100: 1.45}[kinds], rel=0.05)
        assert CostsEvaluator(costs).measurement_of(solution.plan).bottleneck_s == 1 + (kinds - 1) / 100

    def test_too_many_kinds_to_find_a_plan(self) -> None:
        """Each place can run a layer of its own; place 3 can also run the first two, and must not."""
        kinds = 40
        able = [[1 if i == j or (i == 3 and j < 2) else None for i in range(kinds)] for j in range(kinds)]
        solution = exact_plan(costs_of(able, ranks=[1] * kinds))
        assert (solution.plan, solution.outcome) == (None, Outcome.LIMIT)
        assert solution.reason is not None
        assert solution.reason.startswith("40 kinds of places: ")
        assert solution.lower_bound_s == pytest.approx(1)

    def test_with_too_many_kinds_the_plan_is_near_its_bound(self) -> None:
        """On some of the places alone it would be several times as slow."""
        rng = random.Random(1)
        times = [[rng.uniform(1, 1.2) for _ in range(64)] for _ in range(300)]
        solution = exact_plan(costs := costs_of(times, ranks=[1] * 64))
        assert solution.plan is not None
        assert solution.lower_bound_s is not None
        assert CostsEvaluator(costs).measurement_of(solution.plan).bottleneck_s <= 1.2 * solution.lower_bound_s

    def test_fewer_states_when_asked_for(self) -> None:
        costs = costs_of([[1 + i / 100 for i in range(12)]] * 12, ranks=[1] * 12)
        whole, few = exact_plan(costs), exact_plan(costs, Goal(most_cells=100))
        assert (whole.outcome, whole.is_partial) == (Outcome.OPTIMAL, False)
        assert (few.outcome, few.is_partial) == (Outcome.FEASIBLE, True)
        assert few.lower_bound_s is not None
        assert whole.lower_bound_s is not None
        assert few.lower_bound_s <= whole.lower_bound_s

    def test_a_plan_that_comes_early_where_states_are_many(self) -> None:
        rng = random.Random(1)
        times = [[rng.uniform(1, 3) for _ in range(15)] for _ in range(20)]
        costs = costs_of(times, ranks=[1] * 15)
        optimum_s = checked(costs, exact_plan(costs))[0]
        early = exact_plan(costs, Goal(should_stop=stop_after(150)))
        assert early.plan is not None
        assert early.outcome is Outcome.FEASIBLE
        assert CostsEvaluator(costs).measurement_of(early.plan).bottleneck_s < 2 * optimum_s

    def test_a_low_latency_that_is_not_proven(self) -> None:
        proven = unproven = 0
        for seed in range(10):
            costs = random_costs(random.Random(seed), layers=40, places=16, unit_s=None)
            least, limited = exact_plan(costs), exact_plan(costs, Goal(latency_states=0))
            if least.plan is None:
                continue
            assert checked(costs, limited)[0] == checked(costs, least)[0]
            proven += least.latency_proven
            if not limited.latency_proven:
                unproven += 1
                assert checked(costs, limited)[1] >= (1 - ROUNDING) * checked(costs, least)[1]
        assert proven > 3
        assert unproven


class TestAgainstAnIntegerProgramme:
    @pytest.mark.parametrize("seeds", chunks(LARGER_INSTANCES, 13, short=13))
    def test_it_finds_the_optimum(self, seeds: range) -> None:
        pytest.importorskip("scipy.optimize", reason="the integer programme is solved by scipy: extra `solve`")
        for seed in seeds:
            rng = random.Random(f"larger {seed}")
            costs = random_costs(rng, rng.randint(10, 16), rng.randint(4, 8), unit_s=1.0)
            most_stages = rng.choice([None, rng.randint(2, 8)])
            solution = exact_plan(costs, Goal(most_stages=most_stages))
            programme_s = integer_programme_s(costs, most_stages)
            if programme_s is None:
                assert solution.outcome is Outcome.INFEASIBLE, seed
            else:
                # Times are whole numbers: the programme's tolerances cannot hide another optimum.
                assert checked(costs, solution, most_stages)[0] == pytest.approx(programme_s, abs=1e-3), seed


def integer_programme_s(costs: Costs, most_stages: int | None) -> float | None:
    """The smallest bottleneck: the chosen stages are a path through all layers that visits no place twice."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    layers, places = len(costs.layers), len(costs.places)
    stages = [
        (first, last, place)
        for place in range(places)
        for first in range(layers)
        for last in range(first, layers)
        if why_infeasible(costs, first, last, place) is None
        and (not first or not np.isnan(costs.transfer_s[first - 1]))
    ]
    # One column for each stage, and the last for the bottleneck.
    path = np.zeros((layers, len(stages) + 1))
    visits = np.zeros((places, len(stages) + 1))
    times = np.zeros((places, len(stages) + 1))
    times[:, -1] = -1
    for column, (first, last, place) in enumerate(stages):
        path[first, column] += 1
        if last + 1 < layers:
            path[last + 1, column] -= 1
        visits[place, column] = 1
        times[place, column] = stage_service_s(costs, first, last, place)
    entered = np.zeros(layers)
    entered[0] = 1
    result = milp(
        np.append(np.zeros(len(stages)), 1),
        integrality=np.append(np.ones(len(stages)), 0),
        bounds=Bounds(0, np.append(np.ones(len(stages)), np.inf)),
        constraints=[
            LinearConstraint(path, entered, entered),
            LinearConstraint(visits, -np.inf, 1),
            LinearConstraint(times, -np.inf, 0),
            LinearConstraint(visits.sum(axis=0), -np.inf, most_stages or places),
        ],
    )
    assert result.status in (0, 2), result.message
    return None if result.status == 2 else float(result.fun)
