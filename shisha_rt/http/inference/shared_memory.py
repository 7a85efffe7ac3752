"""Triton's system shared memory: files in /dev/shm that callers have made, and name as inputs and outputs.

File names come from untrusted callers. So files are opened only in that folder, without following links; a file must be
a regular one that belongs to the caller, as identified by the kernel or a token; and it is read and written, never
mapped: if it shrinks there is an error, and this process is not killed. Each user sees only its own regions.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from shisha_rt.errors import Error
from shisha_rt.http.app_state import Caller
from shisha_rt.http.inference.request import FilePiece
from shisha_rt.protocol.exceptions import ShishaError, error_for, malformed
from shisha_rt.protocol.limits import MAX_NAME_LENGTH

FOLDER: Final = "/dev/shm"
MOST_REGIONS: Final = 128
"""Of one user, and twice as many of all users together: each region keeps a descriptor open."""


@dataclass(frozen=True, slots=True)
class SharedFile:
    """A registered region: `size_bytes` of the open file from `offset` on."""

    name: str
    key: str
    fd: int
    offset: int
    size_bytes: int

    @property
    def about(self) -> dict[str, object]:
        return {"name": self.name, "key": self.key, "offset": self.offset, "byte_size": self.size_bytes}


class SharedFiles:
    """All regions of all users. `folder`: where the files are; None: shared memory is off, and there are none."""

    def __init__(self, folder: str | None = FOLDER) -> None:
        self._folder = folder
        self._by_caller: dict[int, dict[str, SharedFile]] = {}

    def register(self, caller: Caller, name: str, key: str, offset: int, size_bytes: int) -> None:
        """Open the caller's file `key`, and register a piece of it as `name`. Raises `ShishaError`."""
        self._check_on()
        uid = _known(caller)
        if len(name) > MAX_NAME_LENGTH:
            raise malformed(f"the region's name has {len(name)} characters; expected at most {MAX_NAME_LENGTH}")
        regions = self._by_caller.setdefault(uid, {})
        if name in regions:
            raise _refused(Error.REGION_TAKEN, name, "is registered already")
        if len(regions) >= MOST_REGIONS or sum(map(len, self._by_caller.values())) >= 2 * MOST_REGIONS:
            most = f"{len(regions)} regions are registered; expected at most {MOST_REGIONS} of a user"
            raise error_for(Error.REGION_REFUSED, most)
        fd = self._open(key, uid)
        try:
            held_bytes = os.fstat(fd).st_size
            if size_bytes < 1 or offset + size_bytes > held_bytes:
                what = f"{size_bytes} bytes from {offset} on; it has {held_bytes} in all"
                raise error_for(Error.REGION_TOO_SMALL, f"shared memory {key!r}: {what}")
        except BaseException:
            os.close(fd)
            raise
        regions[name] = SharedFile(name, key, fd, offset, size_bytes)

    def unregister(self, caller: Caller, name: str | None = None) -> None:
        if self._folder is None:
            return
        regions = self._by_caller.get(_known(caller), {})
        for region in [name] if name is not None else list(regions):
            if region in regions:
                os.close(regions.pop(region).fd)

    def of(self, caller: Caller) -> Mapping[str, SharedFile]:
        return {} if self._folder is None else self._by_caller.get(_known(caller), {})

    def named(self, caller: Caller, name: str) -> SharedFile:
        """The caller's region of that name. Raises `NotFound`."""
        file = self.of(caller).get(name)
        if file is None:
            raise _refused(Error.REGION_NOT_REGISTERED, name, "is not registered")
        return file

    def read(self, caller: Caller, region: FilePiece, into: memoryview) -> None:
        file = self.find(caller, region)
        begin = file.offset + region.offset
        if os.preadv(file.fd, [into], begin) != region.size_bytes:
            raise _shorter(region)

    def write(self, caller: Caller, region: FilePiece, data: memoryview) -> None:
        """Write `data` into a caller's file; a file that has become shorter is left alone, as it must not grow."""
        file = self.find(caller, region)
        if len(data) > region.size_bytes:
            what = f"has {region.size_bytes} bytes; the output has {len(data)}"
            raise _refused(Error.REGION_TOO_SMALL, region.name, what)
        begin = file.offset + region.offset
        if begin + len(data) > os.fstat(file.fd).st_size:
            raise _shorter(region)
        try:
            written_bytes = os.pwritev(file.fd, [data], begin)
        except OSError:  # the file has holes, and no memory is left to fill them
            written_bytes = 0
        if written_bytes != len(data):
            raise _refused(Error.REGION_REFUSED, region.name, "has no memory left for its file")

    def find(self, caller: Caller, region: FilePiece) -> SharedFile:
        """The caller's file of which `region` is a piece. Raises `ShishaError` if there is none, or it is smaller."""
        self._check_on()
        file = self.named(caller, region.name)
        if region.offset + region.size_bytes > file.size_bytes:
            what = f"has {file.size_bytes} bytes; expected {region.size_bytes} from {region.offset} on"
            raise _refused(Error.REGION_TOO_SMALL, region.name, what)
        return file

    def _check_on(self) -> None:
        if self._folder is None:
            raise error_for(Error.SHARING_OFF, "shared memory over HTTP is off; expected: serve --http-shared-memory")

    def _open(self, key: str, uid: int) -> int:
        assert self._folder is not None
        name = key.removeprefix("/")
        if not name or "/" in name or "\0" in name or name in (".", ".."):
            raise malformed(f"shared memory key {key!r}: expected the plain name of a file in {self._folder}")
        folder = os.open(self._folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fd = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        except (OSError, ValueError):  # one error for all causes, to reveal nothing of others' files
            raise _not_yours(key) from None
        finally:
            os.close(folder)
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != uid or status.st_nlink != 1:
            os.close(fd)
            raise _not_yours(key)
        return fd


def _shorter(region: FilePiece) -> ShishaError:
    return _refused(Error.REGION_TOO_SMALL, region.name, "has a file that has become shorter")


def _refused(kind: Error, region: str, why: str) -> ShishaError:
    return error_for(kind, f"shared memory region {region!r} {why}")


def _not_yours(key: str) -> ShishaError:
    return error_for(Error.NO_SUCH_FILE, f"shared memory {key!r}: you have no such file, or it cannot be opened")


def _known(caller: Caller) -> int:
    if caller.uid is None:
        raise error_for(
            Error.USER_UNKNOWN,
            "shared memory is for callers whose user is known; expected a UNIX socket, or a token with a unix_user",
        )
    return caller.uid
