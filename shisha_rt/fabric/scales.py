"""The scales that tensors of a model have in int8, kept in a file beside it (see `graph.scales`)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

_VERSION: Final = 1  # raise it when they would come out differently
FILE_NAME: Final = f"int8-scales-{_VERSION}.json"


def write_scales(exponents: Mapping[str, int], folder: Path) -> None:
    """Whole or not at all, and over what others may have written meanwhile. Raises OSError."""
    unfinished = folder / f".{FILE_NAME}.{os.getpid()}"
    try:
        unfinished.write_bytes(msgspec.json.encode(exponents))
        unfinished.replace(folder / FILE_NAME)
    finally:
        unfinished.unlink(missing_ok=True)


def read_scales(folder: Path) -> dict[str, int] | None:
    """Exponents of two, by tensor; None where there is no file that can be read."""
    try:
        return msgspec.json.decode((folder / FILE_NAME).read_bytes(), type=dict[str, int])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
