"""SQLite files in the user's cache, which several processes may use at once.

Their contents can be measured again, so a faulty file stops nothing. A damaged file is set aside and begun anew; rows
of an earlier version are dropped. A file that cannot be used (locked for long, read-only, or of a newer version) raises
a Failure of one line, and the caller goes on without it.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from shisha_rt.errors import Error, Failure

log = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE_S: Final = 5.0  # for another process's transaction, which takes milliseconds
_DAMAGE: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_said: Final = set[str]()
_LOW_BYTE: Final = 0xFF  # higher bits of SQLite's codes distinguish cases of one error


@dataclass(frozen=True, slots=True)
class Table:
    """The one table of a file. `columns`: its definition; `version`: the schema's; `rows`: their name in messages."""

    name: str
    columns: str
    version: int
    rows: str


class _Damaged(Exception):
    """The file is not a sound database."""


def open_database(path: Path, table: Table, patience_s: float = PATIENCE_S) -> sqlite3.Connection:
    """Open a database in autocommit mode: callers that need a transaction begin one. Raises Failure.

    Waits up to `patience_s` for each transaction of another process.
    """
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return _opened(path, table, patience_s)
        except _Damaged as damage:
            aside = path.with_name(f"{path.name}.damaged")
            log.warning("%s: damaged (%s): set aside as %s, and begun anew", path, damage, aside.name)
            path.replace(aside)
            for suffix in ("-wal", "-shm"):  # they belong to the damaged file
                path.with_name(path.name + suffix).unlink(missing_ok=True)
            return _opened(path, table, patience_s)


def read_records(path: Path, table: Table, where: str, parameters: Sequence[str], record: type[T]) -> dict[str, T]:
    """The records of a table of keys and records, by key; none, with a warning, if the file cannot be used.

    A file that is missing is not made, and a record of another form counts as missing.
    """
    if not path.exists():
        return {}
    try:
        with closing(open_database(path, table)) as database, explained(path):
            rows = database.execute(f"SELECT key, record FROM {table.name} WHERE {where}", parameters).fetchall()
    except Failure as failure:
        say_unusable(str(failure), f"{table.rows} are not known")
        return {}
    records = {}
    for key, content in rows:
        with suppress(msgspec.MsgspecError, UnicodeDecodeError):
            records[key] = msgspec.msgpack.decode(content, type=record)
    return records


def say_unusable(failure: str, effect: str) -> None:
    """Log why a file cannot be used, and the effect: once in this process, whatever else misses the same file."""
    if failure not in _said:
        _said.add(failure)
        log.warning("%s; %s", failure, effect)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn any error that keeps the file from being used into a Failure of one line."""
    try:
        yield
    except (sqlite3.Error, OSError, UnicodeDecodeError, _Damaged) as error:
        raise Failure(f"{path}: cannot be used ({error})", Error.CACHE_UNUSABLE) from error


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    """A transaction that excludes other writers from its start: two processes never both find a table missing."""
    database.execute("BEGIN IMMEDIATE")
    with database:
        yield


def _opened(path: Path, table: Table, patience_s: float) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=patience_s, isolation_level=None)
    try:
        _prepare(database, path, table)
    except BaseException as error:
        database.close()
        # SQLite's message may quote bytes of a damaged file that are not text.
        if isinstance(error, UnicodeDecodeError) or getattr(error, "sqlite_errorcode", 0) & _LOW_BYTE in _DAMAGE:
            raise _Damaged(str(error)) from error
        raise
    return database


def _prepare(database: sqlite3.Connection, path: Path, table: Table) -> None:
    """Check that the file is sound and has the table; write only if the table is missing or of an earlier version."""
    database.execute("PRAGMA synchronous = NORMAL")  # a power cut may cost the last rows, never the file
    (verdict,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise _Damaged(verdict)
    if _is_as_expected(database, path, table):
        return
    # The file keeps this setting. With it readers never wait for a writer.
    database.execute("PRAGMA journal_mode = WAL")
    with transaction(database):
        if not _is_as_expected(database, path, table):
            _create(database, path, table)


def _is_as_expected(database: sqlite3.Connection, path: Path, table: Table) -> bool:
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version > table.version:
        raise Failure(
            f"{path}: written by a newer shisha-rt (version {version}, expected {table.version}): update shisha-rt, or "
            "remove the file",
            Error.CACHE_UNUSABLE,
        )
    return bool(version == table.version and _is_there(database, table))


def _is_there(database: sqlite3.Connection, table: Table) -> bool:
    return database.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table.name,)).fetchone() is not None


def _create(database: sqlite3.Connection, path: Path, table: Table) -> None:
    if _is_there(database, table):
        (count,) = database.execute(f"SELECT count(*) FROM {table.name}").fetchone()
        database.execute(f"DROP TABLE {table.name}")
        if count:
            log.warning("%s: %d %s of an earlier version are dropped", path, count, table.rows)
    database.execute(f"CREATE TABLE {table.name} {table.columns}")
    database.execute(f"PRAGMA user_version = {table.version}")
