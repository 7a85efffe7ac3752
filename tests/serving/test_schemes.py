"""Partitions of a network on places that are a processor each, live: scheduled, run side by side, and scheduled anew.

The network has three branches of three convolutions; the accelerator runs each of them in a quarter of the time, and
tensors pay for the way there and back. Times are the descriptions', far above what this host needs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shisha_rt.cli.app import main
from shisha_rt.client import Client, FailedPrecondition
from shisha_rt.planner.strategies import SCHEMES
from tests.serving.daemon_process import DaemonProcess
from tests.serving.identity_model import frame_of, write_branching_identity_model
from tests.serving.load import Load, assert_kept
from tests.serving.placed import described, machine_of
from tests.serving.tuned import await_state, events, tuner
from tests.waiting import until
from tests.wording import says

# Schedules of partitions are a paper's: what serves by default does not load them.
pytestmark = pytest.mark.long

SLOWED = 0.02
"""At this speed one convolution on the accelerator takes longer than the whole network elsewhere."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_branching_identity_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("machine")
    general = described(folder, "general", 2e-3, "*")
    special = described(folder, "special", 0.5e-3, "Conv", linked=True)
    return machine_of(folder, cpu=[general], npu=[special])


@pytest.fixture(scope="module")
def running(model: Path, machine: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    folder = tmp_path_factory.mktemp("running")
    with DaemonProcess(folder, model, "--machine", machine, "--strategy", "partitiontuner") as process:
        yield process


@pytest.fixture
def client(running: DaemonProcess) -> Client:
    running.wait_for_workers()
    return running.control


def planned(model: Path, machine: Path, scheme: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    main(["plan", str(model), "--machine", str(machine), "--strategy", scheme, "--json"])
    plan: dict[str, Any] = json.loads(capsys.readouterr().out)
    return plan


def restarted(client: Client, daemon: DaemonProcess, scheme: str) -> Load:
    """By that scheme, and settled; returns the load, which has ended."""
    client.call("tuner_set", strategy=scheme, restart=True)
    with Load(daemon.endpoint, streams=1, depth=1) as load:
        await_state(client, "watching")
    return load


def on(client: Client) -> set[str]:
    return {place for stage in client.plan()["stages"] for place in stage["places"]}


def test_every_scheme_runs_as_it_was_planned(
    model: Path, machine: Path, running: DaemonProcess, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    for scheme in SCHEMES:
        assert_kept(restarted(client, running, scheme))
        plan = planned(model, machine, scheme, capsys)
        began = events(client, "tuning_began")[-1]
        trial = next(event for event in events(client, "trial") if event["run"] == began["run"])
        keys = ("first", "last", "layers", "places", "after")
        stages = [{key: stage[key] for key in keys if key in stage} for stage in plan["stages"]]
        assert trial["reason"] == says(f"{scheme} by the … told: {plan['latency_s'] * 1e3:.4g} ms predicted…")
        assert client.set_plan(stages)["outcome"] == "live"  # what `plan` prints is what `plan_set` takes
        assert str(trial["plan"]) == events(client, "plan_live")[-1]["plan"]
        for number in range(3):
            assert (client.infer(frame_of(number)).output == frame_of(number)).all()
    assert on(client) == {"cpu", "npu"}


def test_what_such_a_daemon_does_not_know(client: Client) -> None:
    with pytest.raises(FailedPrecondition, match="'guided' is not"):
        client.call("tuner_set", strategy="guided", restart=True)
    with pytest.raises(FailedPrecondition, match="knows none but"):
        client.call("tuner_set", objective="throughput")
    assert tuner(client)["strategy"] in SCHEMES


@pytest.mark.long
def test_a_slowed_accelerator_leads_to_another_schedule(running: DaemonProcess, client: Client) -> None:
    """Nobody tells of it: what its partitions take does."""
    assert_kept(restarted(client, running, "forkjoin"))
    assert on(client) == {"cpu", "npu"}
    since = int(client.events(0, 10_000)["next"])
    client.call("place_set", place="npu", device="special", speed=SLOWED)
    try:
        with Load(running.endpoint, streams=2, depth=2) as load:
            until(lambda: on(client) == {"cpu"}, "a schedule without the accelerator", every_s=0.05)
            await_state(client, "watching")
        assert_kept(load)
    finally:
        client.call("place_set", place="npu", device="special", speed=1)
    assert events(client, "drift", since)
    assert any("by the corrected" in event["reason"] for event in events(client, "trial", since))


def test_an_accelerator_that_dies_is_missed_by_no_frame(running: DaemonProcess, client: Client) -> None:
    restarted(client, running, "partitiontuner")
    pid = running.wait_for_workers()["npu"]
    with Load(running.endpoint, streams=2, depth=2) as load:
        load.wait_for_answers(20)
        running.kill_worker(pid)
        load.wait_for_answers(40)
    assert_kept(load)
    running.wait_for_workers()


def test_a_plan_from_a_file_stays_live(
    model: Path, machine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = planned(model, machine, "opseq", capsys)
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan))
    options = ("--strategy", "partitiontuner", "--plan", file)
    with DaemonProcess(tmp_path, model, "--machine", machine, *options) as daemon:
        with Load(daemon.endpoint) as load:
            load.wait_for_answers(100)
        assert_kept(load)
        assert [stage["places"] for stage in daemon.control.plan()["stages"]] == [s["places"] for s in plan["stages"]]
        assert (tuner(daemon.control)["state"], daemon.control.plan()["epoch"]) == ("paused", 1)
