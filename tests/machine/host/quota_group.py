"""A real control group with a CPU quota, of either version, where this process may make one."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pytest

MOUNTED: Final = Path("/sys/fs/cgroup")
PERIOD_US: Final = 100_000
_numbers = count()


class QuotaGroup:
    """A group of `cores` cores. Skips the test where none can be made; leaving the context removes it."""

    def __init__(self, cores: float) -> None:
        name = f"shisha-rt-test-{os.getpid()}-{next(_numbers)}"
        for parent, file in ((MOUNTED / "cpu", "cpu.cfs_quota_us"), (MOUNTED, "cpu.max")):
            self.folder = parent / name
            with suppress(OSError):
                self.folder.mkdir()
                if (self.folder / file).exists():  # else it is no folder of the kernel's
                    self._parent, self._is_v2 = parent, file == "cpu.max"
                    self.allow(cores)
                    return
            with suppress(OSError):
                self.folder.rmdir()
        pytest.skip("control groups of CPU time cannot be made here: needs root and a writable /sys/fs/cgroup")

    def allow(self, cores: float) -> None:
        quota_us = round(cores * PERIOD_US)
        if self._is_v2:
            (self.folder / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
        else:
            (self.folder / "cpu.cfs_quota_us").write_text(str(quota_us))

    def entered_by(self, command: Sequence[str]) -> list[str]:
        """The command line of a program that is in the group from its start."""
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self.folder / "cgroup.procs"), *command]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pid in (self.folder / "cgroup.procs").read_text().split():
            with suppress(OSError):
                (self._parent / "cgroup.procs").write_text(pid)
        for _ in range(100):  # a process that has just ended is still in it
            with suppress(OSError):
                self.folder.rmdir()
                return
            time.sleep(0.05)
