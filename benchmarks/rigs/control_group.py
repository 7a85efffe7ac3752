"""Real control groups with a limit, of version 1 or 2, if this process may make them (usually as root)."""

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


class ControlGroup:
    """A group of one `controller`; `files`: of its limit in version 1 and in version 2.

    Raises OSError if it cannot be made; leaving the context removes it.
    """

    def __init__(self, controller: str, files: tuple[str, str]) -> None:
        name = f"shisha-rt-{os.getpid()}-{next(_numbers)}"
        for parent, file in zip((_MOUNTED / controller, _MOUNTED), files, strict=True):
            self.folder = parent / name
            with contextlib.suppress(OSError):
                self.folder.mkdir()
                if (self.folder / file).exists():  # else it is not a control group
                    self._parent, self.limit = parent, self.folder / file
                    return
            with contextlib.suppress(OSError):
                self.folder.rmdir()
        raise OSError(f"control groups ({controller}) cannot be made here: that takes root and a writable {_MOUNTED}")

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Context in which this process is in the group; processes started meanwhile stay there."""
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


class QuotaGroup(ControlGroup):
    """A group with a CPU quota of `cores` cores."""

    def __init__(self, cores: float) -> None:
        super().__init__("cpu", ("cpu.cfs_quota_us", "cpu.max"))
        self.allow(cores)

    def allow(self, cores: float) -> None:
        quota_us = round(cores * _PERIOD_US)
        self.limit.write_text(f"{quota_us} {_PERIOD_US}" if self.limit.name == "cpu.max" else str(quota_us))


class MemoryGroup(ControlGroup):
    """A group with a limit of memory."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__("memory", ("memory.limit_in_bytes", "memory.max"))
        self.limit.write_text(str(limit_bytes))
