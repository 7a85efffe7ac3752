"""Leases of cores: which core of a host belongs to which daemon, so that no two use the same core unasked.

A lease is a lock on a file named after the core, in a folder that all daemons use; the kernel ends the lease when its
process ends, however that happens. A process that is given its cores by the user holds them by a shared lock, together
with any others that are given the same, and so keeps them from daemons that choose their cores. Containers on one host
respect each other's leases if they are given the same folder, on a local file system.

A lock on a file that has been removed excludes nobody who opens its name anew. So the folder is locked, too: programs
that clean /tmp of old files (systemd-tmpfiles) skip locked folders.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final, NamedTuple

from shisha_rt.machine.host.cores import usable_cores

FOLDER_VARIABLE: Final = "SHISHA_LEASES"
"""Environment variable: the folder of leases if none is given."""


class Taken(NamedTuple):
    """`why_shared`: why this process could not lease `cores`; None if it has. The caller closes `leases`."""

    cores: tuple[int, ...]
    why_shared: str | None
    leases: CoreLeases


class CoreLeases:
    """The leases of one process. `folder`: of the locks; None: the environment's, else this user's own.

    `fault`: why nothing can be leased (then other processes' leases are not seen either); empty if leases work.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._locks: dict[int, int] = {}
        self._kept: int | None = None
        self.fault = ""
        try:
            self.folder = _own_folder() if folder is None else folder
            self.folder.mkdir(parents=True, exist_ok=True)
            self._kept = keep_folder(self.folder)
        except OSError as error:
            self.folder = folder or Path(tempfile.gettempdir())
            self.fault = f"{error.filename or self.folder}: {error.strerror}" if error.strerror else str(error)

    @property
    def cores(self) -> frozenset[int]:
        """The cores that are leased to, or held by, this process."""
        return frozenset(self._locks)

    def take(self, core: int) -> bool:
        """Lease a core to this process alone; False if another process has it, or leases do not work."""
        return self._lock(core, fcntl.LOCK_EX)

    def hold(self, cores: Iterable[int]) -> frozenset[int]:
        """Hold cores, which other processes may hold too; return those that another process has leased alone."""
        return frozenset(core for core in cores if not self._lock(core, fcntl.LOCK_SH) and not self.fault)

    def hold_beside(self, core: int, own: Collection[int]) -> bool:
        """Hold a core unless others than the processes `own` (pids) do; False if they do, or if that is unknown."""
        if not self._lock(core, fcntl.LOCK_SH):
            return False
        holders = _holders(os.fstat(self._locks[core]).st_ino)
        is_own = os.getpid() in holders and holders <= {os.getpid(), *own}
        if not is_own:
            self.release((core,))
        return is_own

    def share(self) -> None:
        """Turn leases into holds, so that processes given these cores can hold them too, and outlive this one."""
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
        if self._kept is not None:
            os.close(self._kept)
            self._kept = None

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


def take_cores(count: int) -> Taken:
    """Lease `count` of the cores that this process may use; if too few are free, return all of them, to be shared."""
    leases, usable = CoreLeases(), usable_cores()
    for core in usable:
        if len(leases.cores) < count:
            leases.take(core)
    if len(leases.cores) == count:
        return Taken(tuple(sorted(leases.cores)), None, leases)
    leases.close()
    return Taken(usable, leases.fault or f"fewer than {count} are free", leases)


def keep_folder(folder: Path) -> int | None:
    """A descriptor that keeps a folder's files from programs that remove old ones; None where that cannot be."""
    try:
        kept = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    with contextlib.suppress(OSError):
        fcntl.flock(kept, fcntl.LOCK_SH | fcntl.LOCK_NB)
    return kept


def _open(path: Path) -> int:
    """Open a lock file, which may be another user's: to lock a file, read permission suffices.

    A new file has its permissions before it has its name: else another user who comes meanwhile could not open it.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        new, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
        try:
            os.fchmod(new, 0o644)
            with contextlib.suppress(FileExistsError):  # another process was quicker
                os.link(name, path)
        finally:
            os.close(new)
            Path(name).unlink()
        return os.open(path, flags)


def _holders(inode: int) -> set[int]:
    """Ids of the processes that have a lock on a file, as far as this one can see; none if it cannot."""
    with contextlib.suppress(OSError):
        locks = map(str.split, Path("/proc/locks").read_text().splitlines())  # 1: FLOCK ADVISORY READ PID DEVICE:INODE
        return {int(lock[4]) for lock in locks if lock[1] == "FLOCK" and lock[5].endswith(f":{inode}")}
    return set()


def _own_folder() -> Path:
    """The environment's folder, else this user's own. Raises OSError if the latter is another's, or open to others."""
    if of_environment := os.environ.get(FOLDER_VARIABLE):  # an empty variable counts as unset
        return Path(of_environment)
    path = Path(tempfile.gettempdir(), f"shisha-rt-cores-{os.getuid()}")  # no session's: Ray's may differ
    path.mkdir(mode=0o700, exist_ok=True)
    status = path.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(f"{path}: expected a folder of this user alone")
    return path
