"""The profile store: what runs of layers took on this host, kept for every later start and every other model.

One SQLite file. An entry is found by the layers' fingerprint (column `signature`) and the setting of the measurement,
and is raw: speed, bandwidth and time scale are applied by whoever uses it. The first measurement of an entry stays, so
that a model's costs do not change because another was measured. Several processes may use the file at once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path
from types import TracebackType
from typing import Final

from shisha_rt.costs.profiles import Profile, Setting
from shisha_rt.errors import Failure

FILE_NAME: Final = "profiles.sqlite"
SCHEMA_VERSION: Final = 2

_BUSY_S: Final = 20.0
_SCHEMA: Final = """
    CREATE TABLE profile (
        signature TEXT NOT NULL,
        engine TEXT NOT NULL,
        engine_version TEXT NOT NULL,
        threads INTEGER NOT NULL,
        core_kind TEXT NOT NULL,
        processor TEXT NOT NULL,
        neighbours INTEGER NOT NULL,
        cpu_s REAL NOT NULL,
        wall_s REAL NOT NULL,
        spread_s REAL NOT NULL,
        runs INTEGER NOT NULL,
        moved_bytes INTEGER NOT NULL,
        PRIMARY KEY (signature, engine, engine_version, threads, core_kind, processor, neighbours)
    ) WITHOUT ROWID
"""
_FIND: Final = """
    SELECT cpu_s, wall_s, spread_s, runs, moved_bytes FROM profile
    WHERE signature = ? AND engine = ? AND engine_version = ? AND threads = ? AND core_kind = ? AND processor = ?
        AND neighbours = ?
"""
_ADD: Final = "INSERT OR IGNORE INTO profile VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"


class ProfileStore:
    """Use it as a context manager. Raises `Failure`, naming the file and the remedy, where it cannot be used."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._explained():
            path.parent.mkdir(parents=True, exist_ok=True)
            # Autocommit: transactions are opened where they are needed, and named.
            self._connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)
        try:
            with self._explained():
                self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def __enter__(self) -> ProfileStore:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._connection.close()

    def find(self, setting: Setting, fingerprints: Iterable[str]) -> dict[str, Profile]:
        """Fingerprint -> profile, for those that are there."""
        found: dict[str, Profile] = {}
        with self._explained():
            for fingerprint in fingerprints:
                row = self._connection.execute(_FIND, (fingerprint, *astuple(setting))).fetchone()
                if row is not None:
                    found[fingerprint] = Profile(*row)
        return found

    def add(self, setting: Setting, profiles: Mapping[str, Profile]) -> None:
        """All of `profiles` (by fingerprint) or, if this process dies, none; an entry that is there stays."""
        rows = [(fingerprint, *astuple(setting), *astuple(profile)) for fingerprint, profile in profiles.items()]
        with self._explained(), self._transaction():
            self._connection.executemany(_ADD, rows)

    def _prepare(self) -> None:
        """Create the table, or make a new one where an older version left its own: profiles can be measured again."""
        with self._transaction():
            (version,) = self._connection.execute("PRAGMA user_version").fetchone()
            if version > SCHEMA_VERSION:
                raise Failure(
                    f"{self._path}: written by a newer shisha-rt (version {version}, expected {SCHEMA_VERSION}); "
                    "update shisha-rt, or remove the file and profiles are measured again"
                )
            if version < SCHEMA_VERSION:
                self._connection.execute("DROP TABLE IF EXISTS profile")
                self._connection.execute(_SCHEMA)
                self._connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        # Kept in the file once set. Readers then never wait for a writer.
        self._connection.execute("PRAGMA journal_mode = WAL")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Exclusive among writers from its start: two processes never both find the table missing."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise Failure(
                f"{self._path}: the profile store cannot be used: {error}; "
                "if the file is damaged, remove it and profiles are measured again"
            ) from error
