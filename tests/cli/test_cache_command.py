"""`shisha-rt cache`: it counts what is there, and removes what is old and nobody's."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shisha_rt.cache import LIST_FILE, cache_folder, publish
from shisha_rt.cli.app import main
from shisha_rt.daemon.model_files import ModelFiles

DAY_S = 86_400.0


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return cache_folder()


@pytest.fixture
def old(folder: Path) -> Path:
    """A published folder that was last used 31 days ago."""
    target = made(folder / "engines" / "key" / "engine-1")
    age(target / LIST_FILE, 31)
    return target


@pytest.fixture
def held(old: Path) -> Iterator[Path]:
    files = ModelFiles([old])
    yield old
    files.close()


def made(target: Path) -> Path:
    def fill(folder: Path) -> None:
        (folder / "weights").write_bytes(bytes(10_000))

    return publish(target, fill)


def age(path: Path, days: float) -> None:
    os.utime(path, (time.time() - days * DAY_S,) * 2)


def said(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert main(["cache", "--json", *options]) == 0
    whole: dict[str, Any] = json.loads(capsys.readouterr().out)
    return whole


def test_an_empty_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "--prune", "1")["bytes"] == 0
    assert not folder.exists()


def test_what_is_there_is_counted_by_kind_and_age(old: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(folder / "engines" / "key" / "engine-2")
    made(folder / "models" / "key")
    whole = said(capsys)
    kinds = {kind["name"]: kind for kind in whole["kinds"]}
    assert {name: kind["folders"] for name, kind in kinds.items()} == {"models": 1, "engines": 2, "zoo": 0}
    assert kinds["engines"]["bytes"] == 2 * kinds["engines"]["unused_bytes"] == 2 * kinds["models"]["bytes"] > 20_000
    assert whole["bytes"] == kinds["engines"]["bytes"] + kinds["models"]["bytes"]
    assert whole["removed_bytes"] == 0
    assert old.exists()
    assert main(["cache"]) == 0
    assert "unused for 30 days" in capsys.readouterr().out


def test_a_file_with_two_names_counts_once(old: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = said(capsys)["bytes"]
    (old / "again").hardlink_to(old / "weights")
    assert said(capsys)["bytes"] == before


def test_what_is_old_goes_with_all_that_was_made_for_it(
    old: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    young = made(folder / "models" / "key")
    assert said(capsys, "--prune", "32")["removed_bytes"] == 0
    assert said(capsys, "--prune", "30")["removed_bytes"] > 10_000
    assert not old.parent.exists()
    assert young.exists()
    assert (made(old) / "weights").exists()


def test_more_days_than_any_clock_has_are_refused(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "--prune", str(10**400)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert old.exists()


def test_what_has_been_used_again_stays(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(old)
    assert said(capsys, "--prune", "30")["removed_bytes"] == 0
    assert old.exists()


def test_what_a_daemon_holds_stays(held: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "--prune", "30")["removed_bytes"] == 0
    assert (held / "weights").exists()


def test_what_died_unfinished_goes_if_it_is_old(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    young, dead = (folder / "models" / f".key.unfinished-{name}" for name in "ab")
    for path in (young, dead):
        path.mkdir(parents=True)
        (path / "weights").write_bytes(bytes(10_000))
    age(dead, 2)
    assert said(capsys, "--prune", "1")["removed_bytes"] > 10_000
    assert young.exists()
    assert not dead.exists()
