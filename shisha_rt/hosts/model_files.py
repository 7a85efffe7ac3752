"""A compiled model as files with their digests: what a host must have before it can run a stage of the model.

A folder is identified by its path below the cache, which is made of the model's content, the engine's version and the
processor's kind, so it has the same path on every host. Files are sent in pieces. The receiving host publishes a folder
as this one does (`cache.publish`): in one process, and only once every file in it has the expected digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any, Final, TypeAlias

import msgspec

from shisha_rt.cache import LIST_FILE, cache_folder, fault_in, publish, sha256_of
from shisha_rt.errors import Error, Failure
from shisha_rt.measure.compiled import Compiled

PIECE_BYTES: Final = 32 << 20

SentPiece: TypeAlias = tuple[int, bytes, list[Any]]
"""Number of the folder, `ModelPiece` as JSON, and Ray's reference to its bytes in a list; see `FarHost.bring`."""


class FileEntry(msgspec.Struct, frozen=True):
    """A file of a folder; `name` is relative to the folder."""

    name: str
    size_bytes: int
    sha256: str


class FolderEntry(msgspec.Struct, frozen=True):
    """A folder of the cache; `path`: parts of its path below the cache."""

    path: tuple[str, ...]
    files: tuple[FileEntry, ...]


class ModelManifest(msgspec.Struct, frozen=True):
    """For each shape: in `engines` the form that the engine of `engine_key` made, in `models` the cleaned model."""

    name: str
    engine_key: str
    engines: tuple[FolderEntry, ...]
    models: tuple[FolderEntry, ...]

    def folders_for(self, engine_key: str) -> tuple[FolderEntry, ...]:
        """What a host needs whose engine has this key: with another engine it compiles the cleaned models itself."""
        return self.engines if engine_key == self.engine_key else self.models


class ModelPiece(msgspec.Struct, frozen=True):
    """A part of a file: `size_bytes` from `offset_bytes` on."""

    name: str
    offset_bytes: int
    size_bytes: int


def manifest_of(compiled: Compiled, engine_key: str) -> ModelManifest:
    """The manifest of a model; reads every file once."""
    return ModelManifest(
        compiled.model.name,
        engine_key,
        tuple(_entry(shape.engine_folder) for shape in compiled.each),
        tuple(_entry(shape.model_folder) for shape in compiled.each),
    )


def _entry(folder: Path) -> FolderEntry:
    files = tuple(
        FileEntry(file.name, file.stat().st_size, sha256_of(file))
        for file in sorted(folder.iterdir())
        if file.name != LIST_FILE
    )
    return FolderEntry(folder.relative_to(cache_folder()).parts, files)


def file_pieces(folder: FolderEntry) -> Iterator[ModelPiece]:
    """Yield the pieces of all files, in order; an empty file is one empty piece."""
    for file in folder.files:
        for offset in range(0, max(1, file.size_bytes), PIECE_BYTES):
            yield ModelPiece(file.name, offset, min(PIECE_BYTES, file.size_bytes - offset))


def read_piece(folder: FolderEntry, piece: ModelPiece) -> bytes:
    with cache_folder().joinpath(*folder.path, piece.name).open("rb") as file:
        file.seek(piece.offset_bytes)
        return file.read(piece.size_bytes)


class ModelSender:
    """Puts pieces of the model into Ray's object store, each once.

    In a thread beside the loop, as a large model takes long to read, and a full store takes long to free memory.
    """

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._thread = ThreadPoolExecutor(1)
        self._kept: dict[tuple[tuple[str, ...], bytes], Any] = {}
        self._ends = False

    def send(self, folders: Sequence[FolderEntry], numbers: Sequence[int]) -> Future[list[SentPiece]]:
        """Send the folders with these numbers; the future fails with OSError, or an error of Ray's."""
        return self._thread.submit(self._send, folders, numbers)

    def _send(self, folders: Sequence[FolderEntry], numbers: Sequence[int]) -> list[SentPiece]:
        pieces: list[SentPiece] = []
        for number in numbers:
            folder = folders[number]
            for piece in file_pieces(folder):
                if self._ends:
                    return []
                key = folder.path, msgspec.json.encode(piece)
                ref = self._kept.get(key)
                if ref is None:
                    ref = self._kept[key] = self._ray.put(read_piece(folder, piece))
                pieces.append((number, key[1], [ref]))
        return pieces

    def forget(self) -> None:
        """Drop all pieces from the store, as no host fetches any; a host that joins later has them sent again."""
        self._kept = {}

    def close(self) -> None:
        self._ends = True
        self._thread.shutdown(wait=False, cancel_futures=True)


def is_here(folder: FolderEntry) -> bool:
    """Whether this host's cache has the folder, undamaged and with files of these sizes."""
    place = folder_here(folder)
    if fault_in(place) is not None:
        return False
    try:
        return all((place / file.name).stat().st_size == file.size_bytes for file in folder.files)
    except OSError:  # it was published with other files
        return False


def folder_here(folder: FolderEntry) -> Path:
    """The folder's path on this host. Raises Failure if a path or name leads out of the cache, or a path is empty."""
    if not folder.path:
        raise Failure("a folder of the model has no path: expected a path below the cache", Error.TRANSFER_FAILED)
    for part in (*folder.path, *(file.name for file in folder.files)):
        if not part or part in (".", "..") or PurePosixPath(part).name != part or "\0" in part:
            raise Failure(f"a folder of the model is called {part!r}: expected a plain name", Error.TRANSFER_FAILED)
    return cache_folder().joinpath(*folder.path)


def fetch(folder: FolderEntry, get: Callable[[ModelPiece], bytes]) -> Path:
    """Make sure that this host's cache has the folder; if it is missing, call `get` for every piece.

    Raises Failure if a file has a wrong digest or size, or cannot be written.
    """

    def build(target: Path) -> None:
        for file in folder.files:
            _write(target / file.name, file, [piece for piece in file_pieces(folder) if piece.name == file.name], get)

    return publish(folder_here(folder), build)


def _write(target: Path, file: FileEntry, pieces: Sequence[ModelPiece], get: Callable[[ModelPiece], bytes]) -> None:
    digest = hashlib.sha256()
    with target.open("xb") as opened:
        for piece in pieces:
            data = get(piece)
            if len(data) != piece.size_bytes:
                raise Failure(
                    f"{file.name}: {len(data)} bytes came from {piece.offset_bytes} on, expected {piece.size_bytes}",
                    Error.TRANSFER_FAILED,
                )
            digest.update(data)
            opened.write(data)
    if digest.hexdigest() != file.sha256:
        raise Failure(
            f"{file.name}: what came has the digest {digest.hexdigest()[:12]}, expected {file.sha256[:12]}",
            Error.TRANSFER_FAILED,
        )
