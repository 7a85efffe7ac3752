"""All pictures of `docs/how-it-works.md`, written: `python -m benchmarks pictures`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from benchmarks.pictures.change import change
from benchmarks.pictures.copies import copies
from benchmarks.pictures.devices import devices
from benchmarks.pictures.frames import frames
from benchmarks.pictures.sheet import Sheet
from benchmarks.pictures.walk import walk
from benchmarks.report.facts import ROOT

FOLDER: Final = ROOT / "docs" / "pictures"
PICTURES: Final[Mapping[str, Callable[[], Sheet]]] = {
    "how_frames": frames,
    "how_walk": walk,
    "how_copies": copies,
    "how_change": change,
    "how_devices": devices,
}


def path_of(name: str) -> Path:
    return FOLDER / f"{name}.svg"


def pictures() -> None:
    """The moving pictures in docs/pictures, from the planners and the lifecycle on paper: a few seconds."""
    for name, draw in PICTURES.items():
        path_of(name).write_text(str(draw()), encoding="utf-8")
        print(f"written to {path_of(name)}")
