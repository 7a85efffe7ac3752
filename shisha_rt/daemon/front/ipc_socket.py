"""A UNIX socket at a path of the daemon's own. The daemon binds it, as ZeroMQ would first remove any file there.

A lock file beside it (`PATH.lock`) distinguishes a daemon that serves from one that died and left its socket behind.
Only such leftovers, and files that we have made, are ever removed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import stat
import struct
from pathlib import Path
from typing import Final

from shisha_rt.endpoint import MAX_PATH_BYTES, fits_socket
from shisha_rt.errors import BadInput, Error

BACKLOG: Final = 1024
"""How many clients may wait to be accepted. ZeroMQ has 100: more at once are refused, or try again a second later."""
_CREDENTIALS: Final = struct.Struct("iII")  # struct ucred: process, user, group
_EXPECTED: Final = "expected a path at which there is nothing yet"


def check_ipc_path(endpoint: str) -> Path:
    """The path of `ipc://PATH` or `unix:PATH`. Raises BadInput if no socket fits, or another file is there."""
    path = Path(endpoint.removeprefix("ipc://").removeprefix("unix:"))
    if any("\ud800" <= character <= "\udfff" for character in endpoint):
        raise BadInput(f"endpoint {endpoint!r}: expected a path in UTF-8", Error.BAD_ENDPOINT)
    if not fits_socket(path):
        size_bytes, limit = len(os.fsencode(path)), f"expected at most {MAX_PATH_BYTES}, as UNIX sockets have it"
        raise BadInput(f"endpoint {endpoint}: a path of {size_bytes} bytes; {limit}", Error.BAD_ENDPOINT)
    if "\0" in endpoint:
        raise BadInput(f"endpoint {endpoint!r}: no path has a zero byte in it; {_EXPECTED}", Error.BAD_ENDPOINT)
    status = _status(path)
    if status is not None and not stat.S_ISSOCK(status.st_mode):
        raise BadInput(f"endpoint {endpoint}: there is {_kind(status.st_mode)}; {_EXPECTED}", Error.BAD_ENDPOINT)
    return path


class IpcSocket:
    """A listening socket of type `kind` at `endpoint`, and its lock file. Raises BadInput, leaving no file behind."""

    def __init__(self, endpoint: str, kind: socket.SocketKind = socket.SOCK_STREAM) -> None:
        self._path = check_ipc_path(endpoint)
        self._lock_path = self._path.with_name(f"{self._path.name}.lock")
        self._lock: int | None = _locked(self._lock_path, endpoint)
        self._socket: socket.socket | None = None
        self._inode: int | None = None
        try:
            self._socket = socket.socket(socket.AF_UNIX, kind)  # fails if no descriptor is left
            _remove_leftover(self._path)
            self._socket.bind(str(self._path))
            self._inode = self._path.lstat().st_ino
            self._socket.listen(BACKLOG)
            self._socket.setblocking(False)
        except OSError as error:
            self.close()
            reason = "another program serves there" if error.errno == errno.EADDRINUSE else error.strerror
            raise BadInput(f"endpoint {endpoint}: {reason}; expected a path of its own", Error.ADDRESS_TAKEN) from None

    def hand_over(self) -> int:
        """Return the listening descriptor, which the caller has to close."""
        assert self._socket is not None
        return self._socket.detach()

    def close(self) -> None:
        """Remove the socket and its lock, unless something else has been put there since."""
        if self._socket is not None:
            self._socket.close()
        if self._lock is None:
            return
        for path, inode in ((self._path, self._inode), (self._lock_path, os.fstat(self._lock).st_ino)):
            with contextlib.suppress(OSError):
                if path.lstat().st_ino == inode:
                    path.unlink()
        os.close(self._lock)
        self._lock = None


def peer_of(end: socket.socket) -> tuple[int, int | None]:
    """The process and the user at the other end, as the kernel reports them; 0 and None if it does not."""
    try:
        credentials = end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        process, user, _ = _CREDENTIALS.unpack(credentials)
    except (OSError, struct.error):
        return 0, None
    return process, user


def _locked(path: Path, endpoint: str) -> int:
    try:
        status = _status(path)
        if status is not None and (not stat.S_ISREG(status.st_mode) or status.st_size):
            raise BadInput(
                f"endpoint {endpoint}: {path.name} beside it is {_kind(status.st_mode)}, not its lock; {_EXPECTED}",
                Error.BAD_ENDPOINT,
            )
        return lock_file(path)
    except BlockingIOError:
        raise BadInput(
            f"endpoint {endpoint}: another daemon serves there; expected a path of its own", Error.ADDRESS_TAKEN
        ) from None
    except OSError as error:
        raise BadInput(
            f"endpoint {endpoint}: {error.strerror}; expected a path in a folder to write to", Error.ADDRESS_TAKEN
        ) from None


def _remove_leftover(path: Path) -> None:
    """Remove a socket at which nobody listens: a dead process left it. Raises OSError if somebody listens."""
    if _status(path) is None:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.setblocking(False)
        if asking.connect_ex(str(path)) != errno.ECONNREFUSED:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    path.unlink()


def _status(path: Path) -> os.stat_result | None:
    """Status of the file at `path`, not following links; None: there is no file, or the path cannot have one."""
    try:
        return path.lstat()
    except OSError:
        return None


def _kind(mode: int) -> str:
    if stat.S_ISLNK(mode):
        return "a link"
    if stat.S_ISDIR(mode):
        return "a folder"
    return "a file"


def lock_file(path: Path) -> int:
    """A descriptor that holds an exclusive lock on `path`. Raises `BlockingIOError` if somebody else has it."""
    while True:
        fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        # The last holder may have unlinked the file between `open` and `flock`: a lock on that file excludes nobody.
        with contextlib.suppress(FileNotFoundError):
            if os.fstat(fd).st_ino == path.stat().st_ino:
                return fd
        os.close(fd)
