"""The least way through stretches, with and without budgets, against every way there is."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from shisha_rt.outcome import Outcome
from shisha_rt.papers.gp.shortest_path import BudgetedGraph, Stretch, least_way, undominated
from tests.drawn import chunks


def random_stretches(rng: random.Random, points: int, budgets: int) -> list[Stretch]:
    """A stretch from each point to the next, some past it; what costs little takes much."""
    stretches = []
    for source in range(points - 1):
        for target in {source + 1, min(points - 1, source + rng.randint(1, 3))}:
            options = rng.randint(1, 4)
            costs = [rng.randint(1, 20) for _ in range(options)]
            taken = [[rng.randint(0, 30) / cost for _ in range(budgets)] for cost in costs]
            stretches.append(Stretch(source, target, np.array(costs, float), np.array(taken).reshape(options, budgets)))
    return stretches


def every_way(stretches: Sequence[Stretch], points: int) -> Iterator[tuple[float, list[float]]]:
    def onward(point: int, cost: float, taken: list[float]) -> Iterator[tuple[float, list[float]]]:
        if point == points - 1:
            yield cost, taken
        for stretch in stretches:
            if stretch.source == point:
                for own, used in zip(stretch.costs.tolist(), stretch.taken.tolist(), strict=True):
                    yield from onward(stretch.target, cost + own, [a + b for a, b in zip(taken, used, strict=True)])

    yield from onward(0, 0.0, [0.0] * stretches[0].taken.shape[1])


@pytest.mark.parametrize("seeds", chunks(200, 10, short=10))
def test_it_is_the_least(seeds: range) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        points, budgets = rng.randint(2, 6), rng.randint(0, 3)
        stretches = random_stretches(rng, points, budgets)
        limits = np.array([rng.uniform(2, 15) for _ in range(budgets)])
        fitting = [
            cost
            for cost, taken in every_way(stretches, points)
            if all(used <= limit for used, limit in zip(taken, limits, strict=True))
        ]
        graph = BudgetedGraph(stretches, points, limits)
        way = least_way(graph)
        if not fitting:
            assert (way.picks, way.outcome) == (None, Outcome.INFEASIBLE)
            continue
        assert way.outcome is Outcome.OPTIMAL
        assert way.picks is not None
        assert graph.cost_of(way.picks) == pytest.approx(min(fitting))
        assert way.lower_bound == pytest.approx(min(fitting))
        used = sum((stretches[stretch].taken[option] for stretch, option in way.picks), np.zeros(budgets))
        assert (used <= limits + 1e-9).all()
        assert stretches[way.picks[0][0]].source == 0
        assert stretches[way.picks[-1][0]].target == points - 1


def test_where_too_many_ways_are_left_the_bound_still_holds() -> None:
    unproven = 0
    for seed in range(40):
        rng = random.Random(seed)
        stretches = random_stretches(rng, 6, 1)
        limit = np.array([rng.uniform(6, 15)])
        best = min((cost for cost, (used,) in every_way(stretches, 6) if used <= limit[0]), default=math.inf)
        graph = BudgetedGraph(stretches, 6, limit)
        way = least_way(graph, most_ways=1)
        if way.picks is None:
            assert way.outcome in (Outcome.INFEASIBLE, Outcome.LIMIT)
        else:
            assert graph.cost_of(way.picks) >= best - 1e-9
        if way.lower_bound is not None:
            assert way.lower_bound <= best * (1 + 1e-9)
        if way.outcome is Outcome.OPTIMAL:
            assert way.picks is not None
            assert graph.cost_of(way.picks) == pytest.approx(best)
        else:
            unproven += 1
    assert unproven > 0, "else one way was never too few"


@pytest.mark.parametrize("budgets", [0, 1, 3])
def test_what_is_dominated_goes(budgets: int) -> None:
    rng = np.random.default_rng(budgets)
    costs, taken = rng.integers(0, 9, 60).astype(float), rng.integers(0, 9, (60, budgets)).astype(float)
    kept = undominated(costs, taken)
    rows = np.column_stack((costs, taken))
    for row in rows:
        assert (rows[kept] <= row).all(axis=1).any()
    for i in kept:
        assert not any((rows[j] <= rows[i]).all() for j in kept if j != i)
