"""Random schedules can run, and cases are checked before anything is."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from benchmarks.partitiontuner.cases import GIVEN, Case, cases, checked_schemes, planned
from benchmarks.partitiontuner.schedules import Tried, graph_rows, random_assignment, schedule_summary
from shisha_rt.errors import BadInput
from shisha_rt.papers.partitiontuner.partition_plan import foretold, nodes_of_stage, plan_in_sections
from shisha_rt.papers.partitiontuner.partition_problem import apart_problem
from shisha_rt.placement.check import cost
from shisha_rt.placement.schedule import schedule_of
from shisha_rt.planner.strategies import SCHEMES
from tests.papers.partitiontuner.random_processors import fork_join, random_processors


def test_random_schedules_can_run_and_run_all() -> None:
    seen = set()
    for seed in range(60):
        rng = random.Random(seed)
        costs = random_processors(rng, fork_join(rng, 3))
        problem = apart_problem(costs)
        assignment = random_assignment(rng, problem, 1)
        assert cost(problem, assignment).total_s < math.inf, seed
        plan = plan_in_sections(costs, schedule_of(problem, assignment))
        assert foretold(costs, plan).latency_s < math.inf, seed
        nodes = [node for stage in plan.stages for node in nodes_of_stage(costs, stage)]
        assert sorted(nodes) == list(range(len(costs.spans)))
        seen.add(sum(assignment) / len(assignment) > 0.4)
    assert seen == {True, False}


def test_a_plan_is_counted_by_what_is_on_the_last_place() -> None:
    rng = random.Random(5)
    costs = random_processors(rng, fork_join(rng, 3))
    for scheme in SCHEMES:
        its = planned(Case("squeezenet", GIVEN, Path()), scheme, costs)
        on_npu = [
            costs.ops[node]
            for stage in its.found.plan.stages
            if stage.place == costs.places[-1]
            for node in nodes_of_stage(costs, stage)
        ]
        assert (its.cell.convs_on_npu, its.cell.relus_on_npu) == (on_npu.count("Conv"), on_npu.count("Relu"))
        assert its.convs == costs.ops.count("Conv")
        assert its.over_bound >= 1


def test_hand_overs_are_put_right_by_those_of_other_schedules() -> None:
    """One takes 2 ms in all of them: then nothing is off."""
    found = [Tried("n", 3, 0, n, 1.0, 0.001 * n, 1.0, 1.0 + 0.002 * n) for n in (1, 5, 10)]
    without, told, measured = schedule_summary(found)
    assert without["median off %"] == pytest.approx(1)
    assert told["median off %"] == pytest.approx(100 * (1.01 / 1.005 - 1))
    assert measured["worst %"] == pytest.approx(0)
    assert measured["schedules"] == 3


def test_the_bound_of_a_chain_is_met() -> None:
    rows = {row["shape"]: row for row in graph_rows(12)}
    assert rows["chain"]["worst"] == 1
    assert rows["all"]["graphs"] == 12


def test_what_there_is_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"--networks: vgg: the paper has .* zfnet512"):
        list(cases(["vgg"], tmp_path))
    with pytest.raises(BadInput, match="--schemes: greedy: no such scheme,"):
        checked_schemes(["greedy"])
    assert checked_schemes(["forkjoin", "baseline"]) == ("baseline", "forkjoin")
