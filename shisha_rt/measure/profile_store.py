"""The profile store: measured times of runs of layers on this host, kept for later starts and other models.

One SQLite file. An entry's key is the layers' fingerprint (column `signature`) and the setting of the measurement. Its
times are raw: readers apply speed, bandwidth and time scale. The first undisturbed measurement of an entry stays, so
that a model's costs do not change because a different model was measured; until there is one, the least disturbed
measurement counts. Several processes may use the file at once. If it cannot be used, profiles are measured for this
process alone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from types import TracebackType
from typing import Final

from shisha_rt.cache import cache_folder
from shisha_rt.costs.profiles import DISTURBED, Profile, Setting
from shisha_rt.errors import Failure
from shisha_rt.measure.database import PATIENCE_S, Table, explained, open_database, say_unusable, transaction

FILE_NAME: Final = "profiles.sqlite"
SCHEMA_VERSION: Final = 3

_COLUMNS: Final = """(
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
        others_ratio REAL NOT NULL,
        PRIMARY KEY (signature, engine, engine_version, threads, core_kind, processor, neighbours)
    ) WITHOUT ROWID
"""
_TABLE: Final = Table("profile", _COLUMNS, SCHEMA_VERSION, rows="profiles")
_FIND: Final = """
    SELECT cpu_s, wall_s, spread_s, runs, moved_bytes, others_ratio FROM profile
    WHERE signature = ? AND engine = ? AND engine_version = ? AND threads = ? AND core_kind = ? AND processor = ?
        AND neighbours = ?
"""
_ADD: Final = f"""
    INSERT INTO profile VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET
        cpu_s = excluded.cpu_s, wall_s = excluded.wall_s, spread_s = excluded.spread_s, runs = excluded.runs,
        moved_bytes = excluded.moved_bytes, others_ratio = excluded.others_ratio
    WHERE profile.others_ratio > {DISTURBED} AND excluded.others_ratio < profile.others_ratio
"""


class ProfileStore:
    """A context manager. If its file cannot be used, it warns once, and keeps profiles in memory only.

    `path`: of its file; None: in the user's cache. `patience_s` as in `open_database`.
    """

    def __init__(self, path: Path | None = None, patience_s: float = PATIENCE_S) -> None:
        self._path = path or cache_folder() / FILE_NAME
        self._patience_s = patience_s
        self._database: sqlite3.Connection | None = None
        self._is_usable = True
        self._known: dict[tuple[Setting, str], Profile] = {}

    def __enter__(self) -> ProfileStore:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._close()

    def find(self, setting: Setting, fingerprints: Iterable[str]) -> dict[str, Profile]:
        """Fingerprint -> profile, for those that are stored."""
        wanted = [*fingerprints]

        def read(database: sqlite3.Connection) -> None:
            for fingerprint in wanted:
                row = database.execute(_FIND, (fingerprint, *astuple(setting))).fetchone()
                if row is not None and _is_sound(row):
                    self._known[setting, fingerprint] = Profile(*row)

        self._tried(read)
        profiles = {fingerprint: self._known.get((setting, fingerprint)) for fingerprint in wanted}
        return {fingerprint: profile for fingerprint, profile in profiles.items() if profile is not None}

    def add(self, setting: Setting, profiles: Mapping[str, Profile]) -> None:
        """Store all of `profiles` (by fingerprint) or, if this process dies, none. Undisturbed entries stay."""
        rows = [(fingerprint, *astuple(setting), *astuple(profile)) for fingerprint, profile in profiles.items()]

        def write(database: sqlite3.Connection) -> None:
            with transaction(database):
                database.executemany(_ADD, rows)

        if not self._tried(write):
            for fingerprint, profile in profiles.items():
                known = self._known.get((setting, fingerprint))
                if known is None or (known.is_disturbed and profile.others_ratio < known.others_ratio):
                    self._known[setting, fingerprint] = profile

    def _tried(self, use: Callable[[sqlite3.Connection], None]) -> bool:
        """Whether the file could be used; after a failure it is not tried again."""
        if not self._is_usable:
            return False
        try:
            if self._database is None:
                self._database = open_database(self._path, _TABLE, self._patience_s)
            with explained(self._path):
                use(self._database)
        except Failure as failure:
            say_unusable(str(failure), "what has to be measured is not kept")
            self._is_usable = False
            self._close()
        return self._is_usable

    def _close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None


def _is_sound(row: Sequence[object]) -> bool:
    """Whether these values can come from a measurement: a damaged file may hold anything. Infinite: cannot be run."""
    return all(isinstance(value, int | float) and value >= 0 for value in row)
