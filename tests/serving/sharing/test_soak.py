"""Frames in shared memory through changes of plan, deaths of workers and of clients at random moments: R1 holds, and
what a client lends is its own again with the answer.
"""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from shisha_rt.measure.compile import compile_model
from tests.serving.changed_plans import change_plans
from tests.serving.daemon_process import DaemonProcess, machine_file
from tests.serving.identity_model import write_branching_identity_model
from tests.serving.load import Load, assert_kept
from tests.serving.page import counter
from tests.serving.random_plans import Cuttable
from tests.serving.sharing.lent_region import regions_of
from tests.waiting import PATIENCE_S, until

PLACES = ("a", "b", "c", "d")
SIZE = 36
"""Frames of 83 KB, which Python's client shares."""


class DoomedClients(threading.Thread):
    """One after the other, each killed at a random moment."""

    def __init__(self, endpoint: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.killed = 0
        self.faults: list[int] = []
        self._command = [sys.executable, "-m", "tests.serving.sharing.doomed_client", endpoint, str(SIZE)]
        self._rng = random.Random(seed)
        self._ending = threading.Event()

    def run(self) -> None:
        while not self._ending.is_set():
            with subprocess.Popen(self._command) as client:
                self._ending.wait(self._rng.uniform(0.3, 2.0))
                ended = client.poll()
                if ended is not None:
                    self.faults.append(ended)
                client.kill()
            self.killed += 1

    def end(self) -> None:
        self._ending.set()
        self.join(PATIENCE_S)
        assert not self.is_alive()


@pytest.mark.long
@pytest.mark.parametrize(("frames", "kill_every"), [(600, 12), (100_000, 60)])
def test_nothing_is_lost_doubled_or_written_late(tmp_path: Path, frames: int, kill_every: int) -> None:
    model = write_branching_identity_model(tmp_path, size=SIZE)
    compiled = compile_model(model)
    cuttable = Cuttable(len(compiled.layers), compiled.legal_cuts, compiled.index.needs)
    rng = random.Random(frames)
    shape = (1, 16, SIZE, SIZE)
    with DaemonProcess(tmp_path, model, "--machine", machine_file(tmp_path, PLACES)) as daemon:
        path = daemon.local_socket
        doomed = DoomedClients(daemon.endpoint, frames)
        with (
            Load(daemon.endpoint, 0, sharing=path, shape=shape, model_name=compiled.model.name) as first,
            Load(daemon.endpoint, 1, sharing=path, line=path, shape=shape, model_name=compiled.model.name) as second,
        ):
            doomed.start()
            plans = (cuttable.random_plan(rng, PLACES) for _ in itertools.count())
            going_on = itertools.takewhile(lambda _: first.answered + second.answered < frames, plans)
            killed = change_plans(
                daemon, first, itertools.chain(itertools.islice(plans, kill_every), going_on), PLACES, kill_every
            )
            doomed.end()
        assert_kept(first, second)
        assert doomed.faults == []
        names = ("shisha_lent_regions", "shisha_lent_bytes", "shisha_frames_in_flight")
        left = [counter(daemon.metrics, name) for name in names]
        until(lambda: not any(gauge() for gauge in left), "the end of regions and of frames")
        assert regions_of(daemon.pid, *daemon.wait_for_workers().values()) == []
        print(f"{first.answered + second.answered} frames, {killed} workers and {doomed.killed} clients killed")
