"""A model as files on another host: whole, under the same path, or not there at all and with one line that says why."""

from __future__ import annotations

import hashlib
import resource
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from shisha_rt.cache import cache_folder, fault_in
from shisha_rt.errors import Error, Failure
from shisha_rt.hosts.model_files import (
    PIECE_BYTES,
    FileEntry,
    FolderEntry,
    ModelManifest,
    ModelPiece,
    fetch,
    file_pieces,
    is_here,
    manifest_of,
    read_piece,
)
from shisha_rt.measure.compile import compile_model, engine_key
from shisha_rt.model.zoo import resolve_model
from tests.serving.identity_model import write_identity_model
from tests.wording import raised

FILES = {"a.bin": b"some weights", "empty": b"", "index.json": b"{}"}
PATH = ("engines", "key", "kind")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one of this host, empty."""
    return move_to(tmp_path / "cache", monkeypatch)


def move_to(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return cache_folder()


def entry_of(files: dict[str, bytes], path: tuple[str, ...] = PATH) -> FolderEntry:
    entries = (FileEntry(name, len(data), hashlib.sha256(data).hexdigest()) for name, data in files.items())
    return FolderEntry(path, tuple(entries))


def part_of(piece: ModelPiece, files: dict[str, bytes] = FILES) -> bytes:
    return files[piece.name][piece.offset_bytes : piece.offset_bytes + piece.size_bytes]


def never(piece: ModelPiece) -> bytes:
    raise AssertionError(f"{piece} was asked for")


def content(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name != "files.json"}


def assert_nothing_is_there(cache: Path) -> None:
    assert not cache.joinpath(*PATH).exists()
    assert [str(file) for file in cache.rglob("*") if file.is_file()] == []


# --- pieces ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size_bytes", "sizes"),
    [
        (0, [0]),
        (1, [1]),
        (PIECE_BYTES, [PIECE_BYTES]),
        (PIECE_BYTES + 1, [PIECE_BYTES, 1]),
        (3 * PIECE_BYTES, 3 * [PIECE_BYTES]),
    ],
)
def test_pieces_follow_each_other_to_the_files_end(size_bytes: int, sizes: list[int]) -> None:
    pieces = list(file_pieces(FolderEntry(PATH, (FileEntry("w", size_bytes, ""), FileEntry("v", 7, "")))))
    assert pieces.pop() == ModelPiece("v", 0, 7)
    assert [piece.size_bytes for piece in pieces] == sizes
    assert [piece.offset_bytes for piece in pieces] == [number * PIECE_BYTES for number in range(len(sizes))]


def test_a_folder_without_files_has_no_pieces() -> None:
    assert list(file_pieces(FolderEntry(PATH, ()))) == []


def test_a_large_file_comes_in_several_pieces(cache: Path) -> None:
    large = {"w": bytes(range(256)) * (PIECE_BYTES // 256) + b"the last few bytes"}
    entry = entry_of(large)
    asked: list[ModelPiece] = []

    def get(piece: ModelPiece) -> bytes:
        asked.append(piece)
        return part_of(piece, large)

    folder = fetch(entry, get)
    assert asked == list(file_pieces(entry))
    assert len(asked) == 2
    assert content(folder) == large
    assert [read_piece(entry, piece) for piece in asked] == [part_of(piece, large) for piece in asked]


# --- from one cache to another --------------------------------------------------------------------------------


def test_a_compiled_model_is_the_same_on_another_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = compile_model(resolve_model(str(write_identity_model(tmp_path)), lambda _: None))
    manifest = manifest_of(compiled, engine_key())
    folders = (*manifest.engines, *manifest.models)
    pieces = {(entry.path, piece): read_piece(entry, piece) for entry in folders for piece in file_pieces(entry)}
    assert all(is_here(entry) for entry in folders)
    there = move_to(tmp_path / "there", monkeypatch)
    assert not any(is_here(entry) for entry in folders)
    for entry in folders:
        folder = fetch(entry, lambda piece, entry=entry: pieces[entry.path, piece])  # type: ignore[misc]
        assert folder == there.joinpath(*entry.path)
        assert is_here(entry)
        assert fault_in(folder) is None
    here = [content(compiled.engine_folder), content(compiled.model_folder)]
    assert [content(there.joinpath(*entry.path)) for entry in folders] == here
    assert msgspec.json.decode(msgspec.json.encode(manifest), type=ModelManifest) == manifest


def test_what_is_there_is_not_asked_for_again() -> None:
    entry = entry_of(FILES)
    assert not is_here(entry)
    folder = fetch(entry, part_of)
    assert content(folder) == FILES
    assert is_here(entry)
    assert fetch(entry, never) == folder


@pytest.mark.parametrize(
    "other",
    [{**FILES, "a.bin": b"more weights than here"}, {**FILES, "b.bin": b""}],
    ids=["size", "file"],
)
def test_another_folder_under_this_path_is_not_it(other: dict[str, bytes]) -> None:
    fetch(entry_of(FILES), part_of)
    assert not is_here(entry_of(other))


def test_what_was_damaged_since_comes_anew(caplog: pytest.LogCaptureFixture) -> None:
    entry = entry_of(FILES)
    folder = fetch(entry, part_of)
    (folder / "a.bin").write_bytes(b"more weights")
    assert not is_here(entry)
    fetch(entry, part_of)
    assert content(folder) == FILES
    assert ["a.bin is not what" in line for line in caplog.messages] == [True]


def test_of_several_at_once_one_fetches() -> None:
    asked: list[ModelPiece] = []

    def get(piece: ModelPiece) -> bytes:
        asked.append(piece)
        return part_of(piece)

    with ThreadPoolExecutor(8) as pool:
        folders = set(pool.map(lambda _: fetch(entry_of(FILES), get), range(16)))
    assert len(folders) == 1
    assert asked == list(file_pieces(entry_of(FILES)))


# --- what does not come as it should --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("came", "said"),
    [
        (b"some weightz", "a.bin: what came has"),
        (b"some", "a.bin: 4 bytes came from 0 on, expected 12"),
        (b"some weights and more", "a.bin: 21 bytes came from 0 on, expected 12"),
        (b"", "a.bin: 0 bytes came from 0 on, expected 12"),
    ],
)
def test_other_bytes_are_refused_and_leave_nothing(came: bytes, said: str, cache: Path) -> None:
    entry = entry_of(FILES)
    with raised(Failure, Error.TRANSFER_FAILED, match=said):
        fetch(entry, lambda piece: came if piece.name == "a.bin" else part_of(piece))
    assert_nothing_is_there(cache)
    assert content(fetch(entry, part_of)) == FILES


def test_a_file_that_is_to_be_empty_and_is_said_to_be_another(cache: Path) -> None:
    entry = FolderEntry(PATH, (FileEntry("empty", 0, hashlib.sha256(b"x").hexdigest()),))
    with raised(Failure, Error.TRANSFER_FAILED, match=r"empty: what came .* digest e3b0c44298fc, .* 2d711642b726"):
        fetch(entry, lambda _: b"")
    assert_nothing_is_there(cache)


def test_a_name_that_comes_twice_is_refused(cache: Path) -> None:
    (file, *_) = entry_of(FILES).files
    with raised(Failure, Error.TRANSFER_FAILED, match=r"a\.bin: what came has"):
        fetch(FolderEntry(PATH, (file, file)), part_of)
    assert_nothing_is_there(cache)


def test_a_piece_that_cannot_be_had_is_said_in_one_line(cache: Path) -> None:
    def get(_: ModelPiece) -> bytes:
        raise OSError(5, "Input/output error")

    with raised(Failure, Error.CACHE_UNUSABLE, match=r"kind: .* \(Input/output error\)") as failure:
        fetch(entry_of(FILES), get)
    assert "\n" not in str(failure.value)
    assert_nothing_is_there(cache)


@contextmanager
def files_of_at_most(size_bytes: int) -> Iterator[None]:
    """A limit on files' sizes stands for a disk's."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_said_in_one_line_and_leaves_nothing(cache: Path) -> None:
    large = {"w": bytes(1 << 20)}
    entry = entry_of(large)
    with files_of_at_most(1 << 16), pytest.raises(Failure, match=r"kind: cannot be made"):
        fetch(entry, lambda piece: part_of(piece, large))
    assert_nothing_is_there(cache)
    assert content(fetch(entry, lambda piece: part_of(piece, large))) == large


# --- names ----------------------------------------------------------------------------------------------------

OUTSIDE = ["", ".", "..", "/", "/etc", "../x", "a/b", "a/", "./a", "a\0b"]


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_file_name_that_is_no_plain_one_is_refused(name: str, cache: Path) -> None:
    entry = entry_of({name: b"x"})
    with raised(Failure, Error.TRANSFER_FAILED, match="expected a plain name"):
        is_here(entry)
    with raised(Failure, Error.TRANSFER_FAILED, match="expected a plain name"):
        fetch(entry, never)
    assert not cache.exists()


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("place", range(3))
def test_a_path_that_leads_elsewhere_is_refused(name: str, place: int, cache: Path) -> None:
    path = (*PATH[:place], name, *PATH[place + 1 :])
    with raised(Failure, Error.TRANSFER_FAILED, match="expected a plain name"):
        fetch(entry_of(FILES, path), never)
    assert not cache.exists()


def test_the_cache_itself_is_no_folder_of_a_model(cache: Path) -> None:
    """It would be renamed away, with all that is in it."""
    kept = fetch(entry_of(FILES), part_of)
    for asked in (is_here, lambda entry: fetch(entry, part_of)):
        with raised(Failure, Error.TRANSFER_FAILED, match="expected a path below the cache"):
            asked(entry_of(FILES, ()))
    assert content(kept) == FILES


def test_a_name_that_is_too_long_is_said_in_one_line() -> None:
    with raised(Failure, Error.CACHE_UNUSABLE, match="File name too"):
        fetch(entry_of(FILES, (*PATH[:2], 300 * "k")), part_of)
    assert not is_here(entry_of({300 * "f": b"x"}))


def test_a_link_where_the_folder_is_to_be_makes_way_and_what_it_points_at_stays(cache: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "a.bin").write_text("somebody's")
    target = cache.joinpath(*PATH)
    target.parent.mkdir(parents=True)
    target.symlink_to(elsewhere)
    entry = entry_of(FILES)
    assert not is_here(entry)
    assert fetch(entry, part_of) == target
    assert not target.is_symlink()
    assert content(target) == FILES
    assert content(elsewhere) == {"a.bin": b"somebody's"}


def test_a_cache_that_lies_elsewhere_by_a_link_is_one(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "large disk").mkdir()
    cache.parent.mkdir()
    cache.symlink_to(tmp_path / "large disk")
    folder = fetch(entry_of(FILES), part_of)
    assert content(folder) == FILES
    assert (tmp_path / "large disk").joinpath(*PATH, "a.bin").exists()
    assert is_here(entry_of(FILES))
