"""A folder in the cache exists whole or not at all, whoever builds it and whoever dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shisha_rt.cache import cache_folder, publish

_BUILD_AND_HANG = """
import sys, time
from pathlib import Path
from shisha_rt.cache import publish

def build(folder):
    (folder / "half").touch()
    print("building", flush=True)
    time.sleep(60)

publish(Path(sys.argv[1]), build)
"""


@pytest.mark.parametrize(
    ("value", "expected"), [("/var/x", "/var/x"), ("", "/home/u/.cache"), ("rel", "/home/u/.cache")]
)
def test_cache_folder_follows_xdg(value: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    monkeypatch.setenv("HOME", "/home/u")
    assert cache_folder() == Path(expected) / "shisha-rt"


def test_only_one_of_many_builds(tmp_path: Path) -> None:
    builds: list[Path] = []

    def build(folder: Path) -> None:
        builds.append(folder)
        (folder / "file").write_text("whole")

    target = tmp_path / "deep" / "er" / "thing"
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: publish(target, build), range(32)))
    assert set(found) == {target}
    assert len(builds) == 1
    assert (target / "file").read_text() == "whole"


def test_failed_build_leaves_nothing_and_may_be_tried_again(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise OSError("disk full")

    target = tmp_path / "thing"
    with pytest.raises(OSError, match="disk full"):
        publish(target, fail)
    assert [path.name for path in tmp_path.iterdir()] == [".thing.lock"]
    publish(target, lambda folder: (folder / "file").touch())
    assert (target / "file").exists()


def test_builder_that_is_killed_frees_the_lock_and_its_leftovers_go(tmp_path: Path) -> None:
    target = tmp_path / "thing"
    with subprocess.Popen(
        [sys.executable, "-c", _BUILD_AND_HANG, str(target)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "building\n"
        os.kill(child.pid, signal.SIGKILL)
    assert not target.exists()
    assert len(list(tmp_path.iterdir())) == 2
    publish(target, lambda folder: (folder / "file").touch())
    assert {path.name for path in tmp_path.iterdir()} == {".thing.lock", "thing"}
