"""A plan is counted as the paper counts it, and networks are checked before anything is run."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from benchmarks.partitiontuner.cases import GIVEN, Case, cases, planned
from benchmarks.partitiontuner.orders import order_rows
from shisha_rt.errors import BadInput
from shisha_rt.papers.partitiontuner.partition_plan import nodes_of_stage
from shisha_rt.planner.strategies import SCHEMES
from tests.papers.partitiontuner.random_processors import fork_join, random_processors


def test_a_plan_is_counted_by_what_is_on_the_last_place() -> None:
    rng = random.Random(5)
    costs = random_processors(rng, fork_join(rng, 3))
    for scheme in SCHEMES:
        plan = planned(Case("squeezenet", GIVEN, Path()), scheme, costs)
        on_npu = [
            costs.ops[node]
            for stage in plan.scheme_plan.plan.stages
            if stage.place == costs.places[-1]
            for node in nodes_of_stage(costs, stage)
        ]
        assert (plan.cell.convs_on_npu, plan.cell.relus_on_npu) == (on_npu.count("Conv"), on_npu.count("Relu"))
        assert plan.convs == costs.ops.count("Conv")
        assert plan.over_bound >= 1


def test_a_network_that_the_paper_has_not_got_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"--networks: vgg: the paper has .* zfnet512"):
        list(cases(["vgg"], tmp_path))


def test_schedules_are_never_below_the_least_of_any_order() -> None:
    barriers, forkjoin = order_rows(6)
    assert barriers["graphs"] == forkjoin["graphs"] == 6
    assert float(str(barriers["worst"])) >= float(str(forkjoin["worst"])) >= 1 - 1e-9
