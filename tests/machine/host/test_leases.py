"""Leases of cores: never those of somebody else who lives, and none without a folder that can be trusted."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from shisha_rt.machine.host.leases import FOLDER_VARIABLE, CoreLeases, take_cores

TAKER = """
import sys
from shisha_rt.machine.host.leases import take_cores
taken = take_cores(1)
print(taken.cores, taken.why_shared, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FOLDER_VARIABLE)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


def test_cores_are_free_again_with_whoever_had_them() -> None:
    """However it ended."""
    usable = sorted(os.sched_getaffinity(0))
    pipe = subprocess.PIPE
    others = [subprocess.Popen([sys.executable, "-c", TAKER], stdin=pipe, stdout=pipe, text=True) for _ in usable]
    try:
        said = [other.stdout.readline() for other in others if other.stdout is not None]
        assert sorted(said) == sorted(f"({core},) None\n" for core in usable)
        assert take_cores(1)[:2] == (tuple(usable), "fewer than 1 are free")
        others[0].kill()
        others[0].wait()
        taken = take_cores(1)
        assert taken.why_shared is None
        assert said[0] == f"{taken.cores} None\n"
        taken.leases.close()
    finally:
        for other in others:
            other.kill()
            other.communicate()


def test_more_than_there_are_are_shared() -> None:
    usable = tuple(sorted(os.sched_getaffinity(0)))
    assert take_cores(len(usable) + 1)[:2] == (usable, f"fewer than {len(usable) + 1} are free")


def test_a_folder_that_others_may_write_to_is_not_trusted(tmp_path: Path) -> None:
    folder = tmp_path / f"shisha-rt-cores-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    taken = take_cores(1)
    assert taken.cores == tuple(sorted(os.sched_getaffinity(0)))
    assert "expected a folder of this user alone" in (taken.why_shared or "")
    leases = CoreLeases()
    assert leases.hold([0]) == frozenset()
    assert "expected a folder of this user alone" in leases.fault


def test_cores_that_are_held_are_not_taken(tmp_path: Path) -> None:
    """Who was told to use them shares them with others who were told."""
    assigned, also_assigned, chooses = (CoreLeases(tmp_path) for _ in range(3))
    assert assigned.hold([3]) == also_assigned.hold([3, 5]) == frozenset()
    assert [chooses.take(core) for core in (3, 4, 5)] == [False, True, False]
    assert also_assigned.hold([3, 4, 5]) == {4}
    assigned.close()
    assert not chooses.take(3)
    also_assigned.release([3])
    assert chooses.take(3)
    assert chooses.cores == {3, 4}
    chooses.release([3, 7])
    assert assigned.take(3)


def test_a_lease_is_kept_however_often_it_is_asked_for(tmp_path: Path) -> None:
    leases, other = CoreLeases(tmp_path / "new" / "folder"), CoreLeases(tmp_path / "new" / "folder")
    assert leases.take(1)
    assert leases.take(1)
    assert not other.take(1)
    leases.close()
    assert other.take(1)


def test_the_environment_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "all"))
    leases = CoreLeases()
    assert leases.folder == tmp_path / "all"
    assert leases.take(0)
    assert (tmp_path / "all" / "0").exists()


def test_files_that_cannot_be_written_are_locked_all_the_same(tmp_path: Path) -> None:
    """As those of another user's daemon are."""
    (tmp_path / "2").touch(mode=0o444)
    assert CoreLeases(tmp_path).take(2)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user for once")
def test_users_respect_each_other_in_a_folder_that_all_may_write_to(tmp_path: Path) -> None:
    """Whatever the one's umask, and though the kernel keeps files in such folders from being made twice."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o1777)
    ours = CoreLeases(folder)
    before = os.umask(0o077)
    try:
        assert ours.take(0)
        code = f"""
import os
from pathlib import Path
from shisha_rt.machine.host.leases import CoreLeases
os.setuid(65534)
leases = CoreLeases(Path({str(folder)!r}))
print(leases.take(0), leases.take(1), repr(leases.fault))
"""
        ran = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
        assert ran.stdout == "False True ''\n"
        assert ours.take(1)
    finally:
        os.umask(before)
        ours.close()
        shutil.rmtree(folder)


def test_a_file_that_another_user_could_not_open_is_never_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    fchmod = os.fchmod

    def look(file: int, mode: int) -> None:
        seen.append((tmp_path / "7").exists())
        fchmod(file, mode)

    monkeypatch.setattr(os, "fchmod", look)
    leases = CoreLeases(tmp_path)
    assert leases.take(7)
    assert seen == [False]
    assert [(file.name, file.stat().st_mode & 0o777) for file in tmp_path.iterdir()] == [("7", 0o644)]
    leases.close()


def test_cores_that_only_processes_of_ones_own_hold_are_held_beside_them(tmp_path: Path) -> None:
    """As by a host process that takes over from one that died: its daemons hold their cores already."""
    holder = f"CoreLeases(Path({str(tmp_path)!r})).hold([3, 4]); print(flush=True); input()"
    leases = CoreLeases(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", f"from shisha_rt.machine.host.leases import CoreLeases, Path; {holder}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert [leases.hold_beside(core, own) for core, own in ((3, [other.pid]), (4, []), (5, []))] == [
            True,
            False,
            True,
        ]
        assert leases.cores == {3, 5}


def test_a_folder_in_use_is_locked_as_cleaners_of_temporary_files_respect(tmp_path: Path) -> None:
    """tmpfiles.d(5): what somebody has locked is not aged. A removed file would lease its core twice."""
    leases = CoreLeases(tmp_path)
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(BlockingIOError):
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        leases.close()
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(folder)
