"""A lock that the kernel drops however its holder ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path


def lock_file(path: Path) -> int:
    """A descriptor that holds an exclusive lock on `path`. Raises `BlockingIOError` if somebody else has it."""
    while True:
        fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        # Its last holder may have unlinked the file between our opening and our locking it: then it locks nothing.
        with contextlib.suppress(FileNotFoundError):
            if os.fstat(fd).st_ino == path.stat().st_ino:
                return fd
        os.close(fd)
