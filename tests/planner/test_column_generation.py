"""Very many places: what no plan is faster than, plans near that, and the linear programs behind both."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations, pairwise, product

import numpy as np
import pytest

from shisha_rt.arrays import Floats
from shisha_rt.costs.costs import CostLayer, CostPlace, Costs
from shisha_rt.costs.costs_evaluator import CostsEvaluator
from shisha_rt.costs.link_speed import OneWay
from shisha_rt.costs.links import AS_INPUT, CostTensor, HostLink
from shisha_rt.outcome import Outcome
from shisha_rt.plan.plan import Plan
from shisha_rt.planner import prices
from shisha_rt.planner.column_generation import SPACE, _near, wide_plan
from shisha_rt.planner.exact import exact_plan
from shisha_rt.planner.goal import Goal
from shisha_rt.planner.linear import maximize
from shisha_rt.planner.place_classes import ClassCosts, class_costs
from shisha_rt.planner.prices import Route
from tests.planner.evaluators import costs_of

SLACK = 1 + 1e-9


def drawn(rng: random.Random, layers: int, counts: tuple[int, ...]) -> Costs:
    """Each kind with times of its own for each layer; some cannot run one."""
    columns = []
    for kind, count in enumerate(counts):
        column = [(1 + kind) * rng.uniform(0.5, 2) for _ in range(layers)]
        if kind and rng.random() < 0.3:
            column[rng.randrange(layers)] = float("nan")
        columns += [column] * count
    return Costs(
        layers=tuple(CostLayer(str(i), 1.0, 10, 0) for i in range(layers)),
        places=tuple(CostPlace(f"p{i}", 1, None) for i in range(len(columns))),
        time_s=np.array(columns).T,
        transfer_s=np.array([rng.choice([0.0, 0.3]) for _ in range(layers - 1)]),
    )


def best_s(costs: Costs) -> float:
    """By trying everything: each place in one stage or in none."""
    evaluator = CostsEvaluator(costs)
    layers, places = len(costs.layers), [place.name for place in costs.places]
    least_s = float("inf")
    for stages in range(1, min(layers, len(places)) + 1):
        for cuts in combinations(range(1, layers), stages - 1):
            spans = list(pairwise((0, *cuts, layers)))
            for on in product(range(stages + 1), repeat=len(places)):
                teams = [[name for name, at in zip(places, on, strict=True) if at == stage] for stage in range(stages)]
                if all(teams):
                    runs = ((first, end - 1, team) for (first, end), team in zip(spans, teams, strict=True))
                    least_s = min(least_s, evaluator.measurement_of(Plan.chain(runs)).bottleneck_s)
    return least_s


def test_what_a_route_uses_is_summed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With all routes in each round, hundreds of rounds over dozens of classes took most of a planner's minute."""
    summed = []

    def counted(space: ClassCosts, route: Route) -> Floats:
        summed.append(route)
        return used(space, route)

    used = prices._use
    monkeypatch.setattr(prices, "_use", counted)
    solution = wide_plan(drawn(random.Random(3), 12, (1,) * 8), Goal(replicate=True))
    assert solution is not None
    assert len(summed) == solution.statistics["probes"] > 10


@pytest.mark.parametrize("times", [[[0, 0, 1, 1]] * 2, [[0, 0, 1], [1, 1, 0]], [[0] * 4] * 3])
def test_stages_may_take_no_time(times: list[list[float]]) -> None:
    solution = exact_plan(costs_of(times, [1] * len(times[0])), Goal(replicate=True, most_cells=2))
    assert (solution.outcome, solution.lower_bound_s) == (Outcome.OPTIMAL, 0)


def test_a_linear_program() -> None:
    solved = maximize(np.array([3.0, 5.0]), np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 2.0]]), np.array([4.0, 12.0, 18.0]))
    assert (solved.value, solved.at.tolist()) == (36, [2, 6])
    assert solved.prices == pytest.approx([0, 1.5, 1])


def test_a_program_without_an_end() -> None:
    with pytest.raises(ValueError, match="column 0: it may grow"):
        maximize(np.ones(1), np.array([[-1.0]]), np.ones(1))


def test_prices_prove_what_a_program_finds() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        rows, columns = rng.integers(1, 12, 2)
        use, gain, limit = rng.uniform(0.1, 1, (rows, columns)), rng.uniform(0, 1, columns), rng.uniform(0, 1, rows)
        limit[rng.uniform(size=rows) < 0.3] = 0
        solved = maximize(gain, use, limit)
        assert (use @ solved.at <= limit + 1e-9).all()
        assert (solved.prices @ use >= gain - 1e-9).all()
        assert solved.prices @ limit == pytest.approx(solved.value, abs=1e-9)


def test_no_plan_is_faster_than_the_bound() -> None:
    rng = random.Random(3)
    for _ in range(12):
        costs = drawn(rng, 3, rng.choice([(2, 2), (3, 1), (1, 1, 2)]))
        solution = wide_plan(costs, Goal())
        assert solution is not None
        assert solution.plan is not None
        assert solution.lower_bound_s is not None
        least_s, found_s = best_s(costs), CostsEvaluator(costs).measurement_of(solution.plan).bottleneck_s
        assert solution.lower_bound_s <= least_s * SLACK
        assert solution.lower_bound_s <= found_s * SLACK
        assert found_s <= 2 * least_s  # it is made for many places, and there are four


def test_a_thousand_places_of_many_kinds_come_near_the_bound() -> None:
    costs = drawn(random.Random(4), 12, tuple(40 + kind for kind in range(25)))
    solution = exact_plan(costs, Goal(replicate=True))
    assert solution.plan is not None
    assert solution.space == SPACE
    assert solution.lower_bound_s is not None
    assert CostsEvaluator(costs).measurement_of(solution.plan).bottleneck_s < 1.05 * solution.lower_bound_s


def test_cuts_near_others_are_moved_added_or_left_out() -> None:
    assert sorted(_near((0, 2, 4, 9), 10)) == sorted(
        [(0, 4, 9), (0, 1, 4, 9), (0, 3, 4, 9), (0, 4, 6, 9)]  # without the cut at 2, or with it moved
        + [(0, 2, 9), (0, 2, 3, 9), (0, 2, 5, 9), (0, 2, 6, 9), (0, 2, 8, 9)]  # the same of the cut at 4
        + [(0, 1, 2, 4, 9), (0, 2, 3, 4, 9), (0, 2, 4, 6, 9)]  # and a cut amid each stage
    )


def test_fewer_stages_if_so_many_are_asked_for() -> None:
    costs = drawn(random.Random(5), 10, (30, 30, 30))
    for most in (1, 2):
        solution = wide_plan(costs, Goal(most_stages=most))
        assert solution is not None
        assert solution.plan is not None
        assert len(solution.plan.stages) <= most


def test_what_does_not_fit_is_cut() -> None:
    costs = replace(
        drawn(random.Random(6), 4, (20, 20)),
        places=tuple(CostPlace(f"p{i}", 1, 20 if i < 20 else 30) for i in range(40)),
    )
    solution = wide_plan(costs, Goal())
    assert solution is not None
    assert solution.plan is not None
    assert len(solution.plan.stages) > 1
    assert CostsEvaluator(costs).measurement_of(solution.plan).can_run


def test_it_has_nothing_to_say_where_nothing_fits() -> None:
    costs = replace(drawn(random.Random(6), 2, (2,)), places=(CostPlace("p0", 1, 5), CostPlace("p1", 1, 5)))
    assert wide_plan(costs, Goal()) is None


TENSORS = (
    CostTensor("input", 100, AS_INPUT, (0, 2)),
    CostTensor("a", 10, 0, (1,)),
    CostTensor("b", 1, 1, (2, 3)),
    CostTensor("output", 1000, 2, (3,)),
)


def on_hosts(places: int, bytes_per_s: float) -> Costs:
    """Three hosts of as many places each, on which the network takes 3 s, and one place of the daemon's own."""
    return Costs(
        layers=tuple(CostLayer(str(i), 1.0, 10, 0) for i in range(3)),
        places=(
            *(CostPlace(f"h{host}.{i}", 1, None, f"h{host}") for host in range(3) for i in range(places)),
            CostPlace("own", 1, None),
        ),
        time_s=np.ones((3, 3 * places + 1)),
        transfer_s=np.zeros(2),
        tensors=TENSORS,
        links=tuple(HostLink(f"h{host}", OneWay(0.5, bytes_per_s), OneWay(0.5, bytes_per_s)) for host in range(3)),
    )


def test_places_behind_links_are_busy_for_the_longest_of_three() -> None:
    space = class_costs(on_hosts(4, 1001.0))
    assert sorted(place_class.count for place_class in space.classes) == [1, 12]
    remote = next(number for number, place_class in enumerate(space.classes) if place_class.group is not None)
    assert space.seconds[remote][0, 3] == 3
    assert space.seconds[remote][2, 3] == pytest.approx(0.5 + 1000 / 1001)
    assert space.link_s[:, 0, 3].tolist() == [100 / 1001, 1]
    assert space.links.tolist() == [3, 3]


@pytest.mark.parametrize(("bytes_per_s", "most", "places"), [(1001.0, 3 + 1 / 3, 3), (500.5, 1.5 + 1 / 3, 2)])
def test_no_host_is_given_much_more_than_its_link_carries(bytes_per_s: float, most: float, places: int) -> None:
    """A host sends one answer a second, or one in two, and could compute four in three."""
    costs = on_hosts(4, bytes_per_s)
    solution = wide_plan(costs, Goal(most_stages=1))
    assert solution is not None
    assert solution.plan is not None
    assert solution.lower_bound_s == pytest.approx(1 / most, rel=1e-2)
    used = [name.split(".")[0] for name in solution.plan.places]
    assert {name: used.count(name) for name in used} == {"h0": places, "h1": places, "h2": places, "own": 1}
