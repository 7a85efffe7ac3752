"""Layers in shards, live: answers, changes and deaths under load, and what is refused."""

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
from tests.serving.identity_model import LAYERS, write_identity_model
from tests.serving.load import Load, assert_kept
from tests.serving.random_plans import Cuttable

PLACES: Final = ("a", "b", "c")
CHANNELS: Final = 48
SHAPE: Final = (1, CHANNELS, 4, 4)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_identity_model(tmp_path_factory.mktemp("wide"), channels=CHANNELS)


@pytest.fixture(scope="module")
def cuttable(wide: Path) -> Cuttable:
    compiled = compile_model(wide)
    return Cuttable(len(compiled.layers), compiled.legal_cuts, compiled.index.needs, compiled.index.splits)


@pytest.fixture(scope="module")
def running(wide: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    folder = tmp_path_factory.mktemp("splits")
    with DaemonProcess(folder, wide, "--machine", machine_file(folder, PLACES)) as process:
        yield process


@pytest.fixture
def daemon(running: DaemonProcess) -> DaemonProcess:
    running.wait_for_workers()
    return running


def test_the_plans_drawn_split_along_every_axis_there_is_and_pass_the_gate(cuttable: Cuttable) -> None:
    rng = random.Random(1)
    splits = {((split.first, split.last), split.axis): split for split in cuttable.splits}
    rules = PlanRules(cuttable.layer_count, PLACES, cuttable.legal_cuts, needs=tuple(cuttable.needs), splits=splits)
    plans = [cuttable.random_split_plan(rng, PLACES) for _ in range(200)]
    assert [rules.problems(plan) for plan in plans if rules.problems(plan)] == []
    axes = Counter(stage.split.axis for plan in plans for stage in plan.stages if stage.split)
    assert min(axes[axis] for axis in ("channels", "inputs", "rows")) > 10, axes
    assert any(len(plan.splits) > 1 for plan in plans)


@pytest.mark.parametrize(("count", "kill_every"), [(12, 6), pytest.param(400, 25, marks=pytest.mark.long)])
def test_changes_and_deaths_under_load(daemon: DaemonProcess, cuttable: Cuttable, count: int, kill_every: int) -> None:
    """Every answer is its own input, bit for bit, whatever shards it came through."""
    rng = random.Random(count)
    plans = (
        cuttable.random_split_plan(rng, PLACES) if number % 5 else cuttable.random_plan(rng, PLACES)
        for number in range(count)
    )
    with Load(daemon.endpoint, 0, shape=SHAPE) as first, Load(daemon.endpoint, 1, shape=SHAPE) as second:
        change_plans(daemon, first, plans, PLACES, kill_every)
    assert_kept(first, second)


def test_what_is_no_split_is_refused_and_changes_nothing(daemon: DaemonProcess, cuttable: Cuttable) -> None:
    before = daemon.control.plan()
    last = LAYERS - 1
    halves = {"first": 1, "last": 1, "axis": "channels", "shares": [32, 16]}

    def shards(split: dict[str, object]) -> list[dict[str, object]]:
        return [
            {"first": 0, "last": 0, "places": ["a"]},
            {"first": 1, "last": 1, "places": ["a"], "after": [0], "split": split},
            {"first": 1, "last": 1, "places": ["b"], "after": [0], "split": split},
            {"first": 2, "last": last, "places": ["a"], "after": [1, 2]},
        ]

    assert daemon.control.set_plan(shards(halves))["outcome"] == "live"
    live = daemon.control.plan()
    assert live["epoch"] > before["epoch"]
    for split, why in (
        (halves | {"shares": [30, 18]}, "multiples of 16"),
        (halves | {"shares": [32, 32]}, "make up 48"),
        (halves | {"axis": "groups"}, "has one group"),
        (halves | {"axis": "columns"}, "no columns"),
    ):
        refused = daemon.control.set_plan(shards(split))
        assert refused["outcome"] == "refused"
        assert why in refused["reason"]
    assert daemon.control.plan() == live
    plan = Plan.of([(0, last, "c")])
    assert daemon.control.set_plan(plan)["outcome"] == "live"
