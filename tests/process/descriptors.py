"""What this process has open, to be compared before and after; and how many more it may have."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from shisha_rt.process.child import _servers


def open_descriptors() -> list[str]:
    """What each of them is; the line to the fork server, which stays from the first child on, is left out."""
    line = _servers.line
    descriptors = []
    for path in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one by which they are listed
            if line is None or path.name != str(line.socket.fileno()):
                descriptors.append(str(path.readlink()))
    return sorted(descriptors)


@contextmanager
def descriptors_to_be_had(count: int) -> Iterator[None]:
    """So many more than are open; there are no gaps between those."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    fillers = [os.dup(0)]
    while fillers[-1] <= highest:
        fillers.append(os.dup(0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (fillers[-1] + 1 + count, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for fd in fillers:
            os.close(fd)


@contextmanager
def low_descriptors_in_use() -> Iterator[None]:
    """Those below 1,024, as in a daemon with some hundred clients."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(2048, limits[1]), limits[1]))
    fillers = [os.dup(0)]
    try:
        while fillers[-1] < 1024:
            fillers.append(os.dup(0))
        yield
    finally:
        for fd in fillers:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
