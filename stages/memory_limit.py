"""A limit on what frames make a worker take: one that makes its engine allocate without end harms itself alone.

The kernel refuses a process what would have its data, private memory that it may write, grow over a limit
(RLIMIT_DATA). So an allocation of the engine fails, which is its error for that frame, and the worker goes on. Slots
and what clients lend are shared, and do not count. Weights that are mapped do: the limit is so much above what there
is once stages have been built, and none while one is being built. An engine keeps what it has allocated for the next
frame: where that is more than this worker's share of what all may take, it is asked to give it back.

Where memory runs out all the same, the kernel is to end a worker before the daemon, or whatever else this host does.
"""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path
from typing import Final

from shisha_rt.machine.host.memory import frames_memory_bytes

_OOM_SCORE: Final = Path("/proc/self/oom_score_adj")
_WORKERS_SCORE: Final = 500
"""Added to a worker's own, which is at most 1000: of several workers the largest still comes first."""
_DATA_FIELD: Final = 5
"""Of `statm`, in pages."""
_ALLOCATION: Final = "alloc"
"""In what engines say where an allocation fails: "Failed to allocate", "bad allocation", "std::bad_alloc"."""


class MemoryLimit:
    """`said`: of the limit; see `frames_memory_bytes`. `workers`: how many there are.

    `grown`: the engine is to give back what it keeps.
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
        """A stage is about to be built."""
        self.is_lifted = True
        resource.setrlimit(resource.RLIMIT_DATA, (self._most, self._hard))

    def settle(self) -> None:
        """Stages have been built, and no frame is being computed: what there is now is theirs."""
        self._built_bytes = self._kept_bytes = self._data_bytes()
        self.hold()

    def hold(self) -> None:
        self.is_lifted = False
        most = self._built_bytes + self.frames_bytes
        within = most if self._most == resource.RLIM_INFINITY else min(most, self._most)
        resource.setrlimit(resource.RLIMIT_DATA, (within, self._hard))

    def look(self) -> bool:
        """Every so often: whether the engine is to give back what it keeps."""
        if not self.is_lifted and self._data_bytes() > self._kept_bytes + self._share_bytes:
            self.grown = True
        return self.grown

    def gave_back(self) -> None:
        """What is left now is not asked for again."""
        self.grown = False
        self._kept_bytes = max(self._built_bytes, self._data_bytes())

    def explained(self, reason: str) -> str:
        """What is to be said of an allocation that has failed."""
        mib = self.frames_bytes / 2**20
        return (
            f"the frame asks for more memory than frames may take, {mib:.0f} MiB, which serve --max-worker-bytes sets: "
            f"{reason}"
        )

    def _data_bytes(self) -> int:
        return int(os.pread(self._statm, 200, 0).split()[_DATA_FIELD]) * resource.getpagesize()


def is_for_memory(error: Exception) -> bool:
    """Whether an engine, or what brings tensors to it, could not have the memory that it asked for."""
    return isinstance(error, MemoryError) or _ALLOCATION in str(error)


def die_before_others() -> None:
    """Have the kernel end this process first where memory runs out."""
    with contextlib.suppress(OSError, ValueError):  # some sandboxes have no such file
        if int(_OOM_SCORE.read_text()) < _WORKERS_SCORE:
            _OOM_SCORE.write_text(str(_WORKERS_SCORE))
