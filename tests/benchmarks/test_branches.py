"""What the benchmark of branches reckons: critical paths, plans of branches, and its rows."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

from benchmarks.live.branches import (
    BRANCHES,
    LATENCY,
    ONE_CORE,
    SIDES,
    TEAM,
    alone_row,
    branched,
    critical_s,
    two_places,
)
from benchmarks.report.results import read_csv, save_csv
from shisha_rt.papers.partitiontuner.partition_plan import foretold
from shisha_rt.papers.partitiontuner.processors import ProcessorCosts
from shisha_rt.papers.partitiontuner.scheme_plans import scheme_plan
from tests.papers.partitiontuner.random_processors import fork_join, random_processors, tangled


def costs(seed: int) -> ProcessorCosts:
    rng = random.Random(seed)
    edges = fork_join(rng, 3) if seed % 2 else tangled(rng, 12)
    return random_processors(rng, edges, moving=False, handover_s=0.125)


def test_the_critical_path_is_never_above_what_a_plan_takes() -> None:
    for seed in range(20):
        alone = replace(costs(seed), groups=())
        scheme = scheme_plan("forkjoin", alone)
        assert scheme is not None
        assert critical_s(alone) <= foretold(alone, scheme.plan).latency_s


def test_a_plan_of_branches_is_found_even_where_hand_overs_eat_the_gain() -> None:
    network = replace(random_processors(random.Random(0), fork_join(random.Random(5), 2), moving=False), groups=())
    alike = replace(network, time_s=tuple((row[0], row[0]) for row in network.time_s))
    scheme = branched(replace(alike, handover_s=100.0))
    assert scheme is not None
    assert len(scheme.plan.stages) > 1
    assert scheme.foretold.handover_s >= 100.0  # told with what hand-overs cost
    row = random_processors(random.Random(0), [(node, node + 1) for node in range(5)], 1)
    assert branched(row) is None


def test_a_network_without_branches_has_a_row_too(tmp_path: Path) -> None:
    every = dict.fromkeys(SIDES, 2.0) | {TEAM: 1.0, BRANCHES: 1.5}
    few = {LATENCY: 3.0, ONE_CORE: 2.0, TEAM: 4.0}
    rows = [alone_row("a", [every], "p"), alone_row("b", [few], "p")]
    with_branches, without = read_csv(save_csv("branches_alone", rows, {}, tmp_path))
    assert (with_branches["latency / better"], with_branches["branches / better"]) == ("2", "1.5")
    assert (without["latency / better"], without["branches / better"]) == ("1.5", "")


def test_two_places_have_a_device_each() -> None:
    with two_places("ort_serial") as machine:
        assert [device for place in machine.places for device in place.devices] == ["ort_serial"] * 2
        assert not machine.emulated
