"""Which of a host's cores a far end takes, where nobody has said: such as no other far end here has.

A core is taken by a lock on a file of its name, which the kernel releases with the process.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path
from typing import NamedTuple


class Taken(NamedTuple):
    """`alone`: no other far end has them. The descriptors hold the locks."""

    cores: tuple[int, ...]
    alone: bool
    locks: tuple[int, ...]


def take_cores(count: int) -> Taken:
    """So many of those that this process may use; all of them, to be shared, where too few are free."""
    usable = sorted(os.sched_getaffinity(0))
    folder = _folder()
    cores: list[int] = []
    locks: list[int] = []
    for core in usable:
        if len(cores) == count:
            break
        lock = os.open(folder / str(core), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
        else:
            cores.append(core)
            locks.append(lock)
    if len(cores) == count:
        return Taken(tuple(cores), True, tuple(locks))
    for lock in locks:
        os.close(lock)
    return Taken(tuple(usable), False, ())


def _folder() -> Path:
    """One of this user's. Raises OSError where somebody else has made it."""
    path = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir(), f"shisha-rt-cores-{os.getuid()}")
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{path}: expected a folder of this user alone")
    return path
