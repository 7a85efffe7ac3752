"""The allow-list as a file: read at the start, and again on SIGHUP."""

from __future__ import annotations

import os
import stat
import tomllib
from pathlib import Path
from typing import Final

from shisha_rt.errors import BadInput
from shisha_rt.protocol.access import AccessList, access_list

_MOST_BYTES: Final = 1 << 20
_EXPECTED: Final = "expected an allow-list in TOML"


def read_access(path: Path) -> AccessList:
    """Raises BadInput, also for a file that others may write: they would say who comes in."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would make the loop wait
        with os.fdopen(fd, "rb") as file:
            _check_owner(path, os.fstat(fd))
            text = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}; {_EXPECTED}") from None
    if len(text) > _MOST_BYTES:
        raise BadInput(f"{path}: larger than {_MOST_BYTES} bytes; {_EXPECTED}")
    try:
        raw = tomllib.loads(text.decode())
    except UnicodeDecodeError:
        raise BadInput(f"{path}: it is not UTF-8 text; {_EXPECTED}") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadInput(f"{path}: {error}; {_EXPECTED}") from None
    return access_list(raw, str(path))


def _check_owner(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise BadInput(f"{path}: is no file; {_EXPECTED}")
    if status.st_uid not in (0, os.geteuid()):
        raise BadInput(f"{path}: is another user's; expected a file of the daemon's own user, or root's")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise BadInput(f"{path}: others may write it; expected a file that only its owner writes: chmod go-w {path}")
