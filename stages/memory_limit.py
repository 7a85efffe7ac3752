"""A limit on the memory that frames make a worker allocate: a frame that asks for too much harms only itself.

The kernel refuses allocations by which a process's data (private writable memory) would exceed a limit (RLIMIT_DATA).
So an allocation of the engine fails, which becomes that frame's error, and the worker goes on. Slots and lent memory
are shared and do not count, but mapped weights do: the limit is added to what is in use once stages have been built,
and is lifted while one is being built. An engine keeps allocated memory for the next frame: if it keeps more than this
worker's share of the limit, it is asked to release it.

If memory runs out nevertheless, the kernel should kill a worker before the daemon or other processes of this host.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Final

from shisha_rt.machine.host.memory import frames_memory_bytes

WORKERS_SCORE: Final = 500
"""The kernel adds it to a worker's own score of at most 1000, so that the largest worker is still killed first."""
MOST_SCORE: Final = 1000
"""With it a process is the first that the kernel kills."""
_DATA_FIELD: Final = 5
"""Index of the size of data in `statm`, which counts pages."""
_ALLOCATION: Final = "alloc"
"""Part of engines' messages on a failed allocation: "Failed to allocate", "bad allocation", "std::bad_alloc"."""


class MemoryLimit:
    """`said`: the configured limit, if any (see `frames_memory_bytes`). `workers`: how many there are.

    `grown`: the engine is to release memory that it keeps.
    """

    def __init__(self, said: int | None, workers: int) -> None:
        self.frames_bytes = frames_memory_bytes(said)
        self.is_lifted = True
        self.grown = False
        self._share_bytes = self.frames_bytes // workers
        self._most, self._hard = resource.getrlimit(resource.RLIMIT_DATA)
        self._statm = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._built_bytes = self._kept_bytes = self._data_bytes()

    def lift(self) -> None:
        """Remove the limit, as while a stage is built."""
        self.is_lifted = True
        resource.setrlimit(resource.RLIMIT_DATA, (self._most, self._hard))

    def settle(self) -> None:
        """Set the limit from the memory in use now: stages have been built, and no frame is being computed."""
        self._built_bytes = self._kept_bytes = self._data_bytes()
        self.hold()

    def hold(self) -> None:
        self.is_lifted = False
        most = self._built_bytes + self.frames_bytes
        within = most if self._most == resource.RLIM_INFINITY else min(most, self._most)
        resource.setrlimit(resource.RLIMIT_DATA, (within, self._hard))

    def look(self) -> bool:
        """Called periodically; return whether the engine is to release memory that it keeps."""
        if not self.is_lifted and self._data_bytes() > self._kept_bytes + self._share_bytes:
            self.grown = True
        return self.grown

    def gave_back(self) -> None:
        """Note that the engine has released memory; it is not asked again for what it still keeps."""
        self.grown = False
        self._kept_bytes = max(self._built_bytes, self._data_bytes())

    def explained(self, reason: str) -> str:
        mib = self.frames_bytes / 2**20
        return (
            f"the frame asks for more memory than frames may take, {mib:.0f} MiB, which serve --max-worker-bytes sets: "
            f"{reason}"
        )

    def _data_bytes(self) -> int:
        return int(os.pread(self._statm, 200, 0).split()[_DATA_FIELD]) * resource.getpagesize()


def private_bytes() -> int:
    """Memory of this process that is not shared, and not mapped from a file, as weights may be."""
    _, resident, shared, *_ = map(int, Path("/proc/self/statm").read_text().split())
    return (resident - shared) * resource.getpagesize()


def is_for_memory(error: Exception) -> bool:
    """Whether the error is a failed allocation, of an engine or of code that prepares its tensors."""
    return isinstance(error, MemoryError) or _ALLOCATION in str(error)
