"""Files in shared memory that strangers name: only their own plain files are ever touched."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from shisha_rt.errors import Error
from shisha_rt.http.app_state import Caller
from shisha_rt.http.inference.request import FilePiece
from shisha_rt.http.inference.shared_memory import SharedFiles
from shisha_rt.protocol.access import Permission
from shisha_rt.protocol.exceptions import (
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
)
from shisha_rt.protocol.limits import MAX_NAME_LENGTH
from tests.wording import raised

OWN = Caller("a", Permission.CLIENT, os.getuid())
OTHER = Caller("b", Permission.CLIENT, os.getuid() + 1)
NOBODY = Caller("", Permission.OPERATOR, None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shm").mkdir()
    (tmp_path / "shm" / "foo").write_bytes(bytes(range(100)))
    return tmp_path / "shm"


@pytest.fixture
def files(folder: Path) -> SharedFiles:
    return SharedFiles(str(folder))


def test_what_is_registered_is_read_and_written(files: SharedFiles, folder: Path) -> None:
    files.register(OWN, "r", "/foo", 10, 50)
    room = bytearray(4)
    files.read(OWN, FilePiece("r", 6, 4), memoryview(room))
    assert room == bytes(range(16, 20))
    files.write(OWN, FilePiece("r", 46, 4), memoryview(b"last"))
    assert (folder / "foo").read_bytes()[56:60] == b"last"
    assert (folder / "foo").stat().st_size == 100
    assert files.of(OWN)["r"].about == {"name": "r", "key": "/foo", "offset": 10, "byte_size": 50}
    with pytest.raises(FailedPrecondition):
        files.register(OWN, "r", "foo", 0, 1)
    files.register(OWN, "s", "foo", 50, 50)
    files.write(OWN, FilePiece("s", 46, 4), memoryview(b"ends"))
    assert (folder / "foo").read_bytes()[96:] == b"ends"
    files.unregister(OWN, "r")
    files.unregister(OWN, "r")
    assert list(files.of(OWN)) == ["s"]
    with pytest.raises(NotFound):
        files.read(OWN, FilePiece("r", 6, 4), memoryview(room))


@pytest.mark.parametrize(("offset", "size_bytes"), [(0, 0), (0, 101), (100, 1), (2**62, 2**62), (51, 50)])
def test_a_region_lies_in_its_file(files: SharedFiles, offset: int, size_bytes: int) -> None:
    before = descriptors()
    with pytest.raises(InvalidArgument):
        files.register(OWN, "r", "foo", offset, size_bytes)
    assert files.of(OWN) == {}
    assert descriptors() == before


@pytest.mark.parametrize(("offset", "size_bytes"), [(0, 51), (50, 1), (47, 4), (2**63 - 1, 1), (0, 2**63 - 1)])
def test_a_piece_lies_in_its_region(files: SharedFiles, offset: int, size_bytes: int) -> None:
    files.register(OWN, "r", "foo", 10, 50)
    piece = FilePiece("r", offset, size_bytes)
    with pytest.raises(InvalidArgument):
        files.read(OWN, piece, memoryview(bytearray(4)))
    with pytest.raises(InvalidArgument):
        files.find(OWN, piece)
    with pytest.raises(InvalidArgument):
        files.write(OWN, piece, memoryview(b"1234"))


def test_an_output_stays_in_its_piece(files: SharedFiles, folder: Path) -> None:
    files.register(OWN, "r", "foo", 10, 50)
    with pytest.raises(InvalidArgument):
        files.write(OWN, FilePiece("r", 0, 3), memoryview(b"1234"))
    assert (folder / "foo").read_bytes() == bytes(range(100))


def test_without_a_folder_there_are_no_regions() -> None:
    files = SharedFiles(None)
    with raised(InvalidArgument, Error.SHARING_OFF):
        files.register(OWN, "r", "foo", 0, 1)
    with raised(InvalidArgument, Error.SHARING_OFF):
        files.find(OWN, FilePiece("r", 0, 1))
    assert files.of(NOBODY) == {}
    files.unregister(NOBODY)


def test_a_name_has_at_most_so_many_characters(files: SharedFiles) -> None:
    files.register(OWN, "r" * MAX_NAME_LENGTH, "foo", 0, 1)
    with raised(InvalidArgument, Error.MALFORMED_REQUEST):
        files.register(OWN, "s" * (MAX_NAME_LENGTH + 1), "foo", 0, 1)


@pytest.mark.parametrize("written", [OSError(errno.ENOSPC, "full"), 3])
def test_an_output_that_finds_no_memory_is_refused(
    files: SharedFiles, monkeypatch: pytest.MonkeyPatch, written: OSError | int
) -> None:
    files.register(OWN, "r", "foo", 0, 100)
    monkeypatch.setattr(os, "pwritev", Mock(side_effect=[written]))
    with raised(ResourceExhausted, Error.REGION_REFUSED):
        files.write(OWN, FilePiece("r", 0, 4), memoryview(b"1234"))


def test_a_file_that_shrinks_costs_an_error_and_does_not_grow(files: SharedFiles, folder: Path) -> None:
    files.register(OWN, "r", "foo", 0, 100)
    os.truncate(folder / "foo", 50)
    piece = FilePiece("r", 48, 4)
    with pytest.raises(InvalidArgument, match="shorter"):
        files.read(OWN, piece, memoryview(bytearray(4)))
    with pytest.raises(InvalidArgument, match="shorter"):
        files.write(OWN, piece, memoryview(b"1234"))
    assert (folder / "foo").stat().st_size == 50


@pytest.mark.parametrize(
    "key", ["", "/", ".", "..", "/..", "a/b", "../shm/foo", "//foo", "/foo/", "foo\0", "no", "\udc80", "x" * 5000]
)
def test_a_key_is_a_plain_name(files: SharedFiles, key: str) -> None:
    with pytest.raises((InvalidArgument, NotFound)):
        files.register(OWN, "r", key, 0, 1)


def _link(folder: Path) -> None:
    (folder / "bad").symlink_to(folder / "foo")


def _second_name(folder: Path) -> None:
    (folder / "bad").hardlink_to(folder / "foo")


def _folder(folder: Path) -> None:
    (folder / "bad").mkdir()


def _fifo(folder: Path) -> None:
    os.mkfifo(folder / "bad")


@pytest.mark.parametrize("make", [_link, _second_name, _folder, _fifo])
def test_only_plain_files_with_one_name_are_opened(
    files: SharedFiles, folder: Path, make: Callable[[Path], None]
) -> None:
    make(folder)
    with pytest.raises(NotFound):
        files.register(OWN, "r", "bad", 0, 1)


def test_nobody_has_what_is_anothers(files: SharedFiles) -> None:
    files.register(OWN, "r", "foo", 0, 100)
    with pytest.raises(NotFound):
        files.register(OTHER, "r", "foo", 0, 100)  # the file is OWN's
    with pytest.raises(NotFound):
        files.read(OTHER, FilePiece("r", 0, 4), memoryview(bytearray(4)))
    assert files.of(OTHER) == {}
    files.unregister(OTHER)
    assert list(files.of(OWN)) == ["r"]
    with pytest.raises(PermissionDenied):
        files.of(NOBODY)
    with pytest.raises(PermissionDenied):
        files.register(NOBODY, "r", "foo", 0, 1)


def test_regions_are_bounded_and_closed(files: SharedFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shisha_rt.http.inference.shared_memory.MOST_REGIONS", 3)
    before = descriptors()
    for number in range(3):
        files.register(OWN, str(number), "foo", 0, 100)
    for _ in range(10):
        with pytest.raises(ResourceExhausted):
            files.register(OWN, "more", "foo", 0, 100)
        with pytest.raises(NotFound):
            files.register(OTHER, "r", "foo", 0, 100)
    assert descriptors() == before + 3
    files.unregister(OWN)
    assert descriptors() == before


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
