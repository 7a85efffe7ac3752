"""A file in the cache stops nobody: damaged it is begun anew, and otherwise one line says why it cannot be used."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from shisha_rt.errors import Error, Failure
from shisha_rt.measure.database import PATIENCE_S, Table, open_database, read_records
from tests.wording import raised, says

TABLE = Table("thing", "(name TEXT PRIMARY KEY, size REAL NOT NULL)", version=7, rows="things")

_HOLDS_A_TRANSACTION = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute(sys.argv[2])
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of 500 rows, on more pages than one."""
    path = tmp_path / "cache" / "things.sqlite"
    with closing(open_database(path, TABLE)) as connection:
        connection.executemany("INSERT INTO thing VALUES (?, ?)", [(f"{i:08}", i) for i in range(500)])
    return path


def count(path: Path, patience_s: float = PATIENCE_S) -> int:
    with closing(open_database(path, TABLE, patience_s)) as connection:
        (rows,) = connection.execute("SELECT count(*) FROM thing").fetchone()
    return int(rows)


def overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(b"\xaa" * 4096)


def no_text_in_its_schema(path: Path) -> None:
    """SQLite quotes it in what it raises."""
    path.write_bytes(path.read_bytes().replace(b"thing", b"th\xffng").replace(b"CREATE", b"XREATE"))


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_text("no database " * 500),
        lambda path: os.truncate(path, path.stat().st_size // 2),
        lambda path: os.truncate(path, 50),
        overwrite,
        no_text_in_its_schema,
    ],
    ids=["garbage", "half", "its-head", "a-page", "its-schema"],
)
def test_a_damaged_file_is_set_aside_and_begun_anew_with_one_line(
    damage: Callable[[Path], object], path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    damage(path)
    damaged = path.read_bytes()
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).write_bytes(b"left by a power cut")
    assert count(path) == 0
    (line,) = caplog.messages
    assert line.startswith(f"{path}: damaged (")
    assert line.endswith("): set aside as things.sqlite.damaged, and begun anew")
    assert path.with_name("things.sqlite.damaged").read_bytes() == damaged
    assert count(path) == 0
    assert len(caplog.messages) == 1


def test_a_damaged_file_that_many_open_at_once_is_set_aside_once_and_no_row_is_lost(tmp_path: Path) -> None:
    for attempt in range(30):
        path = tmp_path / str(attempt) / "things.sqlite"
        path.parent.mkdir()
        path.write_text("no database " * 500)

        def add(name: int, path: Path = path) -> None:
            with closing(open_database(path, TABLE)) as connection:
                connection.execute("INSERT INTO thing VALUES (?, ?)", (str(name), name))

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(add, range(8))) == [None] * 8
        assert count(path) == 8


def test_one_that_another_process_begins_is_waited_for_and_refused(tmp_path: Path) -> None:
    """SQLite itself waits for nobody as the mode of a new file is changed."""
    with (tmp_path / ".things.sqlite.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with raised(Failure, Error.CACHE_UNUSABLE, match=r"things\.sqlite: "):
            open_database(tmp_path / "things.sqlite", TABLE, patience_s=0.05)
    assert count(tmp_path / "things.sqlite") == 0


def test_an_empty_file_is_a_new_one(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.write_bytes(b"")
    assert count(path) == 0
    assert caplog.messages == []


def test_rows_of_an_earlier_version_are_dropped_with_one_line(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 6")
    assert count(path) == 0
    assert count(path) == 0
    assert caplog.messages == [says(f"{path}: 500 things of an …")]


def test_a_file_without_its_table_gets_one(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE thing")
    assert count(path) == 0


def test_a_newer_version_is_refused_and_left_alone(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 8")
    before = path.read_bytes()
    with raised(Failure, Error.CACHE_UNUSABLE, match=r"things\.sqlite: .* \(version 8, .* 7\)"):
        open_database(path, TABLE)
    assert path.read_bytes() == before


@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
def test_one_that_another_process_has_locked_is_waited_for_and_refused(mode: str, path: Path) -> None:
    """In the mode that files of earlier versions may be in not even readers pass a writer."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode = {mode}")
    command = [sys.executable, "-c", _HOLDS_A_TRANSACTION, str(path), "BEGIN EXCLUSIVE"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        if mode == "WAL":
            assert count(path, 0.05) == 500
        else:
            with raised(Failure, Error.CACHE_UNUSABLE, match=r"things\.sqlite: cannot be used"):
                open_database(path, TABLE, patience_s=0.05)
        holder.stdin.close()
    assert count(path) == 500


@pytest.mark.parametrize("name", ["things.sqlite", "deep/er/things.sqlite"])
def test_what_cannot_be_opened_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    (tmp_path / "things.sqlite").mkdir()
    (tmp_path / "deep").write_text("")
    with raised(Failure, Error.CACHE_UNUSABLE, match=r"things\.sqlite: cannot be used \(") as failure:
        open_database(tmp_path / name, TABLE)
    assert "\n" not in str(failure.value)


def test_a_file_that_cannot_be_used_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "things.sqlite"
    path.mkdir()
    for _ in range(2):
        assert read_records(path, TABLE, "TRUE", [], dict) == {}
    (line,) = caplog.messages
    assert line.startswith(f"{path}: ")
