"""What this process has open, to be compared before and after."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def open_descriptors() -> list[str]:
    """What each of them is."""
    found = []
    for path in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one by which they are listed
            found.append(str(path.readlink()))
    return sorted(found)
