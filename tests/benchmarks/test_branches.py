"""What the benchmark of branches reckons: critical paths, hand-overs, random schedules, and its rows."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.live.branch_schedules import random_schedule, schedule_rows
from benchmarks.live.branches import (
    BRANCHES,
    ONE_CORE,
    SIDES,
    TEAM,
    Reading,
    Round,
    alone_row,
    branched,
    forced_row,
)
from benchmarks.report.results import Spread, read_csv, save_csv
from benchmarks.rigs.forced import Taken, Told, critical_s, stages_on_the_way, two_places
from shisha_rt.papers.partitiontuner.partition_plan import foretold
from shisha_rt.papers.partitiontuner.processors import ProcessorCosts
from shisha_rt.plan.plan import Plan, Stage
from tests.papers.partitiontuner.random_processors import fork_join, random_processors, tangled
from tests.papers.partitiontuner.test_scheme_plans import rules

FORK = Plan(
    tuple(
        Stage(((layer, layer),), ((place,),), after)
        for layer, (place, after) in enumerate((("a", ()), ("a", (0,)), ("b", (0,)), ("a", (1, 2))))
    )
)
FORK_S = (1.0, 2.0, 3.0, 1.0)


def costs(seed: int) -> ProcessorCosts:
    rng = random.Random(seed)
    edges = fork_join(rng, 3) if seed % 2 else tangled(rng, 12)
    return random_processors(rng, edges, moving=False, handover_s=0.125)


def test_the_critical_path_is_never_above_what_a_plan_takes() -> None:
    for seed in range(20):
        network = costs(seed)
        alone = replace(network, groups=())
        assert critical_s(alone) <= foretold(alone, random_schedule(alone, random.Random(seed))).latency_s


def test_random_schedules_can_run_and_are_not_all_alike() -> None:
    for seed in range(20):
        network = replace(costs(seed), time_s=tuple((row[0], row[0]) for row in costs(seed).time_s))
        rng = random.Random(seed)
        plans = [random_schedule(network, rng) for _ in range(5)]
        assert all(rules(network).problems(plan) == [] for plan in plans)
        assert len(set(plans)) > 1


def test_a_plan_of_branches_is_found_even_where_hand_overs_eat_the_gain() -> None:
    network = replace(random_processors(random.Random(0), fork_join(random.Random(5), 2), moving=False), groups=())
    alike = replace(network, time_s=tuple((row[0], row[0]) for row in network.time_s))
    found = branched(replace(alike, handover_s=100.0))
    assert found is not None
    assert len(found.plan.stages) > 1
    assert found.foretold.handover_s >= 100.0  # told with what hand-overs cost
    row = random_processors(random.Random(0), [(node, node + 1) for node in range(5)], 1)
    assert branched(row) is None


def test_hand_overs_are_what_is_left_beyond_the_longest_way() -> None:
    assert stages_on_the_way(FORK, FORK_S) == 3
    assert Taken(5.75, FORK_S).handovers_s(FORK) == 0.75
    told = Told("x", FORK, FORK_S)
    assert (told.path_s, told.handovers) == (5.0, 3)


def test_a_told_plan_is_held_against_its_prediction_and_its_bound() -> None:
    told = Told("x", FORK, FORK_S)
    row = forced_row("m", told, [Taken(5.75, FORK_S), Taken(12.25, (2.0, 4.0, 6.0, 2.0))], handover_s=0.1)
    assert row["predicted_ms"] == pytest.approx(5300)
    assert row["measured / bound"] == Spread.of([5.75 / 5.75, 12.25 / 7.25])
    assert row["stages / predicted"] == Spread.of([1.0, 2.0])
    assert row["one handover_us"] == Spread.of([250e3, 750e3])


def test_schedules_are_predicted_with_the_mean_hand_over() -> None:
    told = Told("random", FORK, FORK_S)
    first, second = schedule_rows("m", [(told, Taken(5.3, FORK_S)), (told, Taken(5.9, FORK_S))])
    assert first["mean handover_us"] == pytest.approx(200e3)
    assert first["predicted_ms"] == second["predicted_ms"] == pytest.approx(5600)
    assert first["error %"] == pytest.approx(100 * (5.3 / 5.6 - 1))


def test_a_network_without_branches_has_a_row_too(tmp_path: Path) -> None:

    def one_round(seconds: dict[str, float]) -> Round:
        return {side: Reading(frame_s, None, "p") for side, frame_s in seconds.items()}

    every = dict.fromkeys(SIDES, 2.0) | {TEAM: 1.0, BRANCHES: 1.5}
    few = {"latency": 3.0, ONE_CORE: 2.0, TEAM: 4.0}
    rows = [alone_row("a", [one_round(every)]), alone_row("b", [one_round(few)])]
    with_branches, without = read_csv(save_csv("branches_alone", rows, {}, tmp_path))
    assert (with_branches["latency / better"], with_branches["branches / better"]) == ("2", "1.5")
    assert (without["latency / better"], without["branches / better"]) == ("1.5", "")


def test_two_places_are_alike_or_not() -> None:
    with two_places("", "") as alike, two_places("ort_serial", "openvino", 0.3) as unlike:
        assert [place.speed for place in alike.places] == [1, 1]
        assert not alike.emulated
        assert [place.rank for place in unlike.places] == [1, 2]
        assert [device for place in unlike.places for device in place.devices] == ["ort_serial", "openvino"]
        assert unlike.emulated
