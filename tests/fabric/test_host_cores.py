"""Which cores a far end takes where nobody has said: never those of somebody else who lives."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from shisha_rt.fabric.host_cores import hold_cores, take_cores

TAKER = """
import sys
from shisha_rt.fabric.host_cores import take_cores
taken = take_cores(1)
print(taken.cores, taken.why_shared, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        assert take_cores(1) == (tuple(usable), "fewer than 1 are free", ())
        others[0].kill()
        others[0].wait()
        taken = take_cores(1)
        assert taken.why_shared is None
        assert said[0] == f"{taken.cores} None\n"
        for lock in taken.locks:
            os.close(lock)
    finally:
        for other in others:
            other.kill()
            other.communicate()


def test_more_than_there_are_are_shared() -> None:
    usable = tuple(sorted(os.sched_getaffinity(0)))
    assert take_cores(len(usable) + 1) == (usable, f"fewer than {len(usable) + 1} are free", ())


def test_a_folder_that_others_may_write_to_is_not_trusted(tmp_path: Path) -> None:
    folder = tmp_path / f"shisha-rt-cores-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    taken = take_cores(1)
    assert taken.cores == tuple(sorted(os.sched_getaffinity(0)))
    assert "expected a folder of this user alone" in (taken.why_shared or "")
    with pytest.raises(PermissionError, match="expected a folder of this user alone"):
        hold_cores([0])


def test_cores_that_are_held_are_not_taken() -> None:
    """Who was told to use them shares them with others who were told."""
    first, *others = sorted(os.sched_getaffinity(0))
    locks = [*hold_cores([first]), *hold_cores([first])]
    assert len(locks) == 2
    taken = take_cores(1)
    assert taken.cores == ((others[0],) if others else (first,))
    assert (taken.why_shared is None) == bool(others)
    assert not hold_cores(others[:1])
    for lock in (*locks, *taken.locks):
        os.close(lock)
    every = take_cores(len(others) + 1)
    assert every.why_shared is None
    for lock in every.locks:
        os.close(lock)
