"""A daemon whose objective follows the load: what goes live, what it says of it, and that no frame is lost over it.

What both plans take is told beforehand, so that nothing is searched for; what they take now the daemon finds out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shisha_rt.cache import cache_folder
from shisha_rt.client import Client
from shisha_rt.core.tuning.best import BestPlan, key_of
from shisha_rt.machine.config.machine_file import load_machine
from shisha_rt.measure import plan_store
from shisha_rt.measure.make_ready import make_ready
from shisha_rt.plan.measurement import Measurement
from shisha_rt.plan.plan import Plan
from tests.serving.daemon_process import DaemonProcess
from tests.serving.identity_model import LAYERS, frame_of, write_identity_model
from tests.serving.load import Load, assert_kept
from tests.serving.page import scrape, value, values
from tests.serving.tuned import events, tuner
from tests.waiting import until

QUICK = Plan.of([(0, LAYERS - 1, "fast0")])
MOST = Plan.of([(0, 5, "fast0"), (6, LAYERS - 1, "slow0")])
CHANNELS, SIZE = 64, 16
"""One place is slower than a client that has a core beside other tests: as places are slow, which takes no CPU."""
SHAPE = (1, CHANNELS, SIZE, SIZE)


def machine_of(folder: Path) -> Path:
    """A place, and one that is half as quick."""
    cores = sorted(os.sched_getaffinity(0))
    path = folder / "half.toml"
    places = (("fast0", cores[0], 0.06, 1), ("slow0", cores[-1], 0.03, 2))
    path.write_text(
        "".join(
            f'[[place]]\nname = "{name}"\ncores = [{core}]\nspeed = {speed}\nrank = {rank}\n'
            for name, core, speed, rank in places
        )
    )
    return path


def keep_both(model: Path, machine: Path) -> None:
    """As an earlier run of the daemon would."""
    ready = make_ready(model, load_machine(str(machine)))
    for objective, plan, frame_s, alone_s in (("latency", QUICK, 0.010, 0.010), ("throughput", MOST, 0.007, 0.014)):
        measurement = Measurement((frame_s,) * len(plan.stages), 100.0, 32, 1.0, alone_s=alone_s)  # nothing is a drift
        best = BestPlan(plan, measurement, ("slow0", "fast0"))
        file = cache_folder() / plan_store.FILE_NAME
        plan_store.save_plan(file, ready.compiled.key, key_of(ready.machine, objective), best)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    folder = tmp_path_factory.mktemp("objective")
    model, machine = write_identity_model(folder, channels=CHANNELS, size=SIZE), machine_of(folder)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        keep_both(model, machine)
        with DaemonProcess(folder, model, "--machine", machine, "--strategy", "shisha") as process:
            yield process


def one_by_one(client: Client, frames: int) -> None:
    for number in range(frames):
        x = frame_of(number, SHAPE)
        np.testing.assert_array_equal(client.infer({"x": x}).outputs["y"], x)


def plan_of(client: Client) -> Any:
    return events(client, "plan_live")[-1]["plan"]


def shown(daemon: DaemonProcess) -> dict[str, float]:
    return values(scrape(daemon.metrics), "shisha_objective", "shisha_objective")


def test_the_plan_follows_the_load(daemon: DaemonProcess) -> None:
    client = daemon.control
    assert (plan_of(client), tuner(client)["serves"]) == (str(QUICK), "latency")
    one_by_one(client, 50)
    assert plan_of(client) == str(QUICK)
    for _ in range(2):
        with Load(daemon.endpoint, shape=SHAPE) as load:
            until(lambda: plan_of(client) == str(MOST), "the plan for throughput")
            load.wait_for_answers(100)
            tuning, status = tuner(client), client.status()
            until(lambda: shown(daemon) == {"energy": 0, "latency": 0, "throughput": 1}, "it on the metrics page")
            assert value(scrape(daemon.metrics), "shisha_load_ratio") > 0
        assert_kept(load)
        assert len(load.epochs) == 2
        assert (tuning["objective"], tuning["serves"], tuning["state"]) == ("auto", "throughput", "watching")
        assert tuning["utilisation"] > 0
        assert [tuning["plans"][name]["plan"] for name in ("latency", "throughput")] == [str(QUICK), str(MOST)]
        assert (tuning["best_plan"], status["objective"]) == (str(MOST), "throughput")
        while plan_of(client) != str(QUICK):  # or the test takes too long
            one_by_one(client, 20)
        assert tuner(client)["serves"] == "latency"
    changes = events(client, "objective_changed")
    assert [change["objective"] for change in changes] == 2 * ["throughput", "latency"]
    assert "plan for throughput" in changes[0]["reason"]
    assert [change["plan"] for change in changes[:2]] == [str(MOST), str(QUICK)]
    assert events(client, "tuning_began") == []


def test_an_objective_that_is_asked_for_stays(daemon: DaemonProcess) -> None:
    client = daemon.control
    assert client.call("tuner_set", objective="latency")["tuner"]["objective"] == "latency"
    with Load(daemon.endpoint, shape=SHAPE) as load:
        load.wait_for_answers(300)
        assert plan_of(client) == str(QUICK)
        assert client.call("tuner_set", objective="auto")["tuner"]["objective"] == "auto"
        until(lambda: plan_of(client) == str(MOST), "the plan for throughput")
    assert_kept(load)
