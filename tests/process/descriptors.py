"""What this process has open, to be compared before and after."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from shisha_rt.process.child import _servers


def open_descriptors() -> list[str]:
    """What each of them is; the line to the fork server, which stays from the first child on, is left out."""
    line = _servers.line
    found = []
    for path in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one by which they are listed
            if line is None or path.name != str(line.socket.fileno()):
                found.append(str(path.readlink()))
    return sorted(found)
