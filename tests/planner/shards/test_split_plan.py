"""Plans with layers split, by costs: against every such chain, for one layer, where memory is short, for latency."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import product

import msgspec
import numpy as np
import pytest

from shisha_rt.costs.costs import CostLayer, Costs
from shisha_rt.costs.costs_evaluator import CostsEvaluator
from shisha_rt.costs.split_costs import ShardScale, SplitCosts
from shisha_rt.costs.team_costs import team_costs
from shisha_rt.model.split import MOST_SUMMED, Axis, Splittable
from shisha_rt.outcome import Outcome
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.rate import OBJECTIVES, Objective
from shisha_rt.planner.exact import exact_plan
from shisha_rt.planner.goal import Goal
from shisha_rt.planner.shards.balance import balanced
from shisha_rt.planner.shards.pieces import pieces_of, refined
from shisha_rt.planner.shards.quickest_split import alone_s
from shisha_rt.planner.shards.split_plan import split_plan
from shisha_rt.planner.shards.spread import spread
from shisha_rt.planner.solution import PlanSolution
from tests.drawn import chunks
from tests.planner.evaluators import costs_of
from tests.planner.shards.every_split import drawn_costs, each_axis, least_period_s, with_joins, with_more_axes

ROUNDING = 1e-9
WHICH_OF_THREE = tuple(product((False, True), repeat=3))


def planned(costs: Costs, *, replicate: bool = False, objective: Objective = "throughput") -> PlanSolution:
    whole = exact_plan(costs, Goal(replicate=replicate, objective=objective))
    return split_plan(costs, whole, Goal(replicate=replicate, objective=objective), handover_s=0.5)


def bottleneck_s(costs: Costs, plan: Plan | None) -> float:
    """Raises ValueError for a plan that must not be."""
    return math.inf if plan is None else CostsEvaluator(costs).measurement_of(plan).bottleneck_s


def with_splits(costs: Costs, *ways: Splittable, overhead_s: float = 0.0) -> Costs:
    return replace(costs, splits=SplitCosts(ways, overhead_s))


def of_bytes(costs: Costs, weight_bytes: list[int], limits: list[int | None]) -> Costs:
    return replace(
        costs,
        layers=tuple(CostLayer(str(i), 1.0, size, 0) for i, size in enumerate(weight_bytes)),
        places=tuple(replace(place, memory_bytes=limit) for place, limit in zip(costs.places, limits, strict=True)),
    )


def shares_of(plan: Plan) -> dict[str, int]:
    """Of a plan with one layer split."""
    splits = [(stage.place, stage.split) for stage in plan.stages if stage.split is not None]
    return {place: split.shares[split.part] for place, split in splits if not split.joins}


@pytest.mark.parametrize("seeds", chunks(1000, 50, short=50))
def test_no_chain_with_splits_is_faster(seeds: range) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        costs = drawn_costs(rng, rng.randint(1, 4), rng.randint(2, 3))
        solution = planned(costs)
        least_s = least_period_s(costs)
        assert bottleneck_s(costs, solution.plan) == pytest.approx(least_s), seed
        if solution.lower_bound_s is not None and solution.plan is not None:
            assert solution.lower_bound_s <= least_s * (1 + 1e-9), seed


@pytest.mark.parametrize("seeds", chunks(1000, 50, short=50))
def test_no_chain_with_splits_and_joins_is_faster(seeds: range) -> None:
    """A plan may be faster than all of these chains, as its joins may be on any place."""
    for seed in seeds:
        rng = random.Random(seed)
        costs = with_joins(rng, drawn_costs(rng, rng.randint(1, 4), rng.randint(2, 3)))
        solution = planned(costs)
        found_s = bottleneck_s(costs, solution.plan)
        assert found_s <= least_period_s(costs) * (1 + 1e-9), seed
        assert solution.lower_bound_s is None or solution.lower_bound_s <= found_s * (1 + 1e-9), seed


@pytest.mark.parametrize("seeds", chunks(400, 40, short=8))
def test_of_several_axes_a_good_one_is_chosen_and_the_bound_allows_for_all(seeds: range) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        costs = with_more_axes(rng, with_joins(rng, drawn_costs(rng, rng.randint(1, 2), rng.randint(2, 3))))
        solution = planned(costs)
        found_s = bottleneck_s(costs, solution.plan)
        least_s = min(least_period_s(chosen) for chosen in each_axis(costs))
        assert found_s <= least_s * 1.2, seed
        if solution.lower_bound_s is not None and solution.plan is not None:
            assert solution.lower_bound_s <= min(least_s, found_s) * (1 + 1e-9), seed


def test_memory_for_no_sixteenth_more() -> None:
    """Each of three places has room for 5.5 sixteenths of the only layer."""
    costs = with_splits(costs_of([[3.0] * 3], [1] * 3), Splittable(0, 0, "columns", 960, 8, ()))
    solution = planned(of_bytes(costs, [16000], [5500] * 3))
    assert solution.outcome is Outcome.FEASIBLE
    assert solution.reason is None
    assert bottleneck_s(costs, solution.plan) == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize(("room", "fits"), [(517, True), (507, False)])
def test_a_layer_for_which_there_is_room_in_single_blocks_alone(room: int, fits: bool) -> None:
    """Shares of 1024 units in sixty-fourths are 512 and 512, or 496 and 528 at least."""
    costs = with_splits(costs_of([[3.0] * 2] * 3, [1] * 2), Splittable(1, 1, "columns", 1024, 1, ()))
    solution = planned(of_bytes(costs, [1, 1024, 1], [room, 509]))
    assert (solution.plan is not None) == fits
    if solution.plan is None:
        assert "layers 1 split" in str(solution.reason)
    else:
        assert math.isfinite(bottleneck_s(costs, solution.plan))


@pytest.mark.parametrize(("slower", "shares"), [(1, (32, 32)), (3, (48, 16)), (7, (56, 8))])
def test_one_layer_is_shared_in_proportion_to_speed(slower: float, shares: tuple[int, int]) -> None:
    costs = with_splits(costs_of([[8.0, 8.0 * slower]], [1, 2]), Splittable(0, 0, "channels", 64, 8, ()))
    solution = planned(costs)
    assert solution.outcome is Outcome.OPTIMAL
    assert solution.plan is not None
    assert shares_of(solution.plan) == dict(zip(("p0", "p1"), shares, strict=True))
    assert bottleneck_s(costs, solution.plan) == solution.lower_bound_s == 8 * slower / (1 + slower)


def test_a_split_that_gains_nothing_is_not_made() -> None:
    way = Splittable(0, 0, "channels", 64, 16, ())
    even = with_splits(costs_of([[4.0, 4.0], [4.0, 4.0]], [1, 1]), way)
    assert planned(even).plan == exact_plan(even).plan
    dear = with_splits(costs_of([[4.0, 4.0]], [1, 1]), way, overhead_s=2.5)
    assert planned(dear).plan == exact_plan(dear).plan


def test_few_shares_where_more_gain_nothing() -> None:
    """The last layer is the slowest, whatever is done about the first one, for which two of three places are enough."""
    costs = with_splits(costs_of([[6.0] * 4, [4.0] * 4], [1] * 4), Splittable(0, 0, "channels", 12, 1, ()))
    plan = planned(costs).plan
    assert plan is not None
    assert bottleneck_s(costs, plan) == 4
    assert [len(shards) for shards in plan.splits] == [2]


def test_axes_that_leave_nothing_to_join_come_first() -> None:
    ways = [Splittable(0, 0, axis, 8, 1, ()) for axis in ("rows", "channels")]
    ways.append(Splittable(0, 0, "inputs", 8, 1, (), summed=True))
    plan = planned(with_splits(costs_of([[8.0, 8.0]], [1, 1]), *ways)).plan
    assert plan is not None
    assert {stage.split.axis for stage in plan.stages if stage.split} == {"channels"}


def test_rows_of_several_layers_are_left_alone() -> None:
    """What overlaps is computed by both, and costs do not know how much that is. What cannot be parted is one layer."""
    costs = with_splits(costs_of([[4.0, 4.0], [6.0, 6.0]], [1, 1]), Splittable(0, 1, "rows", 8, 1, ()))
    assert planned(costs).plan == exact_plan(costs).plan
    assert planned(costs, objective="latency").plan == exact_plan(costs, Goal(objective="latency")).plan
    group = replace(costs, transfer_s=np.array([math.nan]))
    assert bottleneck_s(group, planned(group).plan) == 5
    pair = with_splits(costs, Splittable(0, 1, "channels", 8, 1, (), summed=True))
    assert bottleneck_s(pair, planned(pair).plan) == 5


@pytest.mark.parametrize("axis", ["inputs", "columns"])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_what_is_left_is_joined(axis: Axis, layers: int) -> None:
    """In the stage that follows; where that is split itself, or none follows, by itself."""
    ways = [Splittable(i, i, axis, 96, 1, (), summed=axis == "inputs", joined=True) for i in range(min(layers, 2))]
    costs = with_splits(costs_of([[8.0] * 3] * layers, [1] * 3), *ways)
    plan = planned(costs).plan
    assert plan is not None
    assert bottleneck_s(costs, plan) == pytest.approx(8 * layers / 3, rel=0.05)
    assert sum(plan.joins(index) for index in range(len(plan.stages))) == len(plan.splits)


def test_one_place_does_the_join_and_the_bound_knows() -> None:
    """Of 3 s, the join takes 0.9 s: one place has it and a third of the rest, the other has two thirds."""
    way = Splittable(0, 0, "groups", 3, 1, (), joined=True, join_part=0.3)
    costs = with_splits(costs_of([[3.0, 3.0]], [1, 1]), way)
    solution = planned(costs)
    assert bottleneck_s(costs, solution.plan) == pytest.approx(1.6)
    assert solution.lower_bound_s is not None
    assert solution.lower_bound_s <= 1.6
    assert not solution.latency_proven
    heavy = with_splits(costs_of([[10.0, 10.0]], [1, 1]), msgspec.structs.replace(way, units=7))
    assert bottleneck_s(heavy, planned(heavy).plan) == pytest.approx(5)  # two units and the join, against five
    spare = with_splits(costs_of([[3.0, 3.0, 3.0]], [1, 1, 1]), msgspec.structs.replace(way, units=2))
    assert bottleneck_s(spare, planned(spare).plan) == pytest.approx(1.05)


def test_layers_that_no_place_has_room_for() -> None:
    costs = of_bytes(costs_of([[1.0, 1.0], [2.0, 2.0], [1.0, 1.0]], [1, 1]), [10, 100, 10], [75, 75])
    assert exact_plan(costs).outcome is Outcome.INFEASIBLE
    rows = Splittable(1, 1, "rows", 20, 1, ())  # each shard has all weights
    inputs = Splittable(1, 1, "inputs", 100, 1, (), summed=True)
    for objective in OBJECTIVES:
        assert planned(with_splits(costs, rows), objective=objective).outcome is Outcome.INFEASIBLE
        both = with_splits(costs, rows, inputs)
        assert bottleneck_s(both, planned(both, objective=objective).plan) == 2
    tight = of_bytes(costs, [10, 100, 10], [30, 100])
    channels = with_splits(tight, Splittable(1, 1, "channels", 100, 1, ()))
    plan = planned(channels).plan
    assert plan is not None
    assert bottleneck_s(channels, plan) < math.inf
    assert shares_of(plan)["p0"] <= 20


def test_copies_share_what_a_chain_of_single_places_cannot() -> None:
    """Two of a kind as copies, a third place of another: the second layer's shards are on both pools."""
    costs = with_splits(
        replace(costs_of([[4.0, 4.0, 2.0], [4.0, 4.0, 2.0]], [2, 2, 1]), mixed=False),
        Splittable(0, 0, "channels", 16, 1, ()),
        Splittable(1, 1, "channels", 16, 1, ()),
    )
    solution = planned(costs, replicate=True)
    assert bottleneck_s(costs, exact_plan(costs, Goal(replicate=True)).plan) == 2
    assert bottleneck_s(costs, solution.plan) == 2
    unlike = with_splits(
        replace(costs_of([[12.0, 12.0, 2.0]], [2, 2, 1]), mixed=False), Splittable(0, 0, "channels", 32, 1, ())
    )
    solution = planned(unlike, replicate=True)
    assert solution.plan is not None
    assert bottleneck_s(unlike, solution.plan) == 1.5
    assert [len(stage.teams) for stage in solution.plan.stages] in ([1, 2], [2, 1], [1, 1, 1])


# --- one frame at a time -------------------------------------------------------------------------------------------


def test_latency_by_shares_of_the_heavy_layer() -> None:
    """On the fast place 3 of 4; hand-overs of 0.5 before and behind."""
    costs = with_splits(
        costs_of([[1.0, 3.0], [8.0, 24.0], [1.0, 3.0]], [1, 2]),
        Splittable(1, 1, "channels", 16, 1, ()),
    )
    solution = planned(costs, objective="latency")
    assert str(solution.plan) == (
        "p0: 0-0 | p0: 1-1 (12 of 16 channels) | p1: 1-1 (4 of 16 channels) after 0 | p0: 2-2 after 1,2"
    )
    assert CostsEvaluator(costs).measurement_of(solution.plan or Plan(())).latency_s == 8
    assert solution.lower_bound_s is None


@pytest.mark.parametrize("seeds", chunks(200, 40, short=40))
def test_no_latency_is_higher_for_further_layers_that_can_be_split(seeds: range) -> None:
    """Those that do not gain stay whole, whichever others are split."""
    several = 0
    for seed in seeds:
        rng = random.Random(seed)
        layers, slower = rng.randint(3, 6), [1, *rng.choices([1, 2, 3], k=rng.randint(1, 2))]
        whole_s = rng.choices([1, 2, 8, 16], k=layers)
        costs = costs_of([[layer_s * by for by in slower] for layer_s in whole_s], [1] * len(slower))
        costs = replace(costs, transfer_s=np.array(rng.choices([0, 0, 0.5, math.nan], k=layers - 1)))
        ways = [Splittable(at, at, "channels", 16, 1, ()) for at in sorted(rng.sample(range(layers), 3))]
        goal, handover_s = Goal(objective="latency"), rng.choice([0.1, 0.5, 1, 2, 3])
        whole = exact_plan(costs, goal)
        latencies_s = []
        for some in ([way for way, chosen in zip(ways, bits, strict=True) if chosen] for bits in WHICH_OF_THREE):
            split = with_splits(costs, *some, overhead_s=0.2)
            plan = split_plan(split, whole, goal, handover_s=handover_s).plan
            assert plan is not None
            latencies_s.append(alone_s(team_costs(split), plan, handover_s))
            spans = {stage.split.span for stage in plan.stages if stage.split is not None}
        several += len(spans) > 1
        assert latencies_s[-1] <= min(latencies_s) * (1 + ROUNDING), seed
    assert several > len(seeds) / 10


@pytest.mark.parametrize(("transfer_s", "overhead_s", "handover_s"), [(0, 0, 2.1), (0, 4.1, 0), (4.1, 0, 0)])
def test_no_split_whose_transfers_or_hand_overs_eat_its_gain(
    transfer_s: float, overhead_s: float, handover_s: float
) -> None:
    """Two places halve a layer of 8: what is worth 4."""
    costs = with_splits(
        replace(costs_of([[1.0, 1.0], [8.0, 8.0], [1.0, 1.0]], [1, 1]), transfer_s=np.array([transfer_s, 0.0])),
        Splittable(1, 1, "channels", 16, 1, ()),
        overhead_s=overhead_s,
    )
    whole = exact_plan(costs, Goal(objective="latency"))
    assert split_plan(costs, whole, Goal(objective="latency"), handover_s=handover_s).plan == whole.plan
    little = replace(
        costs, transfer_s=costs.transfer_s / 2, splits=SplitCosts(costs.splits.splittables, overhead_s / 2)
    )
    plan = split_plan(little, whole, Goal(objective="latency"), handover_s=handover_s / 2.2).plan
    assert plan is not None
    assert plan.splits


@pytest.mark.parametrize("slower", [1.0, 2.5])
@pytest.mark.parametrize("layers", [1, 2])
def test_for_latency_too_axes_that_leave_nothing_to_join_come_first(slower: float, layers: int) -> None:
    """Inputs have finer shares, and are told first; what that gains is less than a hand-over to a join."""
    summed = Splittable(0, 0, "inputs", 9216, 1, ("y",), summed=True, joined=True)
    plain = Splittable(0, 0, "columns", 4096, 1, ("y",))
    costs = with_splits(costs_of([[8.0, 8.0 * slower]] * layers, [1, 2]), summed, plain)
    plan = planned(costs, objective="latency").plan
    assert plan is not None
    assert [stage.split.axis for stage in plan.stages if stage.split is not None] == ["columns"] * 2


def test_an_odd_rest_is_in_the_last_share() -> None:
    costs = with_splits(costs_of([[8.0, 24.0]], [1, 2]), Splittable(0, 0, "columns", 1001, 16, ()))
    for objective in OBJECTIVES:
        plan = planned(costs, objective=objective).plan
        assert plan is not None
        assert bottleneck_s(costs, plan) == pytest.approx(6, rel=0.02)
        assert plan.stages[0].split is not None
        assert plan.stages[0].split.shares[0] % 16 == 0


def test_who_has_a_share_of_a_layer_too_heavy_for_all_keeps_no_layer_before_it_for_that() -> None:
    """Each place has room for a little more than half of layer 3, and 0 to 2 take all the time."""
    costs = costs_of([[4.0, 4.0], [3.0, 3.0], [3.0, 3.0], [1.0, 1.0], [1.0, 1.0]], [1, 1])
    costs = with_splits(of_bytes(costs, [1, 1, 1, 100, 1], [60, 60]), Splittable(3, 3, "columns", 100, 1, ()))
    solution = planned(costs)
    assert solution.plan is not None
    assert (
        bottleneck_s(costs, solution.plan) <= 7.5
    )  # 7.4 at best; in chains over pieces one place has 0 to 2, which is 10
    assert set(shares_of(solution.plan)) == {"p0", "p1"}
    assert (solution.lower_bound_s, solution.outcome) == (None, Outcome.FEASIBLE)


@pytest.mark.parametrize("place_count", [2, 3, 20])
def test_random_layers_too_heavy_for_all_have_plans_that_fit(place_count: int) -> None:
    rng = random.Random(place_count)
    for _ in range(6):
        layers = rng.randint(2, 9)
        costs = costs_of([[rng.uniform(1, 9)] * place_count for _ in range(layers)], [1] * place_count)
        heavy = rng.randrange(layers)
        weight_bytes = [1000 if layer == heavy else rng.randint(0, 60) for layer in range(layers)]
        limits: list[int | None] = [rng.choice([900, 800, 990]) for _ in range(place_count)]
        way = Splittable(heavy, heavy, "channels", 64, 16, (), joined=rng.random() < 0.5)
        costs = with_splits(of_bytes(costs, weight_bytes, limits), way)
        assert exact_plan(costs).plan is None
        solution = planned(costs)
        assert solution.plan is not None
        assert math.isfinite(bottleneck_s(costs, solution.plan))


@pytest.mark.parametrize(
    ("layers_s", "heavy", "weight_bytes", "limits", "most_s"),
    [((3, 2, 4), 0, [100, 10, 50], [80, 80], 4.9), ((4, 1, 2), 2, [30, 10, 100], [90, 60], 4.4)],
)
def test_layers_beside_one_too_heavy_for_all_go_where_its_shards_leave_room(
    layers_s: tuple[float, ...], heavy: int, weight_bytes: list[int], limits: list[int | None], most_s: float
) -> None:
    """First with shares as large as one place has room for, then with the room that shares leave to the others."""
    costs = of_bytes(costs_of([[layer_s] * 2 for layer_s in layers_s], [1, 1]), weight_bytes, limits)
    costs = with_splits(costs, Splittable(heavy, heavy, "columns", 10, 1, ()))
    assert bottleneck_s(costs, planned(costs).plan) <= most_s * (1 + ROUNDING)


def test_places_without_a_share_need_no_buffer_for_sums() -> None:
    """Of ten places, two have shares."""
    way = Splittable(0, 0, "inputs", 2, 1, (), summed=True)
    costs = with_splits(of_bytes(costs_of([[4.0] * 10], [1] * 10), [100], [90] * 10), way)
    spread_plan = spread(costs, way, Goal())
    assert spread_plan is not None
    assert len(spread_plan.places) == 2 < MOST_SUMMED < 10


def test_of_plans_as_fast_the_one_that_parts_fewest_layers() -> None:
    """Layer 2 takes 400 s on p2. p1 is faster than p0, but has no time for layers 0 and 1."""
    ways = [Splittable(layer, layer, "columns", 4, 1, ()) for layer in (0, 1)]
    costs = with_splits(costs_of([[400, 300, 900], [400, 300, 900], [900, 900, 400]], [1, 1, 1]), *ways)
    pieces = pieces_of(3, dict.fromkeys(ways, 4))
    least_s, plan = balanced(costs, pieces, [((name,),) for name in ("p0", "p1", "p2")])
    assert (least_s, str(plan)) == (400, "p0: 0-0 | p1: 1-1 | p2: 2-2")


def test_a_shard_is_entered_at_its_layers_entry_and_its_own_cost_where_these_are_least() -> None:
    way = Splittable(1, 1, "columns", 4, 1, ())
    scales = {(way.span, place): ShardScale(fixed, 1.0) for place, fixed in (("p0", 3.0), ("p1", 2.0))}
    costs = replace(costs_of([[8.0] * 2, [6.0] * 2], [1, 1]), transfer_s=np.array([3.0]))
    costs = replace(costs, splits=SplitCosts((way,), 0.5, scales))
    assert refined(costs, pieces_of(2, {way: 2})).transfer_s.tolist() == [3.0, 2.0 * (0.5 + 3.0)]
