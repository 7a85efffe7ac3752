"""The best plans known, kept on disk: a restart begins where tuning had ended.

SQLite in the user's cache. A plan is a suggestion, never trusted: it passes `verify` like any other, and the tuner
watches whether its stages still take the time that they took. `model_key` covers what the engine made of the model.
Plans of a version whose layers or records were others are dropped: the same numbers would mean another plan.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from shisha_rt.plan.form import Brief, brief, unfolded
from shisha_rt.plan.measurement import Measurement
from shisha_rt.tuning.best import BestPlan

log = logging.getLogger(__name__)

FILE_NAME: Final = "plans.sqlite"

_PATIENCE_S: Final = 5.0
_VERSION: Final = 3  # raise it when the layers of a model, or a record, become others


class _Record(msgspec.Struct, frozen=True):
    stages: Brief
    order: tuple[str, ...]
    measurement: Measurement


def load_plans(path: Path, model_key: str) -> dict[str, BestPlan]:
    """By the machine's key (`tuning.best.key_of`); a store that cannot be read is one that is empty."""
    found: dict[str, BestPlan] = {}
    with contextlib.suppress(sqlite3.Error, OSError), _open(path) as database:
        rows = database.execute("SELECT key, record FROM best WHERE key GLOB ? || '-*'", (model_key,)).fetchall()
        for key, record in rows:
            with contextlib.suppress(msgspec.MsgspecError):
                kept = msgspec.msgpack.decode(record, type=_Record)
                plan = BestPlan(unfolded(kept.stages), kept.measurement, kept.order)
                found[key.removeprefix(f"{model_key}-")] = plan
    return found


def save_plan(path: Path, model_key: str, key: str, best: BestPlan) -> None:
    """Waits for whoever has the file locked, and gives up after a while: a lost plan is found again."""
    record = _Record(brief(best.plan), best.order, best.measurement)
    with contextlib.suppress(sqlite3.Error, OSError), _open(path) as database:
        row = f"{model_key}-{key}", msgspec.msgpack.encode(record)  # JSON has no infinity: a copy that ran nothing
        database.execute("INSERT OR REPLACE INTO best VALUES (?, ?)", row)


@contextlib.contextmanager
def _open(path: Path) -> Iterator[sqlite3.Connection]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.closing(sqlite3.connect(path, timeout=_PATIENCE_S)) as database, database:
        database.execute("PRAGMA synchronous = OFF")  # a lost plan is found again
        database.execute("CREATE TABLE IF NOT EXISTS best (key TEXT PRIMARY KEY, record BLOB NOT NULL)")
        _drop_older(database, path)
        yield database


def _drop_older(database: sqlite3.Connection, path: Path) -> None:
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version < _VERSION:
        dropped = database.execute("DELETE FROM best").rowcount
        database.execute(f"PRAGMA user_version = {_VERSION}")
        if dropped:
            log.warning("%s: %d plans of an earlier version are dropped", path, dropped)
