"""SQLite files in the user's cache, which several processes may use at once.

Their contents can be measured again, so a faulty file stops nothing. A damaged file is set aside and begun anew; rows
of an earlier version are dropped. A file that cannot be used (locked for long, read-only, or of a newer version) raises
a Failure of one line, and the caller goes on without it.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
import time
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
_ASK_EVERY_S: Final = 0.005
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


class _NotMade(Exception):
    """The file has no such table, or that of an earlier version."""


def open_database(path: Path, table: Table, patience_s: float = PATIENCE_S) -> sqlite3.Connection:
    """Open a database in autocommit mode: callers that need a transaction begin one. Raises Failure.

    Waits up to `patience_s` for each transaction of another process.
    """
    with explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(_Damaged, _NotMade), _locked(path, fcntl.LOCK_SH, patience_s):
            return _opened(path, table, patience_s)
        with _locked(path, fcntl.LOCK_EX, patience_s):
            try:
                return _opened(path, table, patience_s, make=True)
            except _Damaged as damage:
                aside = path.with_name(f"{path.name}.damaged")
                log.warning("%s: damaged (%s): set aside as %s, and begun anew", path, damage, aside.name)
                path.replace(aside)
                for suffix in ("-wal", "-shm"):  # they belong to the damaged file
                    path.with_name(path.name + suffix).unlink(missing_ok=True)
                return _opened(path, table, patience_s, make=True)


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


@contextmanager
def _locked(path: Path, how: int, patience_s: float) -> Iterator[None]:
    """Exclude processes that make the file or set it aside and, with LOCK_EX, those that open it. Raises OSError.

    SQLite waits for nobody as it changes a file's mode. One that opens a file while that is set aside would go on with
    the log of the file that follows.
    """
    lock = os.open(path.with_name(f".{path.name}.lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    until_s = time.monotonic() + patience_s
    try:
        while True:
            try:
                fcntl.flock(lock, how | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until_s:
                    raise TimeoutError("another process opens it, and does not end") from None
                time.sleep(_ASK_EVERY_S)
        yield
    finally:
        os.close(lock)


def _opened(path: Path, table: Table, patience_s: float, *, make: bool = False) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=patience_s, isolation_level=None)
    try:
        _check(database)
        if not _is_as_expected(database, path, table):
            if not make:
                raise _NotMade
            _make(database, path, table)
    except BaseException as error:
        database.close()
        # SQLite's message may quote bytes of a damaged file that are not text.
        if isinstance(error, UnicodeDecodeError) or getattr(error, "sqlite_errorcode", 0) & _LOW_BYTE in _DAMAGE:
            raise _Damaged(str(error)) from error
        raise
    return database


def _check(database: sqlite3.Connection) -> None:
    """Raises _Damaged unless the file is sound."""
    database.execute("PRAGMA synchronous = NORMAL")  # a power cut may cost the last rows, never the file
    (verdict,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise _Damaged(verdict)


def _make(database: sqlite3.Connection, path: Path, table: Table) -> None:
    """Make the table, in place of one of an earlier version."""
    # The file keeps this setting. With it readers never wait for a writer.
    database.execute("PRAGMA journal_mode = WAL")
    with transaction(database):
        if _is_there(database, table):
            (count,) = database.execute(f"SELECT count(*) FROM {table.name}").fetchone()
            database.execute(f"DROP TABLE {table.name}")
            if count:
                log.warning("%s: %d %s of an earlier version are dropped", path, count, table.rows)
        database.execute(f"CREATE TABLE {table.name} {table.columns}")
        database.execute(f"PRAGMA user_version = {table.version}")


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
