"""`python -m stages.jobs.neighbour JOB_JSON`: keep a core busy with the model while other cores are timed.

A place that serves never has the host to itself: other places run their stages beside it and take their share of
caches, memory and, between threads of one core, of the core itself. Layers timed on an idle host come out faster than
they will ever run. A neighbour runs the whole model again and again, as no plan is known yet. It gives way to any other
process that wants its core: if a daemon serves already, that daemon's frames take the neighbour's part. A cleaned model
runs on ONNX Runtime, which every host has.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import msgspec

from shisha_rt.errors import Failure
from shisha_rt.machine.host.cores import pin
from shisha_rt.messages.calibration import NeighbourJob
from shisha_rt.model.reader import index_file
from shisha_rt.placement.segments import segment
from shisha_rt.process.child import Child, start_child
from shisha_rt.process.job import how_ended
from shisha_rt.process.parent import die_with
from stages.built.clean_model import CleanModel
from stages.built.placed import EXACT
from stages.engines.device_session import build_session
from stages.engines.onnxruntime.parts import PARTS_FILE
from stages.engines.onnxruntime.segment import OptimisedModel
from stages.engines.session import Bound, untimed
from stages.noise import arena_of_own

_LEAST = 19


@contextlib.contextmanager
def neighbours(folder: str, cores: tuple[int, ...]) -> Iterator[None]:
    """Keep a neighbour at work on each of `cores` in this context. `folder` has the model, cleaned or compiled."""
    with contextlib.ExitStack() as ending:
        children: dict[int, Child] = {}
        for core in cores:
            job = msgspec.json.encode(NeighbourJob(folder, core, os.getpid())).decode()
            children[core] = start_child("stages.jobs.neighbour", job, stdout=subprocess.PIPE)
            ending.callback(children[core].end)
        for core, child in children.items():
            assert child.stdout is not None  # a pipe was asked for
            if not child.stdout.readline():
                raise Failure(f"what was to keep core {core} busy meanwhile: {how_ended(child.wait())}")
        yield


def main(arguments: list[str]) -> NoReturn:
    job = msgspec.json.decode(arguments[0], type=NeighbourJob)
    die_with(job.parent_pid)
    pin([job.core])
    os.nice(_LEAST)
    folder = Path(job.folder)
    if (folder / PARTS_FILE).exists():
        index = index_file.read_index(folder)
        network = OptimisedModel(folder, index).segment(((0, index.layer_count - 1),))
        with arena_of_own(index, lambda arena: network.on_slot(arena, 0)(untimed)) as arena:
            _keep_at_work(network.on_slot(arena, 0))
    model = CleanModel.read(folder)
    whole = segment(model.graph, 0, len(model.graph.operators) - 1, device="")
    session = build_session(model, whole, EXACT)
    _keep_at_work(session.bind(session.ends.arrays()))


def _keep_at_work(run: Bound) -> NoReturn:
    run(untimed)
    print("at work", flush=True)
    while True:
        run(untimed)


if __name__ == "__main__":
    main(sys.argv[1:])
