"""Leases of cores: which core of a host belongs to which daemon, so that two do not sit on the same one unasked.

A core is leased by a lock on a file of its name in a folder that all of them use; the kernel ends the lease with the
process that has it, however that ends. Whoever was told which cores to use holds them together with others who were
told the same, and keeps them from those who choose for themselves. Containers on one host respect each other's leases
if they are given one folder; a lock passes where the folder is on a local file system.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from shisha_rt.machine.host.cores import usable_cores

FOLDER_VARIABLE: Final = "SHISHA_LEASES"
"""Of the environment: the folder of leases where none is named."""


class Taken(NamedTuple):
    """`why_shared`: what keeps this process from having some alone; None: it has. `leases` are to be closed."""

    cores: tuple[int, ...]
    why_shared: str | None
    leases: CoreLeases


class CoreLeases:
    """The leases of one process. `folder`: where the locks are; None: that of
    the environment, or one of this user's own.

    `fault`: why nothing can be leased, empty where it can; then nobody else's leases are seen either.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._locks: dict[int, int] = {}
        self.fault = ""
        try:
            self.folder = _own_folder() if folder is None else folder
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            self.folder = folder or Path(tempfile.gettempdir())
            self.fault = f"{self.folder}: {error.strerror}" if error.strerror else str(error)

    @property
    def cores(self) -> frozenset[int]:
        """Those that are leased to this process."""
        return frozenset(self._locks)

    def take(self, core: int) -> bool:
        """Lease a core to this process alone; False if somebody else has it, or leases cannot be had."""
        return self._lock(core, fcntl.LOCK_EX)

    def hold(self, cores: Iterable[int]) -> frozenset[int]:
        """Hold cores together with others who hold them; returns those that somebody has leased alone."""
        return frozenset(core for core in cores if not self._lock(core, fcntl.LOCK_SH) and not self.fault)

    def share(self) -> None:
        """Hold what is leased together with others who are told to: it stays theirs if this process ends."""
        for lock in self._locks.values():
            with contextlib.suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def release(self, cores: Iterable[int]) -> None:
        """End the leases of these cores, if they are leased."""
        for core in cores:
            lock = self._locks.pop(core, None)
            if lock is not None:
                os.close(lock)

    def close(self) -> None:
        self.release(list(self._locks))

    def _lock(self, core: int, how: int) -> bool:
        if core in self._locks:
            return True
        if self.fault:
            return False
        try:
            lock = _open(self.folder / str(core))
        except OSError as error:
            self.fault = f"{self.folder}: {error.strerror}"
            return False
        try:
            fcntl.flock(lock, how | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return False
        except OSError as error:  # a file system without locks
            os.close(lock)
            self.fault = f"{self.folder}: {error.strerror}"
            return False
        self._locks[core] = lock
        return True


def take_cores(count: int, folder: Path | None = None) -> Taken:
    """Lease so many of those that this process may use; all of them, to be shared, where too few are free."""
    leases, usable = CoreLeases(folder), usable_cores()
    for core in usable:
        if len(leases.cores) < count:
            leases.take(core)
    if len(leases.cores) == count:
        return Taken(tuple(sorted(leases.cores)), None, leases)
    leases.close()
    return Taken(usable, leases.fault or f"fewer than {count} are free", leases)


def _open(path: Path) -> int:
    """The file need not be ours: a lock on it takes no more than the right to read it.

    Only one that is not there is created: in a folder that all may write to, the kernel (fs.protected_regular) refuses
    to open another user's file with leave to create it.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        lock = os.open(path, flags | os.O_CREAT)
        with contextlib.suppress(PermissionError):  # another user was quicker
            os.fchmod(lock, 0o644)
        return lock


def _own_folder() -> Path:
    """The environment's, or one of this user's. Raises OSError where somebody else has made that."""
    if FOLDER_VARIABLE in os.environ:
        return Path(os.environ[FOLDER_VARIABLE])
    path = Path(tempfile.gettempdir(), f"shisha-rt-cores-{os.getuid()}")  # not a session's: Ray's may be another one
    path.mkdir(mode=0o700, exist_ok=True)
    status = path.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(f"{path}: expected a folder of this user alone")
    return path
