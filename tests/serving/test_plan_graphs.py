"""Changes among chains, copies, teams and branches under load, with workers killed between: R1 holds throughout."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from shisha_rt.measure.compile import compile_model
from shisha_rt.plan.plan import Plan
from shisha_rt.plan.verify import PlanRules
from tests.serving.changed_plans import change_plans
from tests.serving.daemon_process import DaemonProcess, machine_file
from tests.serving.identity_model import write_branching_identity_model
from tests.serving.load import Load, assert_kept
from tests.serving.random_plans import Cuttable

PLACES: Final = ("a", "b", "c", "d")
KILL_EVERY: Final = 10


@pytest.fixture(scope="module")
def branching(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_branching_identity_model(tmp_path_factory.mktemp("branching"))


@pytest.fixture(scope="module")
def cuttable(branching: Path) -> Cuttable:
    compiled = compile_model(branching)
    return Cuttable(len(compiled.layers), compiled.legal_cuts, compiled.index.needs)


def test_the_plans_drawn_are_of_every_kind_and_pass_the_gate(cuttable: Cuttable) -> None:
    rng = random.Random(3)
    rules = PlanRules(cuttable.layer_count, PLACES, cuttable.legal_cuts, needs=tuple(cuttable.needs))
    plans = [cuttable.random_plan(rng, PLACES) for _ in range(300)]
    assert [rules.problems(plan) for plan in plans if rules.problems(plan)] == []
    kinds: Counter[str] = Counter()
    for plan in plans:
        kinds["chain"] += plan.is_plain and len(plan.stages) > 1
        kinds["copies"] += any(len(stage.teams) > 1 for stage in plan.stages)
        kinds["team"] += any(len(team) > 1 for stage in plan.stages for team in stage.teams)
        kinds["join"] += any(len(stage.after) > 1 for stage in plan.stages)
        kinds["fork"] += any(sum(i in stage.after for stage in plan.stages) > 1 for i in range(len(plan.stages)))
        kinds["pool"] += any(len(pool.stages) > 1 for pool in plan.pools)
        kinds["runs"] += any(len(stage.work) > 1 for stage in plan.stages)
    assert min(kinds[kind] for kind in ("chain", "copies", "team", "join", "fork", "pool", "runs")) > 10, kinds


def plans(cuttable: Cuttable, rng: random.Random, count: int) -> Iterator[Plan]:
    return (cuttable.random_plan(rng, PLACES) for _ in range(count))


@pytest.mark.parametrize("count", [12, pytest.param(1000, marks=pytest.mark.long)])
def test_changes_of_every_kind_and_deaths_under_load(
    branching: Path, cuttable: Cuttable, tmp_path: Path, count: int
) -> None:
    rng = random.Random(count)
    machine = machine_file(tmp_path, PLACES)
    with DaemonProcess(tmp_path, branching, "--machine", machine) as daemon:
        path = daemon.local_socket
        with Load(daemon.endpoint, 0) as first, Load(daemon.endpoint, 1, sharing=path, line=path) as second:
            killed = change_plans(daemon, first, plans(cuttable, rng, count), PLACES, KILL_EVERY)
        assert_kept(first, second)
        replayed = daemon.control.status()["frames"]["replayed"]
        print(f"{killed} killed, {first.results + second.results} frames, {replayed} again")
