"""OpenVINO's threads beyond the caller's: TBB's, one pool for each process, which all sessions share.

Found by experiment (OpenVINO 2026.4):
- When the plugin is loaded, TBB counts the cores that the process's first thread may use. There are never more threads
  than that, whatever a session asks for.
- Threads are started when first needed, on all of those cores and with the niceness of the thread that needs them. They
  stay until the process ends, and sleep while there is no work.
- Each time a thread takes up work, hwloc binds it to the cores of its memory node, unless hwloc is told that the
  topology it sees is not this system's.
So the threads are moved to the right cores before a session of another team runs. A worker runs one stage at a time.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final


def stay_where_put() -> None:
    """Keep hwloc from moving threads; to be called before OpenVINO is loaded."""
    os.environ.setdefault("HWLOC_THISSYSTEM", "0")


class _Threads:
    """The pool's threads in this process. `starting` is for one thread at a time."""

    def __init__(self) -> None:
        self._moving = threading.Lock()  # shared by the thread that runs frames and builders
        self._ids: frozenset[int] = frozenset()
        self._cores: tuple[int, ...] = ()

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """Record threads that start in this context as the engine's, also if it is left by an error."""
        before = _thread_ids()
        try:
            yield
        finally:
            with self._moving:
                self._ids |= _thread_ids() - before
                self._cores = ()

    def move_to(self, cores: tuple[int, ...]) -> None:
        """Move the threads to `cores`, unless the session before ran there, too."""
        if cores == self._cores:
            return
        with self._moving:
            self._cores = cores
            # Some existed only during a build, and their ids may be those of other processes by now.
            self._ids &= _thread_ids()
            for thread in self._ids:
                with contextlib.suppress(OSError):  # it has ended, or may use none of the cores any more
                    os.sched_setaffinity(thread, cores)


THREADS: Final = _Threads()


def _thread_ids() -> frozenset[int]:
    return frozenset(int(path.name) for path in Path("/proc/self/task").iterdir())
