"""A flag in shared memory, which one process sets and others read: as cheap as a variable, and never waited for."""

from __future__ import annotations

import mmap
import os


class SharedFlag:
    """`fd`: the descriptor of another process's flag; None: a new one, which is not set."""

    def __init__(self, fd: int | None = None) -> None:
        if fd is None:
            fd = os.memfd_create("flag")
            os.ftruncate(fd, 1)
        self.fd = fd
        self._memory = mmap.mmap(fd, 1)

    @property
    def is_set(self) -> bool:
        return self._memory[0] != 0

    @is_set.setter
    def is_set(self, is_set: bool) -> None:
        self._memory[0] = is_set

    def close(self) -> None:
        self._memory.close()
        os.close(self.fd)
