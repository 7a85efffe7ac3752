"""Derived files: built once, published atomically, never changed, and removed when somebody asks for it.

A folder in the cache is built beside its final place, synced to disk, and only then renamed, under a lock that the
kernel releases when its holder dies. So a crash or a power cut costs the work, never the cache. The folder has a list
of its files with their sizes, digests and times. A folder that does not match its list is built anew, and so is one
without a list, as of earlier versions. The content of a large file is compared only if its modification time has
changed, so damage that changes no time, as by a faulty disk, goes unnoticed there.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Final

import msgspec

from shisha_rt.errors import Error, Failure

log = logging.getLogger(__name__)

LIST_FILE: Final = "files.json"
# Larger files are not read at each start: so many bytes take 20 ms at 400 MB/s, and weights may be a gigabyte.
_LARGE_BYTES: Final = 8 << 20
_UNFINISHED: Final = ".unfinished-"
_SAY_AFTER_S: Final = 10.0
_ASK_EVERY_S: Final = 0.02
_TIMES_NS: Final = 2**31 * 10**9  # what 32 bits hold of a file's time, as some file systems have it


class _Listed(msgspec.Struct, frozen=True):
    """A file as it was published. Earlier versions wrote no digest of a large file, and no modification time."""

    size_bytes: int
    sha256: str | None
    time_ns: int | None = None


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/shisha-rt`, or `~/.cache/shisha-rt`; it may not exist. Raises Failure if there is no home."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification: a relative path is invalid and must be ignored.
    if Path(base).is_absolute():
        return Path(base) / "shisha-rt"
    try:
        return Path.home() / ".cache" / "shisha-rt"
    except RuntimeError:  # the user id has no entry in the password file, as in some containers
        raise Failure(
            "no home folder is known: set XDG_CACHE_HOME to a folder that may be written", Error.CACHE_UNUSABLE
        ) from None


def publish(target: Path, build: Callable[[Path], None]) -> Path:
    """Return the folder `target`; if it is missing or has changed, `build` fills an empty folder that replaces it.

    `build` makes files, no folders. If several processes (or threads) want the same target, one builds and the others
    wait for it. Exceptions of `build` are passed on, and leave nothing behind; an OSError (a full disk, a folder
    without write permission) becomes the cause of a Failure that says in one line what to do.
    """
    if fault_in(target) is None:
        _note_use(target)
        return target
    try:
        with _locked(target):
            fault = fault_in(target)
            if fault is not None:
                if os.path.lexists(target):
                    log.warning("%s: %s; it is built anew", target, fault)
                _build_and_rename(target, build)
    except OSError as error:
        raise Failure(
            f"{target}: cannot be made ({error.strerror or error}), expected a folder with room in it that may be "
            "written; XDG_CACHE_HOME chooses another one",
            Error.CACHE_UNUSABLE,
        ) from error
    return target


def _note_use(target: Path) -> None:
    """Note that a published folder is used now, as far as this process may: the time of its list says when it was."""
    with contextlib.suppress(OSError):
        os.utime(target / LIST_FILE)


def published(root: Path) -> Iterator[tuple[Path, float]]:
    """Yield the published folders below `root`, and those of dead builders, each with its last use (epoch seconds)."""
    for folder, inner, files in os.walk(root):
        path = Path(folder)
        is_unfinished = _UNFINISHED in path.name
        if is_unfinished or LIST_FILE in files:
            inner.clear()
            with contextlib.suppress(FileNotFoundError):  # somebody else removes it
                yield path, (path if is_unfinished else path / LIST_FILE).stat().st_mtime


def hold(list_file: int) -> None:
    """Keep a published folder from being removed by `remove` while this descriptor of its list is open."""
    with contextlib.suppress(OSError):
        fcntl.flock(list_file, fcntl.LOCK_SH | fcntl.LOCK_NB)


def remove(folder: Path) -> bool:
    """Remove a folder of `published`; False if a daemon holds it. Raises OSError.

    What is unfinished may be removed only when it is so old that no process builds it any more.
    """
    if _UNFINISHED in folder.name:
        _remove(folder)
        return True
    with _locked(folder), contextlib.ExitStack() as closing:
        try:
            listed = closing.enter_context((folder / LIST_FILE).open("rb"))
            fcntl.flock(listed, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            return True  # somebody else was quicker
        except BlockingIOError:
            return False
        aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}{_UNFINISHED}", dir=folder.parent))
        folder.rename(aside)
        _remove(aside)
        _lock_of(folder).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.parent.rmdir()  # unless other versions of the same lie there
    return True


def fault_in(folder: Path) -> str | None:
    """How the folder differs from what was published there, as far as its list shows; None if it does not."""
    try:
        listed = msgspec.json.decode((folder / LIST_FILE).read_bytes(), type=dict[str, _Listed])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return "has no list of its files that can be read"
    for name, expected in listed.items():
        try:
            status = (folder / name).stat()
            if status.st_size != expected.size_bytes:
                return f"{name} has {status.st_size} bytes, expected {expected.size_bytes}"
            untouched = status.st_size > _LARGE_BYTES and status.st_mtime_ns == expected.time_ns
            if expected.sha256 is not None and not untouched and sha256_of(folder / name) != expected.sha256:
                return f"{name} is not what was written there"
        except OSError as error:
            return f"{name} cannot be read ({error.strerror})"
    return None


@contextlib.contextmanager
def _locked(target: Path) -> Iterator[None]:
    """Hold the lock for building `target`. On failure the lock file is removed, and so is a folder made for it."""
    file = _lock_of(target)
    while True:
        has_folder = target.parent.exists()
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            lock = file.open("wb")
        except FileNotFoundError:  # another process has failed, and has just removed the folder
            continue
        except FileExistsError as error:  # likewise, while mkdir looked whether it is a folder
            if _is_no_folder(error.filename):
                raise
            continue
        with lock:
            _wait_for(lock, target)
            # A lock file that is removed protects nothing: a third process may hold a new one by now.
            if not _is_at(file, lock.fileno()):
                continue
            try:
                yield
            except BaseException:
                if _is_at(file, lock.fileno()):  # else somebody has emptied the cache, and a new one is another's
                    file.unlink(missing_ok=True)
                if not has_folder:
                    with contextlib.suppress(OSError):  # it is not empty any more
                        target.parent.rmdir()
                raise
            return


def _lock_of(target: Path) -> Path:
    return target.parent / f".{target.name}.lock"


def _wait_for(lock: IO[bytes], target: Path) -> None:
    """Wait for the lock, and say so if that takes long: its holder may be stopped, and end never."""
    say_at_s = time.monotonic() + _SAY_AFTER_S
    while time.monotonic() < say_at_s:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(_ASK_EVERY_S)
    log.warning("%s: another process makes it, and is waited for", target)
    fcntl.flock(lock, fcntl.LOCK_EX)


def _is_no_folder(path: str) -> bool:
    """Whether something other than a folder, such as a link to nothing, is there."""
    try:
        return not stat.S_ISDIR(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False


def _is_at(file: Path, fd: int) -> bool:
    """Whether the path still names the open file."""
    try:
        return os.path.samestat(file.stat(), os.fstat(fd))
    except FileNotFoundError:
        return False


def _build_and_rename(target: Path, build: Callable[[Path], None]) -> None:
    """Build the folder and rename it to `target`. The caller holds the lock: an unfinished one is a dead process's."""
    prefix = f".{target.name}{_UNFINISHED}"
    for leftover in target.parent.glob(f"{prefix}*"):
        _remove(leftover)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))
    try:
        build(folder)
        _bring_to_disk(folder)
        if os.path.lexists(target):
            # Two renames, as none replaces a folder that is not empty. Whoever has its files open keeps them.
            target.rename(folder.with_name(f"{folder.name}-old"))
        folder.rename(target)
        _sync(target.parent)
    finally:
        for leftover in (folder, folder.with_name(f"{folder.name}-old")):
            _remove(leftover)


def _bring_to_disk(folder: Path) -> None:
    """Sync the folder's files to disk, then write their list and sync that."""
    listed: dict[str, _Listed] = {}
    for file in sorted(folder.iterdir()):
        digest = sha256_of(file)
        if file.stat().st_size > _LARGE_BYTES:
            # Equal files get equal times, so that of two folders that share one by a link neither finds it touched.
            time_ns = int(digest, 16) % _TIMES_NS
            os.utime(file, ns=(time_ns, time_ns))
        status = file.stat()
        listed[file.name] = _Listed(status.st_size, digest, status.st_mtime_ns)
        _sync(file)
    (folder / LIST_FILE).write_bytes(msgspec.json.encode(listed))
    for path in (folder / LIST_FILE, folder):
        _sync(path)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sha256_of(file: Path) -> str:
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
