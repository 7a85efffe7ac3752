"""Which of a host's cores a far end takes, where nobody has said: such as nobody else of this kind here has.

A core is taken by a lock on a file of its name, which the kernel releases with the process. Whoever was told which
cores to use holds them together with others who were told the same.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Taken(NamedTuple):
    """`why_shared`: what keeps this process from having some alone; None: it has. The descriptors hold the locks."""

    cores: tuple[int, ...]
    why_shared: str | None
    locks: tuple[int, ...]


def take_cores(count: int) -> Taken:
    """So many of those that this process may use; all of them, to be shared, where too few are free."""
    usable = sorted(os.sched_getaffinity(0))
    try:
        folder = _folder()
    except OSError as error:
        return Taken(tuple(usable), str(error), ())
    cores: list[int] = []
    locks: list[int] = []
    for core in usable:
        if len(cores) == count:
            break
        lock = _lock(folder, core, fcntl.LOCK_EX)
        if lock is not None:
            cores.append(core)
            locks.append(lock)
    if len(cores) == count:
        return Taken(tuple(cores), None, tuple(locks))
    for lock in locks:
        os.close(lock)
    return Taken(tuple(usable), f"fewer than {count} are free", ())


def hold_cores(cores: Iterable[int]) -> tuple[int, ...]:
    """Keep others from taking these; the descriptors of the locks. What is taken already is shared. Raises OSError."""
    folder = _folder()
    locks = (_lock(folder, core, fcntl.LOCK_SH) for core in cores)
    return tuple(lock for lock in locks if lock is not None)


def _lock(folder: Path, core: int, how: int) -> int | None:
    lock = os.open(folder / str(core), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def _folder() -> Path:
    """One of this user's. Raises OSError where somebody else has made it."""
    path = Path(tempfile.gettempdir(), f"shisha-rt-cores-{os.getuid()}")  # not a session's: Ray's may be another one
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{path}: expected a folder of this user alone")
    return path
