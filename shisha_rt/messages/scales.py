"""A file beside a model with the int8 scales of its tensors (see `model.scales`)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

_VERSION: Final = 1  # raise it when the scales would come out differently


def scales_file(digest: str = "") -> str:
    """Name of the file with scales in the model's folder; `digest`: of the calibration frames, empty for noise."""
    return "-".join(filter(None, ("int8", str(_VERSION), digest))) + ".json"


def write_scales(exponents: Mapping[str, int], folder: Path, name: str) -> None:
    """Write the file atomically, over what other processes may have written meanwhile. Raises OSError.

    It is begun beside the folder, as others list what is in that, and open it.
    """
    unfinished = folder.with_name(f".{folder.name}.{name}.{os.getpid()}")
    try:
        unfinished.write_bytes(msgspec.json.encode(exponents))
        unfinished.replace(folder / name)
    finally:
        unfinished.unlink(missing_ok=True)


def read_scales(folder: Path, name: str) -> dict[str, int] | None:
    """Exponents of two, by tensor; None if there is no file that can be read."""
    try:
        return msgspec.json.decode((folder / name).read_bytes(), type=dict[str, int])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
