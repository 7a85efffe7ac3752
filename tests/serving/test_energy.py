"""A daemon that serves by the plan of the fewest joules a frame, as its machine file describes what places draw."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from shisha_rt.client import Client, FailedPrecondition
from shisha_rt.errors import Error
from tests.serving.daemon_process import DaemonProcess
from tests.serving.identity_model import LAYERS, frame_of, write_identity_model
from tests.serving.page import scrape, value
from tests.serving.tuned import await_state, events, tuner
from tests.waiting import until
from tests.wording import raised

CHANNELS, SIZE = 64, 12
SHAPE = (1, CHANNELS, SIZE, SIZE)
BIG_W, LITTLE_W = 40.0, 1.0


def machine_of(folder: Path, *, powered: bool = True) -> Path:
    """A place, and one a third as quick that draws a fortieth: so far apart that no busy neighbour turns it round."""
    cores = sorted(os.sched_getaffinity(0))
    path = folder / f"unlike{'' if powered else '_unknown'}.toml"
    places = (("big0", cores[0], 0.75, 1, BIG_W), ("little0", cores[-1], 0.25, 2, LITTLE_W))
    path.write_text(
        "".join(
            f'[[place]]\nname = "{name}"\ncores = [{core}]\nspeed = {speed}\nrank = {rank}\n'
            + (f"power_w = {watts}\n" if powered or name == "big0" else "")
            for name, core, speed, rank, watts in places
        )
    )
    return path


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    folder = tmp_path_factory.mktemp("energy")
    model = write_identity_model(folder, channels=CHANNELS, size=SIZE)
    options = ("--machine", machine_of(folder), "--strategy", "guided", "--objective", "energy", "--fresh")
    with DaemonProcess(folder, model, *options) as process:
        yield process


def sent(client: Client, frames: int) -> None:
    for number in range(frames):
        x = frame_of(number, SHAPE)
        np.testing.assert_array_equal(client.infer({"x": x}).outputs["y"], x)


def test_it_serves_on_the_frugal_place_and_says_what_a_frame_takes(daemon: DaemonProcess) -> None:
    with Client(daemon.endpoint) as client:

        def settled() -> bool:
            sent(client, 20)
            return bool(tuner(client)["state"] == "watching")

        until(settled, "a plan for energy")
        said, status = tuner(client), client.call("status")["status"]
        assert (said["objective"], said["run_objective"], status["objective"]) == ("energy", "energy", "energy")
        assert said["best_plan"] == f"little0: 0-{LAYERS - 1}"
        (stage,) = status["plan"]["stages"]
        assert status["energy_j"] == pytest.approx(LITTLE_W * stage["service_s"], rel=1e-9)
        assert said["best_energy_j"] < BIG_W / LITTLE_W * status["energy_j"]  # measured at another time
        trials = events(client, "trial")
        known = [trial["energy_j"] for trial in trials if trial["energy_j"] is not None]  # where each copy ran frames
        assert min(known) == said["best_energy_j"] > 0
        assert [place["power_w"] for place in status["places"]] == [BIG_W, LITTLE_W]
    until(lambda: value(scrape(daemon.metrics), "shisha_frame_energy_joules") > 0, "energy on the page of metrics")


def test_another_objective_and_back(daemon: DaemonProcess) -> None:
    with Client(daemon.endpoint) as client:
        client.call("tuner_set", objective="latency")

        def serves(objective: str, plan: str) -> bool:
            sent(client, 20)
            return tuner(client)["serves"] == objective and str(client.call("status")["status"]["plan"]).count(plan) > 0

        until(lambda: serves("latency", "big0"), "the quick place for latency")
        client.call("tuner_set", objective="energy")
        until(lambda: serves("energy", "little0") and not serves("energy", "big0"), "the frugal place again")


def test_a_strategy_that_knows_no_energy_is_refused_while_that_is_the_objective(daemon: DaemonProcess) -> None:
    with Client(daemon.endpoint) as client:
        with raised(FailedPrecondition, Error.OBJECTIVE_UNFIT):
            client.call("tuner_set", strategy="shisha")
        assert (tuner(client)["strategy"], tuner(client)["objective"]) == ("guided", "energy")
        client.call("tuner_set", strategy="shisha", objective="latency")
        with raised(FailedPrecondition, Error.OBJECTIVE_UNFIT):
            client.call("tuner_set", objective="energy")
        assert (tuner(client)["strategy"], tuner(client)["objective"]) == ("shisha", "latency")
        client.call("tuner_set", strategy="guided", objective="energy")


def test_energy_is_refused_where_power_is_not_known(tmp_path: Path) -> None:
    model, machine = write_identity_model(tmp_path), machine_of(tmp_path, powered=False)
    with (
        DaemonProcess(tmp_path, model, "--machine", machine, "--strategy", "shisha") as process,
        Client(process.endpoint) as client,
    ):
        await_state(client, "watching", "waiting", "tuning")
        with pytest.raises(FailedPrecondition, match="little0"):
            client.call("tuner_set", objective="energy")
