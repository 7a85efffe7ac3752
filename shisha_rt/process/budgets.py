"""The bandwidth of emulated memories: one record for each memory that has a limit, shared by the workers on it.

A record is a memfd of its own: it has no name, so nothing is left to clean up, and a lock on it is a lock on one
memory. The daemon creates it and reads how much has been used; workers reserve (see `stages.emulate.budget`).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

_RECORD: Final = struct.Struct("=qq")


class Reserved(NamedTuple):
    """`free_at_ns`: when, on CLOCK_MONOTONIC, all reserved bytes have been moved. `reserved_bytes`: total so far."""

    free_at_ns: int
    reserved_bytes: int


def read_record(fd: int) -> Reserved:
    return Reserved(*_RECORD.unpack(os.pread(fd, _RECORD.size, 0)))


def write_record(fd: int, record: Reserved) -> None:
    """Write a record in one system call, which SIGKILL does not interrupt: readers see the old one or the new."""
    os.pwrite(fd, _RECORD.pack(*record), 0)


class Budgets:
    """The daemon's descriptors, by memory name. The daemon never locks them: its children would share the lock."""

    def __init__(self, memories: Iterable[str]) -> None:
        self._fds: dict[str, int] = {}
        for name in memories:
            self._fds[name] = os.memfd_create("shisha-rt-memory")
            write_record(self._fds[name], Reserved(0, 0))

    def fd(self, memory: str) -> int | None:
        """Descriptor for a worker to inherit; None for a memory without a limit."""
        return self._fds.get(memory)

    def reserved_bytes(self, memory: str) -> int:
        return read_record(self._fds[memory]).reserved_bytes

    def close(self) -> None:
        for fd in self._fds.values():
            os.close(fd)
        self._fds.clear()
