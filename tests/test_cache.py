"""A folder in the cache exists whole or not at all, whoever builds it and whoever dies."""

from __future__ import annotations

import logging
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shisha_rt import cache
from shisha_rt.cache import LIST_FILE, cache_folder, fault_in, publish
from shisha_rt.errors import Error, Failure
from tests.waiting import until
from tests.wording import raised

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
        targets = list(pool.map(lambda _: publish(target, build), range(32)))
    assert set(targets) == {target}
    assert len(builds) == 1
    assert (target / "file").read_text() == "whole"


def test_failed_build_leaves_nothing_and_may_be_tried_again(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise Failure("the engine fails")

    target = tmp_path / "thing"
    with pytest.raises(Failure, match="the engine fails"):
        publish(target, fail)
    assert list(tmp_path.iterdir()) == []
    publish(target, lambda folder: (folder / "file").touch())
    assert (target / "file").exists()


LARGE_BYTES = 9 << 20  # of zeros, which take no room on the disk


def fill(folder: Path) -> None:
    (folder / "small").write_text("whole")
    with (folder / "large").open("wb") as file:
        file.truncate(LARGE_BYTES)


def empty_all(target: Path) -> None:
    for file in target.iterdir():
        os.truncate(file, 0)


def other_bytes_in_the_large(target: Path) -> None:
    with (target / "large").open("r+b") as file:
        file.seek(LARGE_BYTES // 2)
        file.write(b"other")


def into_a_file(target: Path) -> None:
    target.rename(target.with_name("elsewhere"))
    target.write_text("no folder")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda it: (it / "small").write_bytes(b""), "small has 0 bytes, expected 5"),
        (lambda it: (it / "small").write_text("whale"), "small is not"),
        (lambda it: (it / "small").unlink(), "small cannot be"),
        (lambda it: os.truncate(it / "large", LARGE_BYTES - 1), f"large has {LARGE_BYTES - 1} bytes, expected"),
        (other_bytes_in_the_large, "large is not"),
        (lambda it: os.truncate(it / LIST_FILE, 20), "has no list"),
        (lambda it: (it / LIST_FILE).write_bytes(b"\xff"), "has no list"),
        (lambda it: (it / LIST_FILE).unlink(), "has no list"),
        (empty_all, "has no list"),
        (into_a_file, "has no list"),
    ],
    ids=[
        "empty",
        "other-bytes",
        "missing",
        "large-cut",
        "large-other-bytes",
        "list-cut",
        "list-garbage",
        "earlier-version",
        "all-empty",
        "file",
    ],
)
def test_what_is_not_as_it_was_published_is_built_anew_with_one_line(
    damage: Callable[[Path], object], words: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    target = publish(tmp_path / "thing", fill)
    assert publish(target, fill) == target
    assert caplog.messages == []
    damage(target)
    builds: list[Path] = []

    def build(folder: Path) -> None:
        builds.append(folder)
        fill(folder)

    with caplog.at_level(logging.WARNING), ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: publish(target, build), range(8)))
    assert len(builds) == 1
    (line,) = caplog.messages
    assert line.startswith(f"{target}: {words}")
    assert line.endswith("; it is built anew")
    assert fault_in(target) is None
    assert (target / "small").read_text() == "whole"
    assert {path.name for path in tmp_path.iterdir()} <= {".thing.lock", "thing", "elsewhere"}


def test_a_large_file_that_two_folders_share_is_not_read_at_each_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = publish(tmp_path / "one", fill), publish(tmp_path / "two", fill)
    (two / "large").unlink()
    (two / "large").hardlink_to(one / "large")
    read, digest_of = list[Path](), cache.sha256_of

    def sha256_of(file: Path) -> str:
        read.append(file)
        return digest_of(file)

    monkeypatch.setattr(cache, "sha256_of", sha256_of)
    assert [fault_in(one), fault_in(two)] == [None, None]
    assert read == [one / "small", two / "small"]
    other_bytes_in_the_large(one)
    assert all(map(fault_in, (one, two)))


def test_who_dies_between_two_renames_costs_the_work_alone(tmp_path: Path) -> None:
    target = publish(tmp_path / "thing", fill)
    target.rename(tmp_path / ".thing.unfinished-abc-old")
    publish(target, fill)
    assert {path.name for path in tmp_path.iterdir()} == {".thing.lock", "thing"}


@pytest.mark.parametrize("room_bytes", [0, 10, 200])
def test_a_full_disk_is_said_in_one_line_and_leaves_nothing(room_bytes: int, tmp_path: Path) -> None:
    """Full before the first file, in it, and in the list of files. A limit on files' sizes stands for a disk's."""

    def build(folder: Path) -> None:
        for i in range(4):
            (folder / str(i)).write_text("a few bytes"[: i + 6])

    target = tmp_path / "thing"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room_bytes, hard))
    try:
        with pytest.raises(Failure) as failure:
            publish(target, build)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    said = str(failure.value)
    assert said.startswith(f"{target}: cannot be made")
    assert "XDG_CACHE_HOME" in said
    assert "\n" not in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["thing", "deep/er/thing"])
def test_a_path_through_a_file_is_said_in_one_line(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    with raised(Failure, Error.CACHE_UNUSABLE, match=r"thing: .* \((Not a directory|File exists)\)"):
        publish(tmp_path / "file" / place, fill)
    assert (tmp_path / "file").read_text() == "kept"


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000)  # whom the system's list of users does not have
    with raised(Failure, Error.CACHE_UNUSABLE, match="set XDG_CACHE_HOME"):
        cache_folder()


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


def test_who_waits_for_another_says_so_and_goes_on_if_that_one_is_ended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be stopped, and then its lock stays."""
    monkeypatch.setattr("shisha_rt.cache._SAY_AFTER_S", 0.1)
    target = tmp_path / "thing"
    with subprocess.Popen([sys.executable, "-c", _BUILD_AND_HANG, target], stdout=subprocess.PIPE) as builder:
        assert builder.stdout is not None
        builder.stdout.readline()
        builder.send_signal(signal.SIGSTOP)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(publish, target, lambda folder: (folder / "file").touch())
            try:
                until(lambda: caplog.messages, "that it waits")
                assert not waiting.done()
            finally:
                builder.kill()
            assert waiting.result() == target
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith(f"{target}: ")


def test_who_waits_for_one_that_fails_is_the_next_to_build_and_nobody_else_meanwhile(tmp_path: Path) -> None:
    """The lock that they wait on is taken away, and the folder that it lies in."""
    building: list[Path] = []
    built: list[Path] = []

    def build(folder: Path) -> None:
        building.append(folder)
        assert len(building) == 1
        time.sleep(0.005)
        building.remove(folder)
        built.append(folder)
        if len(built) < 20:
            raise Failure("not yet")

    def attempt(_: int) -> bool:
        try:
            publish(tmp_path / "deep" / "thing", build)
        except Failure:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(attempt, range(30)))
    assert len(built) == 20
    assert outcomes.count(False) == 19


def test_many_that_fail_at_once_pass_on_their_own_failures_alone(tmp_path: Path) -> None:
    """Each takes away the lock and its folder while others look for them."""

    def fail(_: Path) -> None:
        raise Failure("the engine fails")

    def message_of(_: int) -> str:
        with pytest.raises(Failure) as failure:
            publish(tmp_path / "deep" / "thing", fail)
        return str(failure.value)

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(message_of, range(300))) == {"the engine fails"}
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


def test_a_failure_is_passed_on_though_the_cache_was_emptied_and_the_lock_of_another_stays(tmp_path: Path) -> None:
    lock = tmp_path / "deep" / ".thing.lock"

    def fail(_: Path) -> None:
        shutil.rmtree(tmp_path / "deep")
        raise Failure("the engine fails")

    def fail_beside_another(folder: Path) -> None:
        shutil.rmtree(tmp_path / "deep")
        lock.parent.mkdir()
        lock.touch()
        raise Failure("the engine fails")

    for build in (fail, fail_beside_another):
        with pytest.raises(Failure, match="the engine fails"):
            publish(tmp_path / "deep" / "thing", build)
    assert lock.exists()
