"""The best chain over any order of layers: by hand, and against all orders of small networks."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from shisha_rt.costs.costs import CostBatch, Costs, why_no_other_order
from shisha_rt.costs.costs_evaluator import CostsEvaluator
from shisha_rt.costs.links import CostTensor, layer_needs
from shisha_rt.costs.team_costs import team_costs
from shisha_rt.model.spans import groups_of
from shisha_rt.papers.order.downsets import every_downset, group_needs
from shisha_rt.papers.order.ordered_plan import OrderedPlan, OrderLimits, in_file_layers, ordered_plan, reordered_costs
from shisha_rt.plan.form import plan_of, written
from shisha_rt.plan.plan import Plan
from shisha_rt.planner.exact import exact_plan
from shisha_rt.planner.goal import Goal
from tests.drawn import chunks
from tests.papers.order.every_order import Needs, least_of_every_order_s, random_network, with_links
from tests.planner.evaluators import costs_of
from tests.wording import says

FORK: Needs = tuple(map(frozenset, ((), (0,), (1,), (0,), (2, 3))))
"""From 0 to 1 and 2, and to 3, and from both to 4."""
CLOSE = 1e-9


def fork(*layer_s: float, places: int = 2) -> Costs:
    return costs_of([[time_s] * places for time_s in layer_s], ranks=[1] * places)


def file_s(costs: Costs, *, replicate: bool = False) -> float:
    plan = exact_plan(costs, Goal(replicate=replicate)).plan
    return math.inf if plan is None else team_costs(costs).rate(plan).bottleneck_s


def checked(costs: Costs, needs: Needs, ordered: OrderedPlan) -> OrderedPlan:
    """What is promised of a plan is what it takes, by the costs as they were and a checker that knows no orders."""
    if ordered.plan is not None:
        assert CostsEvaluator(costs, needs).measurement_of(ordered.plan).bottleneck_s == ordered.bottleneck_s
        assert plan_of(written(ordered.plan)) == ordered.plan
    return ordered


def test_the_other_branch_first() -> None:
    """In the file's order the long branch has to share a stage: 1 + 1 + 1 | 3 + 1, or 1 + 1 + 1 + 3 | 1."""
    costs = fork(1, 1, 1, 3, 2)
    assert file_s(costs) == 5
    ordered = checked(costs, FORK, ordered_plan(costs, FORK, 5))
    assert ordered == OrderedPlan(ordered.plan, 4, ordered.lower_s)
    assert ordered.is_proven
    assert str(ordered.plan) == "p0: 0-0,3-3 | p1: 1-2,4-4"


def test_a_stage_is_after_what_it_reads_alone() -> None:
    costs = fork(4, 2, 2, 4, 4, places=4)
    assert str(
        in_file_layers(Plan.of([(0, 0, "a"), (1, 1, "b"), (2, 3, "c"), (4, 4, "d")]), (0, 3, 1, 2, 4), FORK)
    ) == ("a: 0-0 | b: 3-3 | c: 1-2 after 0 | d: 4-4 after 1,2")
    assert ordered_plan(costs, FORK, file_s(costs)).plan is None  # one cannot do better than the file here


def test_in_the_files_order_a_chain_stays_a_chain() -> None:
    chain = Plan.of([(0, 1, "a"), (2, 3, "b"), (4, 4, "c")])
    assert in_file_layers(chain, range(5), FORK) == chain


def test_the_bound_alone_may_say_that_no_order_is_better() -> None:
    ordered = ordered_plan(fork(1, 1, 1, 1, 9), FORK, 9)
    assert (ordered.plan, ordered.is_proven) == (None, True)


def short_of_memory(costs: Costs) -> Costs:
    """Layers 0 and 3 fit into one place, and so do the others."""
    layers = [replace(layer, weight_bytes=size) for layer, size in zip(costs.layers, (2, 1, 4, 3, 0), strict=True)]
    return replace(costs, layers=tuple(layers), places=tuple(replace(place, memory_bytes=5) for place in costs.places))


def test_where_only_another_order_has_room() -> None:
    costs = short_of_memory(fork(1, 1, 1, 1, 1))
    assert file_s(costs) == math.inf
    ordered = checked(costs, FORK, ordered_plan(costs, FORK))
    assert str(ordered.plan) == "p0: 0-0,3-3 | p1: 1-2,4-4"
    assert ordered.bottleneck_s == 3


def test_costs_of_cuts_are_of_the_files_order() -> None:
    costs = fork(1, 1, 1, 3, 2)
    assert why_no_other_order(costs, FORK) is None
    assert why_no_other_order(costs, ()) == says("… layer reads what (`tensors`)")
    dear = replace(costs, transfer_s=np.array([0, 0, 0.5, 0]))
    assert why_no_other_order(dear, FORK) == says("`transfer_s` says what … the file's order only")


def test_needs_follow_from_tensors() -> None:
    tensors = (CostTensor("in", 1, -1, (0,)), CostTensor("a", 1, 0, (1, 2)), CostTensor("b", 1, 1, (2, 3)))
    assert layer_needs(tensors, 3) == (frozenset(), frozenset({0}), frozenset({0, 1}))
    assert layer_needs((), 3) == ()


def test_costs_in_another_order_say_the_same_of_each_layer() -> None:
    costs, needs = random_network(random.Random(3), 6, 3)
    costs = with_links(random.Random(3), costs, needs, 1)
    spans = groups_of(6, costs.legal_cuts)
    back = reordered_costs(reordered_costs(costs, spans, range(len(spans))), spans, range(len(spans)))
    assert (back.layers, back.tensors, back.legal_cuts) == (costs.layers, costs.tensors, costs.legal_cuts)
    assert np.array_equal(back.time_s, costs.time_s, equal_nan=True)


def test_with_copies_an_order_is_of_use_where_memory_is_short() -> None:
    costs = short_of_memory(fork(1, 1, 1, 3, 2, places=4))
    assert file_s(costs, replicate=True) == 2.5
    ordered = checked(costs, FORK, ordered_plan(costs, FORK, 2.5, Goal(replicate=True, latency_states=0)))
    assert str(ordered.plan) == "p0, p1: 0-0,3-3 | p2: 1-2 | p3: 4-4"
    assert (ordered.bottleneck_s, ordered.is_proven) == (2, True)


def test_a_search_that_is_stopped_says_what_it_has() -> None:
    costs = fork(1, 1, 1, 3, 2)
    ordered = ordered_plan(costs, FORK, 5, Goal(should_stop=lambda: True))
    assert (ordered.plan, ordered.bottleneck_s, ordered.is_proven) == (None, 5, False)
    assert ordered.lower_s == pytest.approx(4)


@pytest.mark.parametrize("seeds", chunks(120, 6, short=6))
def test_against_every_order(seeds: range) -> None:
    """Where all downsets are known none is better; and what is said to be the least of all orders is no more."""
    for seed in seeds:
        rng = random.Random(seed)
        costs, needs = random_network(rng, rng.randint(4, 8), rng.randint(2, 4))
        least_s = least_of_every_order_s(costs, needs, len(costs.places))
        ordered = checked(costs, needs, ordered_plan(costs, needs, file_s(costs)))
        assert ordered.is_proven
        assert ordered.bottleneck_s == pytest.approx(least_s, rel=CLOSE)
        assert ordered.lower_s <= least_s * (1 + CLOSE) or math.isinf(least_s)
        few = checked(costs, needs, ordered_plan(costs, needs, file_s(costs), limits=_fewer(costs, needs)))
        assert least_s * (1 - CLOSE) <= few.bottleneck_s <= file_s(costs)
        assert few.lower_s <= least_s * (1 + CLOSE)


def _fewer(costs: Costs, needs: Needs) -> OrderLimits:
    """One downset less than there are."""
    downsets = every_downset(group_needs(groups_of(len(costs.layers), costs.legal_cuts), needs), 1 << 8)
    assert downsets is not None
    return OrderLimits(most_downsets=len(downsets) - 1)


@pytest.mark.long
def test_the_search_without_all_downsets_is_seldom_behind() -> None:
    """Of 100 networks for which there is a plan the best order is found for 95 and more."""
    best = 0
    for seed in range(150):
        rng = random.Random(seed)
        costs, needs = random_network(rng, rng.randint(4, 8), rng.randint(2, 4))
        least_s = ordered_plan(costs, needs, file_s(costs)).bottleneck_s
        few_s = ordered_plan(costs, needs, file_s(costs), limits=_fewer(costs, needs)).bottleneck_s
        best += few_s <= least_s * (1 + CLOSE)
        assert few_s <= 1.5 * least_s
    assert best >= 143


@pytest.mark.parametrize("seeds", chunks(60, 3, short=3, first=1000))
def test_over_links_no_promise_is_broken(seeds: range) -> None:
    """With a link for each place, or places that share one."""
    for seed in seeds:
        rng = random.Random(seed)
        costs, needs = random_network(rng, rng.randint(4, 6), rng.randint(2, 4))
        costs = with_links(rng, costs, needs, rng.randint(1, 3))
        least_s = least_of_every_order_s(costs, needs, len(costs.places))
        ordered = checked(costs, needs, ordered_plan(costs, needs, file_s(costs)))
        assert ordered.bottleneck_s >= least_s * (1 - CLOSE)
        assert ordered.lower_s <= least_s * (1 + CLOSE) or math.isinf(least_s)
        if ordered.is_proven:
            assert ordered.bottleneck_s == pytest.approx(least_s, rel=CLOSE)


@pytest.mark.parametrize("seed", range(10))
def test_with_a_link_for_each_place_the_best_order_is_found(seed: int) -> None:
    rng = random.Random(seed)
    costs, needs = random_network(rng, rng.randint(4, 6), rng.randint(2, 3))
    costs = with_links(rng, costs, needs, hosts=len(costs.places))
    ordered = checked(costs, needs, ordered_plan(costs, needs, file_s(costs)))
    assert ordered.bottleneck_s == pytest.approx(least_of_every_order_s(costs, needs, len(costs.places)), rel=CLOSE)


def test_where_batches_are_known_nothing_is_proven_of_other_orders() -> None:
    """Their times are those of the layers in the file's order."""
    costs = costs_of([[1, 1], [5, 5], [1, 1], [1, 1]], ranks=(1, 1))
    costs = replace(costs, batches=(CostBatch(4, costs.time_s / 2),))
    needs: Needs = tuple(map(frozenset, ((), (0,), (0,), (1, 2))))
    file_plan = exact_plan(costs, Goal()).plan
    file_s = team_costs(costs).rate(file_plan).bottleneck_s if file_plan is not None else math.inf
    ordered = ordered_plan(costs, needs, file_s)
    assert not ordered.is_proven
    assert ordered.lower_s == 0.0
