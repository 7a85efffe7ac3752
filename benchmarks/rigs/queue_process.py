"""An engine behind a queue in one process, without a daemon, as in a program that needs no server.

Settings: `copies` (`ort_copies`: a session of one thread on each core; `ort_threads`: one with a thread for each),
`path`, `inputs`, `cores`, `waiting`: the most frames that wait. Orders: as in `asking.obeying`.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.rigs.asking import ANSWERED, REFUSED, Asking, Came, obeying, random_inputs
from benchmarks.rigs.child_process import Child
from stages.engines.plain import Frame, plain_session

COPIES: Final = "ort_copies"
THREADS: Final = "ort_threads"


class Queued(Came):
    """Threads that run waiting frames, with a session each."""

    def __init__(self, sessions: Sequence[tuple[Any, set[int]]], frame: Frame, waiting: int) -> None:
        super().__init__()
        self._frame = frame
        self._waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._most = waiting
        for session, cores in sessions:
            threading.Thread(target=self._run, args=(session, cores), daemon=True).start()

    def send(self, number: int) -> None:
        if self._waiting.qsize() >= self._most:
            self._came.put((number, REFUSED))
        else:
            self._waiting.put(number)

    def _run(self, session: Any, cores: set[int]) -> None:
        os.sched_setaffinity(threading.get_native_id(), cores)
        while True:
            number = self._waiting.get()
            session.run(None, self._frame)
            self._came.put((number, ANSWERED))


def child(path: str, copies: str, inputs: Sequence[dict[str, Any]], cores: Sequence[int], waiting: int) -> Child:
    os.sched_setaffinity(0, cores)
    if copies == COPIES:
        sessions = [(plain_session(Path(path), 1), {core}) for core in cores]
    else:
        sessions = [(plain_session(Path(path), len(cores)), set(cores))]
    return obeying(Asking(Queued(sessions, random_inputs(inputs), waiting)), 2 * len(cores))
