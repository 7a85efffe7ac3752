"""What shards and joins take and hold by costs of layers."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs

from shisha_rt.costs.alike import among
from shisha_rt.costs.costs import CostLayer
from shisha_rt.costs.split_costs import PricedSplit, ShardScale, ShardTime, SplitCosts
from shisha_rt.costs.team_costs import team_costs
from shisha_rt.model.split import Split, Splittable
from shisha_rt.plan.plan import Plan, Stage
from tests.planner.evaluators import costs_of

WAY = Splittable(1, 1, "inputs", 8, 2, (), summed=True)
COSTS = replace(
    costs_of([[1.0, 2.0], [8.0, 16.0], [4.0, math.nan]], [1, 2]),
    layers=tuple(CostLayer(str(i), 1.0, size, 5) for i, size in enumerate((10, 81, 20))),
    transfer_s=np.array([0.5, 0.25]),
    splits=SplitCosts((WAY,), overhead_s=0.125),
)
WHOLE = Split((1, 1), "inputs", (6, 2), 2)
SUMS = Plan(
    (
        Stage(((0, 0),), (("p0",),)),
        Stage(((1, 1),), (("p0",),), (0,), split=replace(WHOLE, part=0)),
        Stage(((1, 1),), (("p1",),), (0,), split=replace(WHOLE, part=1)),
        Stage(((1, 2),), (("p0",),), (1, 2), split=WHOLE),
    )
)


def test_a_shard_takes_its_share_its_entry_and_something_more() -> None:
    """The join: what follows, and its entry."""
    assert team_costs(COSTS).team_s(SUMS) == ((1.0,), (6 + 0.5 + 0.125,), (4 + 0.5 + 0.125,), (4.25,))


def test_both_terms_are_corrected_on_each_place() -> None:
    slower = replace(COSTS, splits=replace(COSTS.splits, scales={((1, 1), "p1"): ShardScale(4.0, 2.0)}))
    assert team_costs(slower).team_s(SUMS) == ((1.0,), (6.625,), (2 * 4 + 4 * 0.625,), (4.25,))
    assert slower.splits.least_scale == 1.0
    quicker = replace(COSTS.splits, scales={((1, 1), "p1"): ShardScale(0.5, 2.0)})
    assert quicker.least_scale == 0.5


def test_a_place_that_cannot_run_the_layers_has_no_shard() -> None:
    last = Split((2, 2), "columns", (1, 1), 0)
    shards = [Stage(((2, 2),), ((place,),), split=replace(last, part=part)) for part, place in enumerate(("p0", "p1"))]
    assert team_costs(COSTS).team_s(Plan(tuple(shards))) == ((2 + 0.25 + 0.125,), (math.inf,))


def test_some_all_and_none_of_the_units() -> None:
    costs = team_costs(COSTS)
    assert [costs.share_s(WAY, units, "p0") for units in (0, 1, 8)] == [0.0, 1 + 0.5 + 0.125, 8.0]
    assert [costs.share_bytes(WAY, units) for units in (0, 1, 8)] == [0, 11, 81]
    assert COSTS.splits.join_s((1, 1), "inputs", math.inf, "p0") == math.inf
    uncut = replace(COSTS, transfer_s=np.array([math.nan, 0.25]))
    assert team_costs(uncut).shard_s(replace(WHOLE, part=0), ("p0",)) == math.inf


@pytest.mark.parametrize(("limits", "full"), [((96, 26), ""), ((95, 26), "p0"), ((96, 25), "p1")])
def test_a_shard_holds_its_share_of_the_weights(limits: tuple[int, int], full: str) -> None:
    """p0: layers 0 and 2, and 61 of 81 bytes; p1: 21; and 5 that are live."""
    places = tuple(replace(place, memory_bytes=limit) for place, limit in zip(COSTS.places, limits, strict=True))
    stages_s = team_costs(replace(COSTS, places=places)).team_s(SUMS)
    assert {stage.place for stage, (s,) in zip(SUMS.stages, stages_s, strict=True) if math.isinf(s)} == {full} - {""}


def test_what_is_told_of_shards_comes_first() -> None:
    """On p1 1 second and another for each unit, up to 2 of them; on p0 what joining takes, besides what follows."""
    shard_times: dict[PricedSplit, ShardTime] = {
        ((1, 1), "inputs", "p0"): ShardTime(0.0, 1.0, 6, 0.75),
        ((1, 1), "inputs", "p1"): ShardTime(1.0, 1.0, 2),
    }
    costs = replace(COSTS, splits=replace(COSTS.splits, shard_times=shard_times))
    assert [s for (s,) in team_costs(costs).team_s(SUMS)] == [1.0, 6.0, 3.0, 5.0]
    slowed = among(costs, ["p0", "p1"], [1.0, 2.0])
    assert [s for (s,) in team_costs(slowed).team_s(SUMS)] == [1.0, 6.0, 6.0, 5.0]
    assert set(among(costs, ["p0"], [1.0]).splits.shard_times) == {((1, 1), "inputs", "p0")}
    crowded = replace(
        costs, splits=replace(costs.splits, shard_times={((1, 1), "inputs", "p1"): ShardTime(1.0, 1.0, 1)})
    )
    assert team_costs(crowded).team_s(SUMS)[2] == (math.inf,)


def test_the_part_that_joining_takes_is_not_shared() -> None:
    """Of 8 seconds a quarter is the join's, on top of what follows and its entry."""
    costs = replace(COSTS, splits=replace(COSTS.splits, splittables=(structs.replace(WAY, join_part=0.25),)))
    assert team_costs(costs).team_s(SUMS) == ((1.0,), (6 * 0.75 + 0.625,), (4 * 0.75 + 0.625,), (4.25 + 2,))
