"""A daemon on places that are emulated: right answers, speeds that can be changed, and machine files it refuses.

Nothing here trusts a stopwatch on a busy host. What is certain is one side: a frame that finds its place idle takes
at least its target, so the service time is never below the CPU time over the speed.
"""

from __future__ import annotations

import os
import signal
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from shisha_rt.client import Client
from shisha_rt.machine.config.machine_file import load_machine
from shisha_rt.machine.machine import Machine, target_s
from shisha_rt.protocol.exceptions import FailedPrecondition, InvalidArgument
from tests.serving.daemon_process import DaemonEnded, DaemonProcess
from tests.serving.identity_model import frame_of, write_identity_model
from tests.serving.load import Load, assert_kept
from tests.waiting import PATIENCE_S, until

BANDWIDTHS = {"hbm": 4e8, "ddr": 1e8}


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_identity_model(tmp_path_factory.mktemp("identity"))


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two fast and two slow places in halves on the first and the last core that may be used."""
    cores = sorted(os.sched_getaffinity(0))
    places = [("fast0", 0, 0.5, 1, "hbm"), ("fast1", -1, 0.5, 1, "hbm")]
    places += [("slow0", 0, 0.2, 2, "ddr"), ("slow1", -1, 0.2, 2, "ddr")]
    scale = 1.0 if len(cores) > 1 else 0.5
    return write_machine(
        tmp_path_factory.mktemp("emulated"),
        *(f'[[memory]]\nname = "{name}"\nbandwidth_bytes_per_s = {limit}' for name, limit in BANDWIDTHS.items()),
        *(
            f'[[place]]\nname = "{name}"\ncores = [{cores[core]}]\nspeed = {speed * scale}\nrank = {rank}\n'
            f'memory = "{memory}"'
            for name, core, speed, rank, memory in places
        ),
    )


def write_machine(folder: Path, *lines: str) -> Path:
    path = folder / "emulated.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def running(identity: Path, emulated: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    with DaemonProcess(tmp_path_factory.mktemp("running"), identity, "--machine", emulated) as process:
        yield process


@pytest.fixture
def daemon(running: DaemonProcess, emulated: Path) -> DaemonProcess:
    """On the machine `emulated`, with all of its workers, and each place as fast as its file says."""
    running.wait_for_workers()
    for place in load_machine(str(emulated)).places:
        running.control.call("place_set", place=place.name, speed=place.speed)
    return running


def serve_one_by_one(daemon: DaemonProcess, frames: int) -> None:
    """Frames that find every place idle; each answer must be its input."""
    with Client(daemon.endpoint, timeout_s=PATIENCE_S) as client:
        for number in range(frames):
            answer = client.infer({"x": frame_of(number)}).outputs["y"]
            assert (answer == frame_of(number)).all()


def assert_no_stage_beats_its_target(status: Mapping[str, Any], machine: Machine) -> None:
    speeds = {place["name"]: place["speed"] for place in status["places"]}
    for stage in status["plan"]["stages"]:
        place = machine.place(stage["places"][0])
        target = target_s(
            stage["cpu_s"],
            stage["frame_bytes"],
            threads=place.threads,
            speed=speeds[place.name],
            bandwidth_bytes_per_s=machine.bandwidth_bytes_per_s(place),
        )
        assert stage["service_s"] >= target * (1 - 1e-6), place.name


def metric(daemon: DaemonProcess, name: str) -> dict[str, float]:
    """Values by the label that tells the place or memory apart; every label of emulation says so."""
    with urllib.request.urlopen(daemon.metrics, timeout=PATIENCE_S) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    samples = [sample for family in families for sample in family.samples if sample.name == name]
    assert all(sample.labels.get("emulated", "true") == "true" for sample in samples)
    return {sample.labels.get("place") or sample.labels["memory"]: sample.value for sample in samples}


def test_a_place_says_how_fast_it_is_and_no_frame_beats_its_target(running: DaemonProcess, emulated: Path) -> None:
    """The first test: every frame so far is its own."""
    daemon, machine = running, load_machine(str(emulated))
    daemon.wait_for_workers()
    serve_one_by_one(daemon, 20)
    status = daemon.control.status()
    assert status["machine"]["emulated"] is True
    assert all(place["emulated"] for place in status["places"])
    assert len(status["plan"]["stages"]) == 4
    assert_no_stage_beats_its_target(status, machine)
    used = {stage["places"][0] for stage in status["plan"]["stages"]}
    for name in used:
        answer = daemon.control.call("place_set", place=name, speed=0.01)
        assert (answer["place"], answer["speed"]) == (name, 0.01)
    assert all(stage["frames"] >= 20 and stage["service_s"] is None for stage in stages_of(daemon)), "told anew"
    serve_one_by_one(daemon, 5)
    assert {place["speed"] for place in daemon.control.status()["places"]} == {0.01}
    assert_no_stage_beats_its_target(daemon.control.status(), machine)
    events = [event for event in daemon.control.call("events")["events"] if event["kind"] == "place_speed"]
    assert [(event["place"], event["speed"]) for event in events] == [(name, 0.01) for name in used]
    assert metric(daemon, "shisha_place_speed_ratio") == dict.fromkeys(used, 0.01)
    assert metric(daemon, "shisha_memory_bandwidth_bytes_per_second") == BANDWIDTHS
    until(
        lambda: metric(daemon, "shisha_memory_reserved_bytes_total") == reserved_bytes(daemon, machine),
        "every byte of every frame counted",
    )


def test_speeds_change_while_frames_flow_and_every_answer_is_right(daemon: DaemonProcess, emulated: Path) -> None:
    machine = load_machine(str(emulated))
    with Load(daemon.endpoint) as load:
        load.wait_for_answers(50)
        for factor in (0.5, 0.1, 1.0):
            for place in machine.places:
                daemon.control.call("place_set", place=place.name, speed=place.speed * factor)
            load.wait_for_answers(50)
    assert_kept(load)
    assert load.results == load.answered


def stages_of(daemon: DaemonProcess) -> list[dict[str, Any]]:
    stages: list[dict[str, Any]] = daemon.control.status()["plan"]["stages"]
    return stages


def reserved_bytes(daemon: DaemonProcess, machine: Machine) -> dict[str, float]:
    total = dict.fromkeys(BANDWIDTHS, 0.0)
    for stage in stages_of(daemon):
        total[machine.place(stage["places"][0]).memory] += stage["frames"] * stage["frame_bytes"]
    return total


def test_a_new_worker_keeps_the_speed_of_its_place(daemon: DaemonProcess, emulated: Path) -> None:
    before = daemon.wait_for_workers()
    for name in before:
        daemon.control.call("place_set", place=name, speed=0.02)
    for pid in before.values():
        os.kill(pid, signal.SIGKILL)
    daemon.wait_for_deaths(*before.values())
    assert not set(before.values()) & set(daemon.wait_for_workers().values())
    serve_one_by_one(daemon, 5)
    assert_no_stage_beats_its_target(daemon.control.status(), load_machine(str(emulated)))


@pytest.mark.long
def test_a_frame_may_take_longer_than_a_hang(identity: Path, tmp_path: Path) -> None:
    """The whole network in over seven seconds, held back by its memory alone: slow, and not hung."""
    core = min(os.sched_getaffinity(0))
    machine = write_machine(
        tmp_path,
        '[[memory]]\nname = "tape"\nbandwidth_bytes_per_s = 6e3',
        f'[[place]]\nname = "slow0"\ncores = [{core}]\nspeed = 0.5',
    )
    with DaemonProcess(tmp_path, identity, "--machine", machine) as daemon:
        daemon.wait_for_workers()
        serve_one_by_one(daemon, 1)
        status = daemon.control.status()
        assert status["plan"]["stages"][0]["service_s"] > 7
        assert status["places"][0]["restarts"] == 0


def test_speeds_that_cannot_be(daemon: DaemonProcess) -> None:
    speeds = {place["name"]: place["speed"] for place in daemon.control.status()["places"]}
    with pytest.raises(FailedPrecondition, match=r"the speeds of .*fast0.* add up to .*, expected at most 0\.85"):
        daemon.control.call("place_set", place="fast0", speed=0.84)
    with pytest.raises(FailedPrecondition, match="unthrottled"):
        daemon.control.call("place_set", place="fast0", speed=1)
    with pytest.raises(InvalidArgument, match=r"speed: 1\.5 .*at most 1"):
        daemon.control.call("place_set", place="fast0", speed=1.5)
    assert {place["name"]: place["speed"] for place in daemon.control.status()["places"]} == speeds


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            ["speed = 0.6", "[[place]]", 'name = "b"', "cores = [CORE]", "speed = 0.3"],
            "add up to 0.9, expected at most",
        ),
        (
            ["[[memory]]", 'name = "ram"', "bandwidth_bytes_per_s = 0"],
            "bandwidth_bytes_per_s = 0: expected a number >= 1000",
        ),
        (["speed = 0"], "place[0].speed = 0: expected a number >= 0.001"),
    ],
)
def test_a_machine_file_that_cannot_be(identity: Path, tmp_path: Path, lines: list[str], expected: str) -> None:
    core = str(min(os.sched_getaffinity(0)))
    machine = write_machine(
        tmp_path, "[[place]]", 'name = "a"', f"cores = [{core}]", *(line.replace("CORE", core) for line in lines)
    )
    assert expected in refusal(identity, machine)


def test_a_time_scale_too_small_is_found_when_the_real_time_is_known(identity: Path, tmp_path: Path) -> None:
    """An unthrottled place, stretched by less than a fifth: its target cannot be kept, whatever host this is."""
    core = min(os.sched_getaffinity(0))
    machine = write_machine(tmp_path, "time_scale = 1.05", "[[place]]", 'name = "a"', f"cores = [{core}]")
    line = refusal(identity, machine)
    assert line.startswith(f"{machine}: time_scale = 1.05: place a would")
    assert "expected 1.2 times as much: time_scale = " in line


def refusal(model: Path, machine: Path) -> str:
    """The one line with which `serve` ends."""
    with pytest.raises(DaemonEnded) as ended:
        DaemonProcess(machine.parent, model, "--machine", machine)
    assert ended.value.status == 2
    assert "Traceback" not in ended.value.stderr
    line = ended.value.stderr.strip().splitlines()[-1]
    return line[line.index(str(machine)) :]
