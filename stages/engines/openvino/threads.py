"""OpenVINO's threads beyond the one that asks: TBB's, one pool for each process, which all sessions share.

What was found by trying (OpenVINO 2026.4):
- When the plugin is loaded TBB counts the cores that the process's first thread may use. There are never more threads
  than that, whatever a session asks for.
- They are started when first needed, on all of those cores and with the niceness of whoever needed them; and they stay,
  asleep when there is nothing to do, until the process ends.
- Whenever one takes up work it is bound to the cores of its memory node, by way of hwloc; unless hwloc is told that it
  is not this system that it sees.
So they are moved to where they are wanted before a session of another team runs. A worker runs one stage at a time.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final


def stay_where_put() -> None:
    """Have hwloc move no thread; to be called before OpenVINO is loaded."""
    os.environ.setdefault("HWLOC_THISSYSTEM", "0")


class _Threads:
    """Those of this process. `starting` is for one thread at a time."""

    def __init__(self) -> None:
        self._moving = threading.Lock()  # between what runs frames and what builds
        self._ids: frozenset[int] = frozenset()
        self._cores: tuple[int, ...] = ()

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """What the engine starts meanwhile is its own."""
        before = _thread_ids()
        yield
        with self._moving:
            self._ids |= _thread_ids() - before
            self._cores = ()

    def move_to(self, cores: tuple[int, ...]) -> None:
        """Nothing is to be done where the session before ran there too."""
        if cores == self._cores:
            return
        with self._moving:
            self._cores = cores
            for thread in self._ids:
                with contextlib.suppress(ProcessLookupError):  # one that served to build something only
                    os.sched_setaffinity(thread, cores)


THREADS: Final = _Threads()


def _thread_ids() -> frozenset[int]:
    return frozenset(int(path.name) for path in Path("/proc/self/task").iterdir())
