"""What `/proc` says of a process."""

from __future__ import annotations

import contextlib
import errno
from pathlib import Path


def wants_core(pid: int) -> bool:
    """Whether some thread of the process is runnable, or waits for a disk; true too if no descriptor is to be had."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError as error:
        return error.errno in (errno.EMFILE, errno.ENFILE)
    for thread in threads:
        with contextlib.suppress(OSError):  # it has just ended
            if stat_fields(thread / "stat")[0] in "RD":
                return True
    return False


def began_ticks(pid: int) -> int:
    """When the process began, in the kernel's ticks since the host's start; 0 if it has ended.

    With the id it names a process: ids are used again.
    """
    try:
        return int(stat_fields(Path(f"/proc/{pid}/stat"))[19])
    except OSError:
        return 0


def stat_fields(path: Path) -> list[str]:
    """The fields behind a process's or thread's name, the first of which is its state. Raises OSError."""
    return path.read_text().rpartition(")")[2].split()
