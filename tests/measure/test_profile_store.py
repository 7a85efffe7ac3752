"""The profile store: what is put in comes out, under many hands and after every kind of damage."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from shisha_rt.costs.profiles import Profile, Setting
from shisha_rt.measure.profile_store import ProfileStore
from tests.wording import says

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


@pytest.mark.parametrize("usable", [True, False], ids=["in a file", "where there can be none"])
def test_a_disturbed_measurement_stays_until_there_is_a_better_one(tmp_path: Path, usable: bool) -> None:
    if not usable:
        (tmp_path / "file").touch()
    half, less, calm, later = (
        replace(PROFILE, runs=runs, others_ratio=others_ratio)
        for runs, others_ratio in ((1, 0.5), (2, 0.3), (3, 0.02), (4, 0.01))
    )
    with ProfileStore(tmp_path / ("folder" if usable else "file") / "profiles.sqlite") as store:
        for measured, kept in ((half, half), (less, less), (half, less), (calm, calm), (later, calm)):
            store.add(SETTING, {"a": measured})
            assert store.find(SETTING, ["a"]) == {"a": kept}
    assert (half.is_disturbed, calm.is_disturbed) == (True, False)


@pytest.mark.parametrize("value", ["-1.0", "'text'"])
def test_what_cannot_have_been_measured_is_not_known(path: Path, value: str) -> None:
    with ProfileStore(path) as store:
        store.add(SETTING, {"a": PROFILE, "b": PROFILE})
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE profile SET cpu_s = {value} WHERE signature = 'a'")
    with ProfileStore(path) as store:
        assert store.find(SETTING, ["a", "b"]) == {"b": PROFILE}


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
from shisha_rt.measure.profile_store import ProfileStore
from tests.measure.test_profile_store import PROFILE, SETTING
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


def test_where_the_file_cannot_be_used_profiles_are_remembered_and_one_line_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "profiles.sqlite"
    with ProfileStore(path) as store:
        assert store.find(SETTING, ["a"]) == {}
        store.add(SETTING, {"a": PROFILE})
        store.add(SETTING, {"a": replace(PROFILE, cpu_s=9.0), "b": PROFILE})
        assert store.find(SETTING, ["a", "b", "c"]) == {"a": PROFILE, "b": PROFILE}
    (line,) = caplog.messages
    assert line.startswith(f"{path}: cannot be used ([Errno ")
    assert line.endswith("; what has to be measured is not kept")


def test_what_was_read_before_the_file_was_locked_is_still_known(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with ProfileStore(path) as store:
        store.add(SETTING, {"a": PROFILE, "b": PROFILE})
    with ProfileStore(path, patience_s=0.05) as store, closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert store.find(SETTING, ["a", "c"]) == {"a": PROFILE}
        for name in ("c", "d"):
            store.add(SETTING, {name: PROFILE})
        assert store.find(SETTING, ["a", "c", "d"]) == {"a": PROFILE, "c": PROFILE, "d": PROFILE}
    assert caplog.messages == [says(f"{path}: cannot be … is locked); what has to …")]


def test_what_nobody_asks_for_makes_no_file(path: Path) -> None:
    with ProfileStore(path):
        pass
    assert not path.parent.exists()
