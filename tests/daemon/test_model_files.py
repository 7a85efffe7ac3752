"""The model's files in the cache are looked after, and not by the daemon's loop."""

from __future__ import annotations

import errno
import os
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

    with monkeypatch.context() as patched:
        patched.setattr("shisha_rt.daemon.model_files.publish", full)
        shutil.rmtree(folder)
        until(lambda: is_missed(files), "it is known")
    until(lambda: not is_missed(files), "they are back")
    assert (folder / "weights").read_bytes() == b"1"


def test_a_disk_that_fails_is_looked_at_again(files: ModelFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stale handle of a network file system ended the thread: what was removed later stayed so."""

    def stale(*_: object, **__: object) -> None:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "exists", stale)
        until(lambda: is_missed(files), "it is known")
    until(lambda: not is_missed(files), "the files are read again")


def test_what_cannot_be_put_back_is_logged_once_for_each_folder_and_again_if_it_goes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With two folders, as every model has, each look logged both."""
    folders = [tmp_path / "models", tmp_path / "engines"]
    for folder in folders:
        folder.mkdir()
        (folder / "weights").write_bytes(b"1")
    tries: list[Path] = []

    def full(folder: Path, _: object) -> Path:
        tries.append(folder)
        raise Failure(f"{folder}: the disk is full")

    def lose(files: ModelFiles) -> None:
        with monkeypatch.context() as patched:
            patched.setattr("shisha_rt.daemon.model_files.publish", full)
            tries.clear()
            for folder in folders:
                shutil.rmtree(folder)
            until(lambda: tries.count(folders[1]) > 2, "the third try of both", meanwhile=lambda: is_missed(files))
        until(lambda: not is_missed(files), "their return")
        assert all((folder / "weights").exists() for folder in folders)

    files = ModelFiles(folders)
    for count in 1, 2:
        lose(files)
        logged = [record.getMessage() for record in caplog.records if "cannot be put back" in record.getMessage()]
        assert sorted(message.partition(":")[0] for message in logged) == sorted(map(str, folders * count))
    files.close()


def is_missed(files: ModelFiles) -> bool:
    """Whether a file was missing at the last look. The next look takes place at once."""
    try:
        files.need()
    except FileNotFoundError:
        return True
    return False
