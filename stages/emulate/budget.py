"""A memory's bandwidth, shared by the places on it: GCRA on one record (see `process.budgets`).

    free_at = max(start, free_at) + bytes / bandwidth

Each run reserves its bytes when it starts, and ends no earlier than its reservation. `flock` keeps two workers from
losing each other's update; the kernel frees it when its holder is killed. It is never held during a wait.
"""

from __future__ import annotations

import fcntl
import os

from shisha_rt.process import budgets
from shisha_rt.process.budgets import Reserved


class Budget:
    """One worker's access to its memory's record."""

    def __init__(self, inherited_fd: int, bandwidth_bytes_per_s: float) -> None:
        # flock belongs to the open file description, which processes share if they inherit it: open the file anew.
        self._fd = os.open(f"/proc/self/fd/{inherited_fd}", os.O_RDWR | os.O_CLOEXEC)
        self._ns_per_byte = 1e9 / bandwidth_bytes_per_s

    def reserve(self, size_bytes: int, start_s: float) -> float:
        """Reserve for a run that starts at `start_s`; return when its bytes will be moved. Both by CLOCK_MONOTONIC."""
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            free_at_ns, reserved_bytes = budgets.read_record(self._fd)
            free_at_ns = max(round(start_s * 1e9), free_at_ns) + round(size_bytes * self._ns_per_byte)
            budgets.write_record(self._fd, Reserved(free_at_ns, reserved_bytes + size_bytes))
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)
        return free_at_ns / 1e9

    def close(self) -> None:
        os.close(self._fd)
