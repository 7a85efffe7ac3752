"""What `/proc` says of a process."""

from __future__ import annotations

import contextlib
from pathlib import Path


def wants_core(pid: int) -> bool:
    """Whether some thread of the process is runnable, or waits for a disk."""
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            if stat_fields(stat)[0] in "RD":
                return True
    return False


def stat_fields(path: Path) -> list[str]:
    """The fields behind a process's or thread's name, the first of which is its state. Raises OSError."""
    return path.read_text().rpartition(")")[2].split()
