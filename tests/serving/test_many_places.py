"""More places than cores, and costs of more layers on more places than one datagram between processes can hold.

Nothing is measured here: the places take turns. The tuner's process must live, and nothing may get lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import psutil
import pytest

from benchmarks.rigs.steady_load import SteadyLoad
from shisha_rt.costs.costs_file import costs_object
from shisha_rt.machine.config.machine_file import load_machine
from shisha_rt.measure.costs_of_model import layer_costs
from shisha_rt.measure.make_ready import make_ready
from shisha_rt.plan.plan import Plan
from tests.serving.daemon_process import DaemonProcess, machine_file
from tests.serving.identity_model import write_long_identity_model
from tests.serving.load import PAUSE_S, Load, assert_kept
from tests.serving.page import scrape
from tests.serving.tuned import events, tuner
from tests.waiting import until

PATIENCE_S: Final = 300.0
"""64 workers start in turns."""


def many_places(model: object, folder: Path, place_count: int, *options: object) -> DaemonProcess:
    machine = places_file(folder, place_count)
    return DaemonProcess(folder, model, "--machine", machine, "--fresh", *options, ready_within_s=PATIENCE_S)


def places_file(folder: Path, count: int) -> Path:
    return machine_file(folder, [f"p{i}" for i in range(count)])


@pytest.mark.long
def test_64_places_and_a_network_of_121_layers(tmp_path: Path) -> None:
    with many_places("zoo:densenet121", tmp_path, 64, "--strategy", "shisha") as daemon:
        starts_well(daemon, 64)
        with SteadyLoad(daemon.endpoint, in_flight=132) as load:

            def answered() -> int:
                load.check()
                return len(load.answers)

            until(lambda: answered() and tuner(daemon.control)["trials_total"] >= 2, "trials", within_s=PATIENCE_S)
            lives_on(daemon, answered)
        assert load.tally.clean
        leaves_nothing(daemon)


@pytest.mark.parametrize(("place_count", "layers"), [(8, 400), (20, 150)])
@pytest.mark.long
def test_costs_of_more_than_64_kib(tmp_path: Path, place_count: int, layers: int) -> None:
    """The tuner is told them at its start. Few places are quicker to start, so they have more layers.

    By these costs it knows a bound, with its first trial, however long that takes. Chains are searched at once; before
    others plans are compared.
    """
    model = write_long_identity_model(tmp_path, layers)
    with many_places(model, tmp_path, place_count, "--strategy", "guided", "--no-replicate") as daemon:
        until(lambda: tuner(daemon.control)["lower_bound_s"], "a bound by the costs", within_s=PATIENCE_S)
        assert costs_bytes(model, places_file(tmp_path, place_count)) > 64 << 10
        with Load(daemon.endpoint, streams=place_count, model_name=model.stem, pause_s=PAUSE_S) as load:

            def answered() -> int:
                assert load.is_alive()
                assert load.faults == []
                return load.answered

            lives_on(daemon, answered)
        assert_kept(load)
        leaves_nothing(daemon)


def starts_well(daemon: DaemonProcess, place_count: int) -> None:
    """Each worker comes up at its first start and has its room; what is told of all of them stays small."""
    workers = daemon.wait_for_workers(PATIENCE_S)
    assert len(workers) == place_count
    status = daemon.control.status()
    assert {place["restarts"] for place in status["places"]} == {0}
    assert len(json.dumps(status)) < 1000 * place_count
    assert len(scrape(daemon.metrics)) < 100 * place_count
    for process in map(psutil.Process, workers.values()):
        assert process.num_threads() <= 5
        assert process.memory_full_info().uss < 80 << 20


def lives_on(daemon: DaemonProcess, answered: Callable[[], int]) -> None:
    """A client's plan goes live, a killed worker comes back, all under load and with one tuner process."""
    client = daemon.control
    daemon.wait_for_workers(PATIENCE_S)
    before = tuner_pid(daemon)
    status = client.status()
    place, *others = [entry["name"] for entry in status["places"]]
    half, layers = status["model"]["layers"] // 2, status["model"]["layers"]
    plan = Plan.chain([(0, half - 1, [(place,)]), (half, layers - 1, [(other,) for other in others])])
    settled = client.set_plan(plan, timeout_s=PATIENCE_S)
    assert settled["outcome"] == "live", settled["reason"]
    killed = daemon.wait_for_workers(PATIENCE_S)[place]
    daemon.kill_worker(killed)
    assert daemon.wait_for_workers(PATIENCE_S)[place] != killed
    total = answered() + 100
    until(lambda: answered() >= total, "further answers", every_s=0.05, within_s=PATIENCE_S)
    assert tuner_pid(daemon) == before
    assert events(client, "tuner_died") == []


def costs_bytes(model: Path, machine: Path) -> int:
    """Size of the costs of a model that a daemon has measured here, as its tuner is told them."""
    ready = make_ready(model, load_machine(str(machine)))
    return len(msgspec.json.encode(costs_object(layer_costs(ready).costs())))


def tuner_pid(daemon: DaemonProcess) -> int:
    (process,) = daemon.running("shisha_rt.daemon.children.tuner")
    return process.pid


def leaves_nothing(daemon: DaemonProcess) -> None:
    """Neither a process nor anything that its processes shared, with a name or without."""
    shared = {what for process in daemon.processes() for what in memory_and_sockets(process.pid)}
    assert shared
    assert daemon.terminate() == 0, daemon.stderr()
    daemon.assert_nothing_left()
    assert not shared & {what for pid in psutil.pids() for what in memory_and_sockets(pid)}


def memory_and_sockets(pid: int) -> set[tuple[int, int]]:
    """Device and inode of each memfd and socket that a process has open."""
    inodes = set()
    try:
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            if str(fd.readlink()).startswith(("/memfd:", "socket:")):
                status = fd.stat()
                inodes.add((status.st_dev, status.st_ino))
    except OSError:
        pass  # it is gone, or somebody else's
    return inodes
