"""`python -m stages.neighbour JOB_JSON`: keep a core busy with the model while other cores are timed.

A place never has the host to itself when it serves: other places run their stages beside it and take their share of
caches, memory and, between threads of one core, of the core itself. Layers timed on an idle host come out faster than
they will ever run. What a neighbour runs is the whole model, again and again: no plan is known yet.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from shisha_rt.fabric import model_index
from shisha_rt.fabric.arena import Arena
from shisha_rt.fabric.calibration import NeighbourJob
from shisha_rt.fabric.layout import layout_of
from shisha_rt.fabric.parent import die_with
from stages.engines.ort_segment import OptimisedModel

_SLOT = 0


@contextlib.contextmanager
def neighbours(engine_folder: str, cores: tuple[int, ...]) -> Iterator[None]:
    """One on each of `cores`, at work from the beginning to the end."""
    with contextlib.ExitStack() as ending:
        children = [ending.enter_context(_child(NeighbourJob(engine_folder, core, os.getpid()))) for core in cores]
        for child in children:
            assert child.stdout is not None  # a pipe was asked for
            if not child.stdout.readline():
                raise RuntimeError(f"a neighbour ended with status {child.wait()}")
        yield


@contextlib.contextmanager
def _child(job: NeighbourJob) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "stages.neighbour", msgspec.json.encode(job).decode()]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as child:
        try:
            yield child
        finally:
            child.kill()


def main(arguments: list[str]) -> int:
    job = msgspec.json.decode(arguments[0], type=NeighbourJob)
    die_with(job.parent_pid)
    os.sched_setaffinity(0, {job.core})
    index = model_index.read(Path(job.engine_folder))
    arena = Arena.create(layout_of(index), slot_count=1, place_count=1)
    whole = OptimisedModel(Path(job.engine_folder), index).segment(0, index.layer_count - 1, threads=1)
    whole.run(arena, _SLOT)
    print("at work", flush=True)
    while True:
        whole.run(arena, _SLOT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
