"""The model's files in the cache are looked after, and not by the daemon's loop."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from shisha_rt.daemon.model_files import ModelFiles
from shisha_rt.errors import Failure
from tests.waiting import until


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "published"
    folder.mkdir()
    (folder / "weights").write_bytes(b"1")
    return folder


@pytest.fixture
def files(folder: Path) -> Iterator[ModelFiles]:
    files = ModelFiles([folder])
    yield files
    files.close()


def test_a_disk_that_does_not_answer_holds_no_start(files: ModelFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    looked, answers = threading.Event(), threading.Event()

    def exists(_: Path) -> bool:
        looked.set()
        assert threading.current_thread() is not threading.main_thread()
        return answers.wait()

    monkeypatch.setattr(Path, "exists", exists)
    files.need()
    looked.wait()
    files.need()
    answers.set()


def test_a_start_without_its_files_is_refused_until_they_are_back(
    files: ModelFiles, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise Failure("the disk is full")

    def refused() -> bool:
        try:
            files.need()
        except FileNotFoundError:
            return True
        return False

    with monkeypatch.context() as patched:
        patched.setattr("shisha_rt.daemon.model_files.publish", full)
        shutil.rmtree(folder)
        until(refused, "it is known")
    until(lambda: not refused(), "they are back")
    assert (folder / "weights").read_bytes() == b"1"
