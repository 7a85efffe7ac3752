"""The private folder that holds a daemon's sockets, and the sweeping of those that killed daemons left behind.

Each daemon holds a lock on a file beside its folder for as long as it lives; the kernel drops it however the daemon
ends. So a folder whose lock can be taken belongs to nobody, and the next start removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import uuid
from pathlib import Path


class RuntimeFolder:
    """`path` is open to this user only, and gone after `close`."""

    def __init__(self) -> None:
        base = _base()
        sweep(base)
        name = uuid.uuid4().hex[:12]
        self._lock_path = base / f"{name}.lock"
        self._lock = lock_file(self._lock_path)
        self.path = base / name
        self.path.mkdir(mode=0o700)

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock_path.unlink(missing_ok=True)
        os.close(self._lock)


def lock_file(path: Path) -> int:
    """A descriptor that holds an exclusive lock on `path`. Raises `BlockingIOError` if somebody else has it."""
    while True:
        fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        # A sweeper may have unlinked the file between our opening and our locking it: then it locks nothing.
        with contextlib.suppress(FileNotFoundError):
            if os.fstat(fd).st_ino == path.stat().st_ino:
                return fd
        os.close(fd)


def sweep(base: Path) -> None:
    """Remove the folders under `base` whose daemon is dead."""
    for lock_path in base.glob("*.lock"):
        try:
            fd = lock_file(lock_path)
        except BlockingIOError:
            continue
        shutil.rmtree(lock_path.with_suffix(""), ignore_errors=True)
        lock_path.unlink(missing_ok=True)
        os.close(fd)


def _base() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    base = Path(runtime) / "shisha-rt" if runtime else Path(tempfile.gettempdir()) / f"shisha-rt-{os.getuid()}"
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    owner = base.stat()
    if owner.st_uid != os.getuid() or owner.st_mode & 0o077:
        raise PermissionError(f"{base} is not this user's alone; expected a folder with mode 0700")
    return base
