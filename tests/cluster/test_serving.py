"""A daemon with places of a real Ray cluster: answers, deaths, hosts that go and come, and what it refuses."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import psutil
import pytest

from benchmarks.rigs.raylets import Raylets
from tests.serving.daemon_process import PATIENCE_S, DaemonProcess, serve_command, until
from tests.serving.identity_model import LAYERS, write_identity_model
from tests.serving.load import PAUSE_S, Load, assert_kept

PLAN: Final = [
    {"first": 0, "last": 2, "places": ["here"]},
    {"first": 3, "last": 5, "places": ["far1"]},
    {"first": 6, "last": LAYERS - 1, "places": ["far2"]},
]
SEED: Final = 20311


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_identity_model(tmp_path_factory.mktemp("model"))


def machine_of(folder: Path, far: Sequence[str], extra: str = "") -> Path:
    core = min(os.sched_getaffinity(0))
    here = f'[[place]]\nname = "here"\ncores = [{core}]\nshared = true\n'
    others = "".join(f'[[place]]\nname = "{name}"\nhost = "ray"\n{extra}\n' for name in far)
    path = folder / "hosts.toml"
    path.write_text(here + others)
    return path


@pytest.fixture
def daemon(one_node: Raylets, identity: Path, tmp_path: Path) -> Iterator[DaemonProcess]:
    machine = machine_of(tmp_path, ("far1", "far2"))
    with DaemonProcess(
        tmp_path, identity, "--machine", machine, "--ray", one_node.address, "--strategy", "seed"
    ) as running:
        running.wait_for_workers()
        assert running.control.set_plan(PLAN)["outcome"] == "live"
        yield running


def events(daemon: DaemonProcess, kind: str) -> list[dict[str, Any]]:
    return [event for event in daemon.control.events(limit=10_000)["events"] if event["kind"] == kind]


def actors(cluster: Raylets) -> list[psutil.Process]:
    """The processes in which far ends are started."""
    return [its for its in _descendants(cluster) if "FarHost" in " ".join(_command(its))]


def far_ends(cluster: Raylets) -> list[psutil.Process]:
    return [its for its in _descendants(cluster) if "stages.far.host" in _command(its)]


def _descendants(cluster: Raylets) -> list[psutil.Process]:
    return psutil.Process(cluster.head.process.pid).children(recursive=True)


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def test_answers_are_the_whole_models_through_deaths(daemon: DaemonProcess, one_node: Raylets) -> None:
    """Far workers, far ends, actors and relays are killed under load; nothing is lost, doubled or out of order."""
    rng = random.Random(SEED)
    with Load(daemon.endpoint, 0, pause_s=PAUSE_S) as one, Load(daemon.endpoint, 1, pause_s=PAUSE_S) as two:
        for kill in ("worker", "far end", "actor", "relay"):
            pids = daemon.wait_for_workers()
            one.wait_for_answers(20)
            if kill == "relay":
                victim = pids["far1"]
            elif kill == "actor":
                victim = rng.choice(actors(one_node)).pid
            else:
                far_end = rng.choice(far_ends(one_node))
                victim = far_end.pid if kill == "far end" else far_end.children()[0].pid
            os.kill(victim, signal.SIGKILL)
            until(lambda pids=pids: daemon.worker_pids() != pids, "a relay's end")  # type: ignore[misc]
            for load, sent in ((one, one.sent), (two, two.sent)):
                load.wait_until_answered(sent)
        daemon.wait_for_workers()
        one.wait_for_answers(20)
    assert_kept(one, two)
    assert not one.codes
    gone = [event["reason"] for event in events(daemon, "worker_gone")]
    assert "its worker there: killed by signal 9 (SIGKILL)" in gone
    assert "the line to its far end: the connection ended" in gone
    assert any(event["place"] in ("far1", "far2") for event in events(daemon, "host_lost"))


def test_status_says_where_places_are(daemon: DaemonProcess, one_node: Raylets) -> None:
    places = {place["name"]: place for place in daemon.control.status()["places"]}
    assert places["here"]["host"] is None
    assert places["far1"]["host"] == one_node.head.address
    link = places["far1"]["link"]
    assert link["there_bytes_per_s"] > 1e6
    assert 0 < link["there_latency_s"] < 1


def refusal(*arguments: object) -> str:
    command = serve_command(*arguments, endpoint="tcp://127.0.0.1:0")
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 2, done.stderr
    assert not done.stdout
    return done.stderr.strip().splitlines()[-1]


class TestRefused:
    def test_no_cluster_is_said(self, identity: Path, tmp_path: Path) -> None:
        said = refusal(identity, "--machine", machine_of(tmp_path, ["far1"]))
        assert said.endswith('place far1 has host = "ray": expected --ray ADDRESS, or --ray local')

    def test_no_place_is_there(self, identity: Path, tmp_path: Path) -> None:
        said = refusal(identity, "--machine", machine_of(tmp_path, []), "--ray", "127.0.0.1:1")
        assert "no place of" in said
        assert said.endswith('has host = "ray", expected at least one')

    def test_nothing_answers(self, identity: Path, tmp_path: Path) -> None:
        said = refusal(identity, "--machine", machine_of(tmp_path, ["far1"]), "--ray", "127.0.0.1:1")
        assert said.endswith("the Ray cluster at 127.0.0.1:1 does not answer: Connection refused")

    def test_what_no_node_has(self, one_node: Raylets, identity: Path, tmp_path: Path) -> None:
        machine = machine_of(tmp_path, ["far1"], "cpus = 99\nresources = { npu = 2 }")
        said = refusal(identity, "--machine", machine, "--ray", one_node.address)
        assert f"place far1 asks for 99 cpus, npu = 2, which no node has; node {one_node.head.address}: 2 cpus" in said

    def test_what_is_not_to_be_had_at_once(self, one_node: Raylets, identity: Path, tmp_path: Path) -> None:
        machine = machine_of(tmp_path, ["far1", "far2", "far3"])
        said = refusal(identity, "--machine", machine, "--ray", one_node.address)
        assert "not all places can be had at once (far1: 1 cpus; far2: 1 cpus; far3: 1 cpus); free: node " in said


def test_nothing_is_left_when_the_daemon_is_killed(one_node: Raylets, identity: Path, tmp_path: Path) -> None:
    with DaemonProcess(
        tmp_path, identity, "--machine", machine_of(tmp_path, ["far1"]), "--ray", one_node.address
    ) as daemon:
        daemon.wait_for_workers()
        daemon.popen.kill()
        daemon.popen.wait()
        until(lambda: not far_ends(one_node) and not actors(one_node), "the end of what ran there")
