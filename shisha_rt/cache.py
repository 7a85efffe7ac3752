"""Derived files: built once, published whole, never changed.

A folder in the cache either exists complete or not at all: it is built beside its final place and renamed into it,
under a lock that the kernel releases when its holder dies. So a crash costs the work, never the cache.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/shisha-rt`, or `~/.cache/shisha-rt`. It may not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification: a relative path is invalid and must be ignored.
    root = Path(base) if Path(base).is_absolute() else Path.home() / ".cache"
    return root / "shisha-rt"


def publish(target: Path, build: Callable[[Path], None]) -> Path:
    """Return the folder `target`; if it does not exist, `build` fills an empty folder that then becomes it.

    Of several processes (or threads) that want the same target one builds and the others wait for it. What `build`
    raises is passed on, and leaves nothing behind.
    """
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    # The lock file stays: removing it would let a third process lock a new file while a second still waits on the old.
    with (target.parent / f".{target.name}.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.is_dir():
            _build_and_rename(target, build)
    return target


def _build_and_rename(target: Path, build: Callable[[Path], None]) -> None:
    """Caller holds the lock, so any unfinished folder here was left by a process that died."""
    prefix = f".{target.name}.unfinished-"
    for leftover in target.parent.glob(f"{prefix}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))
    try:
        build(folder)
        folder.rename(target)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
