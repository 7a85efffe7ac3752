"""The best plans known, kept on disk: a restart begins where tuning had ended.

SQLite in the user's cache. A plan is a suggestion, never trusted: it passes `verify` like any other, and the tuner
watches whether its stages still take the time that they took. `model_key` also depends on the engine's optimised form
of the model. Plans of an earlier `_VERSION` are dropped: the same numbers would mean another plan.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

import msgspec

from shisha_rt.core.tuning.best import BestPlan
from shisha_rt.measure.database import Table, explained, open_database, read_records
from shisha_rt.model.spans import Span
from shisha_rt.model.split import Axis, Split
from shisha_rt.plan.engine import DEFAULT_ENGINE, StageEngine
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan, Stage, Team

FILE_NAME: Final = "plans.sqlite"

_VERSION: Final = 3  # raise it when models are divided into layers otherwise, or the form of a record changes
_TABLE: Final = Table("best", "(key TEXT PRIMARY KEY, record BLOB NOT NULL)", _VERSION, rows="plans")


class _KeptStage(msgspec.Struct, frozen=True, array_like=True):
    """A stage without its placement. Fields that earlier versions did not have come last, and may be missing."""

    work: tuple[Span, ...]
    teams: tuple[Team, ...]
    after: tuple[int, ...]
    split: tuple[Span, Axis, tuple[int, ...], int] | None = None
    engine: StageEngine = DEFAULT_ENGINE
    batch: int = 1

    @classmethod
    def of(cls, stage: Stage) -> _KeptStage:
        split = stage.split
        kept = None if split is None else (*split.whole, split.part)
        return cls(stage.work, stage.teams, stage.after, kept, stage.engine, stage.batch)

    @property
    def stage(self) -> Stage:
        split = None if self.split is None else Split(*self.split)
        return Stage(self.work, self.teams, self.after, split=split, engine=self.engine, batch=self.batch)


class _Record(msgspec.Struct, frozen=True):
    stages: tuple[_KeptStage, ...]
    order: tuple[str, ...]
    measurement: Measurement
    others_ratio: float = 0.0


def load_plans(path: Path, model_key: str) -> dict[str, BestPlan]:
    """Load the best plans by the machine's key (`best.key_of`); none, with a warning, if the store is unreadable."""
    best_plans: dict[str, BestPlan] = {}
    for key, kept in read_records(path, _TABLE, "key GLOB ? || '-*'", [model_key], _Record).items():
        plan = Plan(tuple(stage.stage for stage in kept.stages))
        best_plans[key.removeprefix(f"{model_key}-")] = BestPlan(plan, kept.measurement, kept.order, kept.others_ratio)
    return best_plans


def save_plan(path: Path, model_key: str, key: str, best: BestPlan) -> None:
    """Store a plan, in place of the one before. Raises Failure if the file cannot be written, or stays locked."""
    record = _Record(tuple(map(_KeptStage.of, best.plan.stages)), best.order, best.measurement, best.others_ratio)
    row = f"{model_key}-{key}", msgspec.msgpack.encode(record)  # not JSON, which has no infinity: an idle copy's time
    with contextlib.closing(open_database(path, _TABLE)) as database, explained(path):
        database.execute("INSERT OR REPLACE INTO best VALUES (?, ?)", row)
