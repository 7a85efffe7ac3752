"""Best plans on disk: of one model, by what machines say of themselves; and the thread that writes them."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec
import pytest

from shisha_rt.core.tuning.best import BestPlan, BestPlans, key_of
from shisha_rt.daemon.children.children import PlanWriter
from shisha_rt.errors import Error, Failure
from shisha_rt.machine.machine import Machine, Memory, Place
from shisha_rt.measure import plan_store
from shisha_rt.model.split import Split
from shisha_rt.plan.measure import StageFrames, measure_window
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan, Stage
from tests.wording import raised, says

PLACE = Place("fast", (0,), core_count=1, threads=1, speed=0.5, rank=1, memory="ram")
MACHINE = Machine("m", "m.toml", (Memory("ram"),), (PLACE,))
BEST = BestPlan(Plan.of([(0, 3, "fast"), (4, 7, "slow")]), Measurement((1.0, 2.0), 0.01, 32, 1.5), ("slow", "fast"))
LATER: Final = (None, "onnxruntime", 1)
"""What the first versions did not keep of a stage: its split, its engine and its batch."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / plan_store.FILE_NAME


def test_what_was_saved_is_found_and_replaced(path: Path) -> None:
    plan_store.save_plan(path, "model", "one", BEST)
    other = replace(BEST, order=("fast", "slow"))
    plan_store.save_plan(path, "model", "two", other)
    assert plan_store.load_plans(path, "model") == {"one": BEST, "two": other}
    plan_store.save_plan(path, "model", "one", other)
    assert plan_store.load_plans(path, "model") == {"one": other, "two": other}


def test_a_copy_that_ran_nothing_is_no_obstacle(path: Path) -> None:
    """Of two alike copies the second one gets no frames as long as they come one at a time."""
    plan = Plan.chain([(0, 7, [["fast"], ["slow"]])])
    measurement = measure_window(plan, [StageFrames([0] * 32, [0.01] * 32)], took_s=1.0, frames_per_s=31.0)
    assert measurement.team_s == ((0.01, math.inf),)
    best = BestPlan(plan, measurement, ("fast", "slow"), others_ratio=0.25)
    plan_store.save_plan(path, "model", "one", best)
    assert plan_store.load_plans(path, "model") == {"one": best}


@pytest.mark.parametrize("fields", [3, 4, 5, 6])
def test_plans_that_earlier_versions_kept_are_whole(path: Path, fields: int) -> None:
    plan_store.save_plan(path, "model", "one", BEST)
    with closing(sqlite3.connect(path)) as connection, connection:
        (record,) = connection.execute("SELECT record FROM best").fetchone()
        kept = msgspec.msgpack.decode(record)
        stages = kept["stages"]
        assert stages == [[[[0, 3]], [["fast"]], [], *LATER], [[[4, 7]], [["slow"]], [0], *LATER]]
        kept["stages"] = [stage[:fields] for stage in stages]
        connection.execute("UPDATE best SET record = ?", (msgspec.msgpack.encode(kept),))
    assert plan_store.load_plans(path, "model") == {"one": BEST}


def test_a_plan_with_all_that_a_plan_can_have_is_kept(path: Path) -> None:
    shards = (Stage(((4, 4),), (("fast",),), (0,), split=Split((4, 4), "channels", (3, 5), part)) for part in range(2))
    first = Stage(((0, 1), (3, 3)), (("fast", "slow"), ("third",)), engine="openvino", batch=8)
    plan = Plan((first, *shards, Stage(((4, 7),), (("slow",),), (1, 2), split=Split((4, 4), "channels", (3, 5), 2))))
    best = replace(BEST, plan=plan)
    plan_store.save_plan(path, "model", "one", best)
    assert plan_store.load_plans(path, "model") == {"one": best}


@pytest.mark.parametrize("model", ["model2", "mode"])
def test_plans_of_another_model_are_not_found(path: Path, model: str) -> None:
    plan_store.save_plan(path, "model", "one", BEST)
    assert plan_store.load_plans(path, model) == {}


def test_what_is_not_there_is_not_made_by_reading(path: Path) -> None:
    assert plan_store.load_plans(path, "model") == {}
    assert not path.parent.exists()


def test_a_store_that_cannot_be_read_is_an_empty_one_which_is_said(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a newer version its records may mean something else: they are neither used nor written over."""
    plan_store.save_plan(path, "model", "one", BEST)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA user_version = 9")
    assert plan_store.load_plans(path, "model") == {}
    (line,) = caplog.messages
    assert line == says(f"{path}: written by … newer shisha-rt (version 9…")
    assert line.endswith("; plans are not known")
    with raised(Failure, Error.CACHE_UNUSABLE, match="written by a"):
        plan_store.save_plan(path, "model", "one", BEST)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT key FROM best").fetchall() == [("model-one",)]


def test_a_damaged_store_is_begun_anew(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.parent.mkdir()
    path.write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    assert plan_store.load_plans(path, "model") == {}
    plan_store.save_plan(path, "model", "one", BEST)
    assert plan_store.load_plans(path, "model") == {"one": BEST}
    assert len(caplog.messages) == 1


@pytest.mark.parametrize(
    "damaged", [lambda _: b'{"stages": []}', lambda record: record.replace(b"fast", b"fa\xff\xff")]
)
def test_a_record_that_is_not_understood_is_passed_over(damaged: Callable[[bytes], bytes], path: Path) -> None:
    for key in ("one", "two"):
        plan_store.save_plan(path, "model", key, BEST)
    with closing(sqlite3.connect(path)) as connection, connection:
        (record,) = connection.execute("SELECT record FROM best WHERE key = 'model-one'").fetchone()
        connection.execute("UPDATE best SET record = ? WHERE key = 'model-one'", (damaged(record),))
    assert plan_store.load_plans(path, "model") == {"two": BEST}


def test_plans_of_a_version_with_other_layers_are_dropped_in_one_line(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for key in ("one", "two"):
        plan_store.save_plan(path, "model", key, BEST)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA user_version = 0")  # which the first version left
    assert plan_store.load_plans(path, "model") == {}
    assert caplog.messages == [says(f"{path}: 2 plans of an …")]
    plan_store.save_plan(path, "model", "one", BEST)
    assert plan_store.load_plans(path, "model") == {"one": BEST}


def test_machines_are_known_by_what_they_are_and_not_by_their_names() -> None:
    plans = BestPlans({})
    plans.replace(MACHINE, BEST)
    assert plans.of(replace(MACHINE, name="other", source="other.toml")) == BEST
    for other in (
        MACHINE.with_speed("fast", 0.1),
        replace(MACHINE, time_scale=2.0),
        replace(MACHINE, memories=(Memory("ram", 1e9),)),
        replace(MACHINE, places=(replace(PLACE, cores=(1,)),)),
    ):
        assert plans.of(other) is None
    assert BestPlans({key_of(MACHINE): BEST}).of(MACHINE) == BEST


class TestKeeper:
    def test_a_locked_file_does_not_stop_the_caller(self, path: Path) -> None:
        plan_store.save_plan(path, "model", "one", BEST)
        other = replace(BEST, order=("fast", "slow"))
        plan_writer = PlanWriter(path, "model")
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            plan_writer.keep("one", other)  # the lock is given back by this thread alone
            assert plan_store.load_plans(path, "model") == {"one": BEST}
            connection.rollback()
        plan_writer.close()
        assert plan_store.load_plans(path, "model") == {"one": other}

    def test_what_cannot_be_kept_is_said_once_and_the_next_is_kept_again(
        self, path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        plan_store.save_plan(path, "model", "one", BEST)
        aside = path.rename(path.with_name("aside"))
        path.mkdir()  # which can be no file
        plan_writer = PlanWriter(path, "model")
        for key in ("two", "three"):
            plan_writer.keep(key, BEST)
        plan_writer.close()
        path.rmdir()
        aside.rename(path)
        assert caplog.messages == [says(f"{path}: cannot be … database file); the best plan …")]
        plan_writer = PlanWriter(path, "model")
        plan_writer.keep("four", BEST)
        plan_writer.close()
        assert plan_store.load_plans(path, "model") == {"one": BEST, "four": BEST}

    def test_without_a_path_nothing_is_kept(self, path: Path) -> None:
        plan_writer = PlanWriter(None, "model")
        plan_writer.keep("one", BEST)
        plan_writer.close()
        assert not path.parent.exists()
