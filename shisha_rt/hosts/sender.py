"""Puts pieces of the model into Ray's object store, each once, in a thread beside the loop."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeAlias

import msgspec

from shisha_rt.hosts.model_files import FolderEntry, file_pieces, read_piece

SentPiece: TypeAlias = tuple[int, bytes, list[Any]]
"""Number of the folder, `ModelPiece` as JSON, and Ray's reference to its bytes in a list; see `FarHost.bring`."""


class ModelSender:
    """Sends in a thread, as a large model takes long to read, and a full store takes long to free memory."""

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
