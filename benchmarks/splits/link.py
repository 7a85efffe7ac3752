"""Time to pass bytes to another process: notified by a pipe, it copies them from shared memory."""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from random import Random
from typing import Final

import numpy as np

_MOST_BYTES: Final = 2**24
_ROUNDS: Final = 15


def link_times(count: int, seed: int, cores: tuple[int, int]) -> Iterator[tuple[int, float]]:
    """(bytes, seconds) for random sizes from 1 KiB to 16 MiB, one core writing and the other copying.

    Seconds from the end of writing to the other process's confirmation, the least of some rounds.
    """
    generator = Random(seed)
    sizes = [round(2 ** generator.uniform(10, 24)) for _ in range(count)]
    before = os.sched_getaffinity(0)
    file = os.memfd_create("link")
    try:
        os.ftruncate(file, _MOST_BYTES)
        os.sched_setaffinity(0, {cores[0]})
        shared = np.frombuffer(mmap.mmap(file, _MOST_BYTES), np.uint8)
        settings = json.dumps({"core": cores[1], "file": file, "size": _MOST_BYTES})
        with subprocess.Popen(
            [sys.executable, "-m", "benchmarks.splits.copying_process", settings],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[file],
            bufsize=0,
        ) as other:
            assert other.stdin is not None
            assert other.stdout is not None
            other.stdout.read(1)
            for size in sizes:
                times_s = []
                for round_ in range(_ROUNDS):
                    shared[:size] = round_
                    began_s = time.perf_counter()
                    other.stdin.write(b"%d\n" % size)
                    if not other.stdout.read(1):
                        raise RuntimeError("the copying process ended")
                    times_s.append(time.perf_counter() - began_s)
                yield size, min(times_s)
            other.stdin.close()
    finally:
        os.close(file)
        os.sched_setaffinity(0, before)
