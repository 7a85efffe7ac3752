"""The best plan known for a model on a machine, kept on disk: a restart begins where tuning had ended.

SQLite in the user's cache. A plan is a suggestion, never trusted: it passes `verify` like any other, and the tuner
watches whether its stages still take the time that they took.
"""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from shisha_rt.machine.machine import Machine
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan
from shisha_rt.tuning.tuner_messages import Stages, stages_of

_VERSION: Final = 2
_PATIENCE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class BestPlan:
    """A plan, what it was measured to do, and the order of places in which the search walked, unused ones included."""

    plan: Plan
    measurement: Measurement
    order: tuple[str, ...]


class _Record(msgspec.Struct, frozen=True):
    stages: Stages
    order: tuple[str, ...]
    service_s: tuple[float, ...]
    band: float
    frames: int
    cost_s: float


class BestPlans:
    """The plans of one (model, machine); `model_key` covers what the engine made of the model, too.

    Without a path nothing is kept, and nothing found.
    """

    def __init__(self, path: Path | None, model_key: str, machine: Machine) -> None:
        self._path = path
        self._model_key = model_key
        self.machine = machine  # as it is now: its speeds can be changed

    def load(self) -> BestPlan | None:
        """None if there is none, or none that can be read."""
        if self._path is None:
            return None
        try:
            with self._open(self._path) as database:
                row = database.execute("SELECT record FROM best WHERE key = ?", (self._key,)).fetchone()
            record = None if row is None else msgspec.json.decode(row[0], type=_Record)
        except (sqlite3.Error, msgspec.MsgspecError):
            return None  # a cache that is broken is a cache that is empty
        if record is None:
            return None
        measurement = Measurement(record.service_s, record.band, record.frames, record.cost_s)
        return BestPlan(Plan.of(record.stages), measurement, record.order)

    def save(self, best: BestPlan) -> None:
        if self._path is None:
            return
        m = best.measurement
        record = _Record(stages_of(best.plan), best.order, m.service_s, m.band, m.frames, m.took_s)
        with contextlib.suppress(sqlite3.Error), self._open(self._path) as database:
            database.execute("INSERT OR REPLACE INTO best VALUES (?, ?)", (self._key, msgspec.json.encode(record)))

    @property
    def _key(self) -> str:
        return f"{self._model_key}-{_fingerprint(self.machine)}"

    @staticmethod
    @contextlib.contextmanager
    def _open(path: Path) -> Iterator[sqlite3.Connection]:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.closing(sqlite3.connect(path, timeout=_PATIENCE_S)) as database, database:
            database.execute("PRAGMA synchronous = OFF")  # the loop waits for no disk; a lost plan is found again
            database.execute("CREATE TABLE IF NOT EXISTS best (key TEXT PRIMARY KEY, record BLOB NOT NULL)")
            yield database


def _fingerprint(machine: Machine) -> str:
    """Two machine files that say the same are the same machine, whatever they are called."""
    said = msgspec.json.encode((_VERSION, machine.memories, machine.places, machine.timing, machine.time_scale))
    return hashlib.sha256(said).hexdigest()[:16]
