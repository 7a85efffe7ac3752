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

    @property
    def members(self) -> Path:
        """The file to which pids of processes are written that are to be in the group, with their future children."""
        return self.folder / "cgroup.procs"

    @contextlib.contextmanager
    def entered(self, *others: int) -> Iterator[None]:
        """Context in which this process is in the group, and `others`, by id; what they start meanwhile stays there."""
        pids = os.getpid(), *others
        try:
            for pid in pids:
                self.members.write_text(str(pid))
            yield
        finally:
            for pid in pids:
                (self._parent / "cgroup.procs").write_text(str(pid))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pid in self.members.read_text().split():
            with contextlib.suppress(OSError):
                (self._parent / "cgroup.procs").write_text(pid)
        for _ in range(100):  # a process that has just ended is still in it
            with contextlib.suppress(OSError):
                self.folder.rmdir()
                return
            time.sleep(0.05)


class QuotaGroup(ControlGroup):
    """A group with a CPU quota of `cores` cores in each period."""

    period_us = 100_000

    def __init__(self, cores: float) -> None:
        super().__init__("cpu", ("cpu.cfs_quota_us", "cpu.max"))
        if self.limit.name == "cpu.cfs_quota_us":
            (self.folder / "cpu.cfs_period_us").write_text(str(self.period_us))
        self.allow(cores)

    def allow(self, cores: float) -> None:
        quota_us = round(cores * self.period_us)
        self.limit.write_text(f"{quota_us} {self.period_us}" if self.limit.name == "cpu.max" else str(quota_us))


class ShareGroup(QuotaGroup):
    """A simulated host of less than a core: unlike pacing, this holds for any process, other servers' workers, too.

    Its period is the shortest for a share of a quarter, as the kernel grants at least a millisecond.
    """

    period_us = 4_000


def lacking_shares() -> str | None:
    """What this host lacks for a `ShareGroup`; None: nothing."""
    try:
        with ShareGroup(1.0):
            return None
    except OSError as error:
        return str(error)


class MemoryGroup(ControlGroup):
    def __init__(self, limit_bytes: int) -> None:
        super().__init__("memory", ("memory.limit_in_bytes", "memory.max"))
        self.limit.write_text(str(limit_bytes))
