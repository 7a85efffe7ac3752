"""An engine behind a queue in one process, without a daemon, as in a program that needs no server.

Settings: `copies` (`ort_copies`: a session of one thread on each core; `ort_threads`: one with a thread for each),
`path`, `inputs`, `cores`, `waiting`: the most frames that wait. Orders: as in `asking.obey`.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.rigs.asking import ANSWERED, REFUSED, Asking, obey
from stages.engines.plain import Frame, plain_session

COPIES: Final = "ort_copies"
THREADS: Final = "ort_threads"


class Queued:
    """Threads that run waiting frames, with a session each."""

    def __init__(self, sessions: Sequence[tuple[Any, set[int]]], frame: Frame, waiting: int) -> None:
        self._frame = frame
        self._waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._most = waiting
        self._came: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()
        for session, cores in sessions:
            threading.Thread(target=self._run, args=(session, cores), daemon=True).start()

    def send(self, number: int) -> None:
        if self._waiting.qsize() >= self._most:
            self._came.put((number, REFUSED))
        else:
            self._waiting.put(number)

    def wait(self, timeout_s: float) -> list[tuple[int, str]]:
        try:
            return [self._came.get(timeout=timeout_s) if timeout_s > 0 else self._came.get_nowait()]
        except queue.Empty:
            return []

    def _run(self, session: Any, cores: set[int]) -> None:
        os.sched_setaffinity(threading.get_native_id(), cores)
        while True:
            number = self._waiting.get()
            session.run(None, self._frame)
            self._came.put((number, ANSWERED))


def main(arguments: list[str]) -> int:
    its = json.loads(arguments[0])
    cores, path = its["cores"], Path(its["path"])
    os.sched_setaffinity(0, cores)
    generator = np.random.default_rng(0)
    frame: Frame = {one["name"]: generator.standard_normal(one["shape"]).astype(one["dtype"]) for one in its["inputs"]}
    if its["copies"] == COPIES:
        sessions = [(plain_session(path, 1), {core}) for core in cores]
    else:
        sessions = [(plain_session(path, len(cores)), set(cores))]
    obey(Asking(Queued(sessions, frame, its["waiting"])), 2 * len(cores))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
