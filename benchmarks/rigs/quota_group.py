"""A real control group with a CPU quota, of version 1 or 2, where this process may make one (as root, as a rule)."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_MOUNTED: Final = Path("/sys/fs/cgroup")
_PERIOD_US: Final = 100_000
_numbers = count()


class QuotaGroup:
    """A group of `cores` cores. Raises OSError where none can be made; leaving the context removes it."""

    def __init__(self, cores: float) -> None:
        name = f"shisha-rt-{os.getpid()}-{next(_numbers)}"
        for parent, file in ((_MOUNTED / "cpu", "cpu.cfs_quota_us"), (_MOUNTED, "cpu.max")):
            self.folder = parent / name
            with contextlib.suppress(OSError):
                self.folder.mkdir()
                if (self.folder / file).exists():  # else it is no folder of the kernel's
                    self._parent, self._file = parent, file
                    self.allow(cores)
                    return
            with contextlib.suppress(OSError):
                self.folder.rmdir()
        raise OSError("control groups of CPU time cannot be made here: that takes root and a writable /sys/fs/cgroup")

    def allow(self, cores: float) -> None:
        quota_us = round(cores * _PERIOD_US)
        text = f"{quota_us} {_PERIOD_US}" if self._file == "cpu.max" else str(quota_us)
        (self.folder / self._file).write_text(text)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Have this process in the group meanwhile; what it starts stays there."""
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))
        try:
            yield
        finally:
            (self._parent / "cgroup.procs").write_text(str(os.getpid()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pid in (self.folder / "cgroup.procs").read_text().split():
            with contextlib.suppress(OSError):
                (self._parent / "cgroup.procs").write_text(pid)
        for _ in range(100):  # a process that has just ended is still in it
            with contextlib.suppress(OSError):
                self.folder.rmdir()
                return
            time.sleep(0.05)
