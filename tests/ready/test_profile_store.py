"""The profile store: what is put in comes out, under many hands and after every kind of damage."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from shisha_rt.costs.profiles import Profile, Setting
from shisha_rt.errors import Failure
from shisha_rt.ready.profile_store import SCHEMA_VERSION, ProfileStore

SETTING = Setting("onnxruntime", "1.23.0", 1, "", "Some CPU 0123abcd", 0)
PROFILE = Profile(cpu_s=1.25e-3, wall_s=1.5e-3, spread_s=1e-5, runs=40, moved_bytes=2**40)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "profiles.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[ProfileStore]:
    with ProfileStore(path) as store:
        yield store


def test_what_is_added_is_found_after_a_restart(path: Path) -> None:
    with ProfileStore(path) as store:
        store.add(SETTING, {"a": PROFILE})
    with ProfileStore(path) as store:
        assert store.find(SETTING, ["a", "b"]) == {"a": PROFILE}


@pytest.mark.parametrize(
    "other",
    [
        replace(SETTING, engine="openvino"),
        replace(SETTING, engine_version="1.24.0"),
        replace(SETTING, threads=2),
        replace(SETTING, core_kind="class 2"),
        replace(SETTING, processor="Other CPU"),
        replace(SETTING, neighbours=1),
    ],
)
def test_each_part_of_the_setting_tells_entries_apart(store: ProfileStore, other: Setting) -> None:
    store.add(SETTING, {"a": PROFILE})
    assert store.find(other, ["a"]) == {}
    store.add(other, {"a": replace(PROFILE, runs=1)})
    assert store.find(SETTING, ["a"]) == {"a": PROFILE}


def test_the_first_measurement_stays(store: ProfileStore) -> None:
    store.add(SETTING, {"a": PROFILE})
    store.add(SETTING, {"a": replace(PROFILE, cpu_s=9.0), "b": PROFILE})
    assert store.find(SETTING, ["a", "b"]) == {"a": PROFILE, "b": PROFILE}


def test_all_or_nothing(store: ProfileStore) -> None:
    unstorable = replace(PROFILE, runs=2**70)
    with pytest.raises(OverflowError):
        store.add(SETTING, {"a": PROFILE, "b": unstorable})
    assert store.find(SETTING, ["a", "b"]) == {}
    store.add(SETTING, {"a": PROFILE})  # no transaction was left open


_WRITER = """
import sys
from pathlib import Path
from shisha_rt.ready.profile_store import ProfileStore
from tests.ready.test_profile_store import PROFILE, SETTING
for i in range(20):
    with ProfileStore(Path(sys.argv[1])) as store:
        store.add(SETTING, {f"{sys.argv[2]}-{i}": PROFILE, "shared": PROFILE})
        assert "shared" in store.find(SETTING, ["shared"])
"""


def test_processes_that_open_and_write_at_once(path: Path) -> None:
    """All start on a file that is not there yet."""
    commands = [[sys.executable, "-c", _WRITER, str(path), str(number)] for number in range(4)]
    writers = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for command in commands]
    errors = [writer.communicate()[1] for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * 4, errors
    with ProfileStore(path) as store:
        names = [f"{number}-{i}" for number in range(4) for i in range(20)]
        assert len(store.find(SETTING, names)) == 80


def test_an_older_schema_is_made_anew(path: Path) -> None:
    path.parent.mkdir()
    old = sqlite3.connect(path)
    old.execute("CREATE TABLE profile (something_else TEXT)")
    old.commit()
    old.close()
    with ProfileStore(path) as store:
        store.add(SETTING, {"a": PROFILE})
        assert store.find(SETTING, ["a"]) == {"a": PROFILE}


def test_a_newer_schema_is_refused_and_left_alone(path: Path) -> None:
    with ProfileStore(path) as store:
        store.add(SETTING, {"a": PROFILE})
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    connection.close()
    with pytest.raises(Failure, match=r"profiles\.sqlite: written by a newer shisha-rt .*remove the file"):
        ProfileStore(path)
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM profile").fetchone() == (1,)
    connection.close()


def test_a_damaged_file_is_named_with_the_remedy(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"not a database " * 100)
    with pytest.raises(Failure, match=r"profiles\.sqlite: .*not a database.*remove it"):
        ProfileStore(path)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Failure, match="cannot be used"):
        ProfileStore(tmp_path / "file" / "profiles.sqlite")
