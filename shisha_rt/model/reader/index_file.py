"""The index of a model, as JSON beside its optimised form."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from shisha_rt.model.index import ModelIndex

FILE_NAME: Final = "index.json"


def write_index(index: ModelIndex, folder: Path) -> None:
    (folder / FILE_NAME).write_bytes(msgspec.json.encode(index))


def read_index(folder: Path) -> ModelIndex:
    return msgspec.json.decode((folder / FILE_NAME).read_bytes(), type=ModelIndex)
