"""The scales that tensors of a model have in int8, kept in a file beside it (see `model.scales`)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

_VERSION: Final = 1  # raise it when they would come out differently


def scales_file(digest: str = "") -> str:
    """Name of the file with scales in the model's folder.

    `digest`: of the calibration frames, empty where these are noise.
    """
    return "-".join(filter(None, ("int8", str(_VERSION), digest))) + ".json"


def write_scales(exponents: Mapping[str, int], folder: Path, name: str) -> None:
    """Whole or not at all, and over what others may have written meanwhile. Raises OSError."""
    unfinished = folder / f".{name}.{os.getpid()}"
    try:
        unfinished.write_bytes(msgspec.json.encode(exponents))
        unfinished.replace(folder / name)
    finally:
        unfinished.unlink(missing_ok=True)


def read_scales(folder: Path, name: str) -> dict[str, int] | None:
    """Exponents of two, by tensor; None where there is no file that can be read."""
    try:
        return msgspec.json.decode((folder / name).read_bytes(), type=dict[str, int])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
