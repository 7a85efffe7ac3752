"""A daemon with places of a real Ray cluster: answers, deaths, hosts that go and come, and what it refuses."""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import psutil
import pytest

from benchmarks.rigs.raylets import Raylets
from shisha_rt.errors import BadInput, Error
from shisha_rt.hosts.joined import Joined
from shisha_rt.hosts.model_files import FolderEntry, ModelManifest
from shisha_rt.machine.config.machine_file import parse_machine
from shisha_rt.measure.compile import engine_key
from tests.commands import command_of
from tests.serving.daemon_process import DaemonEnded, DaemonProcess
from tests.serving.identity_model import LAYERS, write_identity_model
from tests.serving.load import PAUSE_S, Load, assert_kept
from tests.serving.page import scrape
from tests.stages.far_places import children_of
from tests.waiting import until
from tests.wording import raised, says

PLAN: Final = [
    {"first": 0, "last": 2, "places": ["here"]},
    {"first": 3, "last": 5, "places": ["far1"]},
    {"first": 6, "last": LAYERS - 1, "places": ["far2"]},
]
FAR: Final = ("far1", "far2")
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


@pytest.fixture(scope="class")
def daemon(one_node: Raylets, identity: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """For a class: it has all the CPUs of the cluster meanwhile."""
    folder = tmp_path_factory.mktemp("daemon")
    machine = machine_of(folder, FAR)
    with DaemonProcess(folder, identity, "--machine", machine, "--ray", one_node.address) as running:
        running.wait_for_workers()
        assert running.control.set_plan(PLAN)["outcome"] == "live"
        yield running


def events(daemon: DaemonProcess, kind: str) -> list[dict[str, Any]]:
    return [event for event in daemon.control.events(limit=10_000)["events"] if event["kind"] == kind]


def actors(cluster: Raylets) -> list[psutil.Process]:
    """The processes in which far ends are started."""
    return [process for process in _descendants(cluster) if "FarHost" in " ".join(command_of(process))]


def far_ends(cluster: Raylets) -> list[psutil.Process]:
    return [process for process in _descendants(cluster) if "stages.far.host" in command_of(process)]


def _descendants(cluster: Raylets) -> list[psutil.Process]:
    return psutil.Process(cluster.head.process.pid).children(recursive=True)


def cluster_process(daemon: DaemonProcess) -> psutil.Process:
    """The daemon's part in the cluster."""
    (process,) = (
        child for child in psutil.Process(daemon.pid).children() if "shisha_rt.hosts.process" in command_of(child)
    )
    return process


def _killed(kind: str, relay: int, cluster: Raylets, rng: random.Random) -> bool:
    """Kill a process of this kind; False if the one that is chosen was ending, as another of its family had died."""
    try:
        if kind == "relay":
            victims = [relay]
        elif kind == "actor":
            victims = [process.pid for process in actors(cluster)]
        else:
            ends = [process.pid for process in far_ends(cluster)]
            victims = ends if kind == "far end" else [child for end in ends for child in children_of(end)]
        if victims:
            os.kill(rng.choice(victims), signal.SIGKILL)
    except (ProcessLookupError, psutil.NoSuchProcess):
        return False
    return bool(victims)


class TestServing:
    def test_status_says_where_places_are(self, daemon: DaemonProcess, one_node: Raylets) -> None:
        places = {place["name"]: place for place in daemon.control.status()["places"]}
        assert places["here"]["host"] is None
        assert places["far1"]["host"] == one_node.head.address
        link = places["far1"]["link"]
        assert min(link["there_bytes_per_s"], link["there_latency_s"]) > 0  # how fast it is the host decides

    @pytest.mark.parametrize("name", ["shisha_link_latency_seconds", "shisha_link_bandwidth_bytes_per_second"])
    def test_links_are_in_prometheus(self, name: str, daemon: DaemonProcess) -> None:
        """Of far places alone, both ways. Gauges are brought up to date every quarter of a second."""
        expected = {(place, way) for place in FAR for way in ("there", "back")}

        def shown() -> dict[tuple[str, str], float]:
            samples = [sample for sample in scrape(daemon.metrics) if sample.name == name]
            return {(sample.labels["place"], sample.labels["way"]): sample.value for sample in samples}

        until(lambda: shown().keys() == expected, f"{name} of {expected}")
        assert min(shown().values()) > 0

    def test_answers_are_the_whole_models_through_deaths(self, daemon: DaemonProcess, one_node: Raylets) -> None:
        """Far workers, far ends, actors and relays are killed under load; nothing is lost, doubled or out of order."""
        rng = random.Random(SEED)
        with Load(daemon.endpoint, 0, pause_s=PAUSE_S) as first, Load(daemon.endpoint, 1, pause_s=PAUSE_S) as second:
            for kill in ("worker", "far end", "actor", "relay"):
                pids = daemon.wait_for_workers()
                first.wait_for_answers(20)
                until(partial(_killed, kill, pids["far1"], one_node, rng), f"a {kill} that runs")
                until(lambda pids=pids: daemon.worker_pids() != pids, "a relay's end")  # type: ignore[misc]
                for load, sent in ((first, first.sent), (second, second.sent)):
                    load.wait_until_answered(sent)
            daemon.wait_for_workers()
            first.wait_for_answers(20)
        assert_kept(first, second)
        gone = [event["reason"] for event in events(daemon, "worker_gone")]
        assert "its worker there: killed by signal 9 (SIGKILL)" in gone
        assert says("… its far end: the connection ended") in gone
        (lost,) = events(daemon, "host_lost")
        (came,) = events(daemon, "host_came")
        assert lost["place"] == came["place"]
        assert lost["place"] in FAR
        assert lost["reason"].startswith(f"host {one_node.head.address}: ")
        assert came["host"] == one_node.head.address
        assert came["time_s"] > lost["time_s"]

    @pytest.mark.long
    def test_the_process_that_joins_the_cluster_is_killed(self, daemon: DaemonProcess) -> None:
        """All that it has on other hosts goes with it, and comes again with another; frames run here meanwhile."""
        died, came = events(daemon, "cluster_died"), events(daemon, "host_came")
        with Load(daemon.endpoint, 0, pause_s=PAUSE_S) as first, Load(daemon.endpoint, 1, pause_s=PAUSE_S) as second:
            for _ in range(2):
                pids = daemon.wait_for_workers()
                first.wait_for_answers(20)
                victim = cluster_process(daemon)
                victim.kill()
                until(lambda pids=pids: daemon.worker_pids() != pids, "a relay's end")  # type: ignore[misc]
                for load, sent in ((first, first.sent), (second, second.sent)):
                    load.wait_until_answered(sent)
                after = daemon.wait_for_workers()
                assert [after[place] == pids[place] for place in ("here", *FAR)] == [True, False, False]
                first.wait_for_answers(20)
        assert_kept(first, second)
        assert [event["reason"] for event in events(daemon, "cluster_died")[len(died) :]] == 2 * [
            "killed by signal 9 (SIGKILL)"
        ]
        again = events(daemon, "host_came")[len(came) :]
        assert sorted(event["place"] for event in again) == sorted(2 * FAR)


def refusal(model: Path, *arguments: object) -> str:
    with pytest.raises(DaemonEnded) as ended:
        DaemonProcess(model.parent, model, *arguments)
    assert ended.value.status == 2
    return ended.value.stderr.strip().splitlines()[-1]


class TestRefused:
    @pytest.mark.long
    def test_no_cluster_is_said(self, identity: Path, tmp_path: Path) -> None:
        said = refusal(identity, "--machine", machine_of(tmp_path, ["far1"]))
        assert said.endswith('place far1 has host = "ray": expected --ray ADDRESS, or --ray local [cluster_missing]')

    @pytest.mark.long
    def test_no_place_is_there(self, identity: Path, tmp_path: Path) -> None:
        said = refusal(identity, "--machine", machine_of(tmp_path, []), "--ray", "127.0.0.1:1")
        assert "no place of" in said
        assert said.endswith('has host = "ray", expected at least one [cluster_missing]')

    @pytest.mark.long
    def test_nothing_answers(self, identity: Path, tmp_path: Path) -> None:
        said = refusal(identity, "--machine", machine_of(tmp_path, ["far1"]), "--ray", "127.0.0.1:1")
        assert said.endswith("Ray cluster at 127.0.0.1:1 does not answer: Connection refused [cluster_unfit]")

    def test_what_no_node_has(self, one_node: Raylets, identity: Path, tmp_path: Path) -> None:
        machine = machine_of(tmp_path, ["far1"], "cpus = 99\nresources = { npu = 2 }")
        said = refusal(identity, "--machine", machine, "--ray", one_node.address)
        assert "place far1 asks for 99 cpus, npu = 2, which no" in said

    @pytest.mark.long
    def test_what_ray_does_not_take(self, one_node: Raylets, identity: Path, tmp_path: Path) -> None:
        machine = machine_of(tmp_path, ["far1"], 'labels = { "no label!" = "x" }')
        said = refusal(identity, "--machine", machine, "--ray", one_node.address)
        assert "hosts.toml: the Ray" in said

    @pytest.mark.long
    def test_what_is_not_to_be_had_at_once(self, one_node: Raylets, identity: Path, tmp_path: Path) -> None:
        machine = machine_of(tmp_path, ["far1", "far2", "far3"])
        said = refusal(identity, "--machine", machine, "--ray", one_node.address)
        assert "had at once (far1: 1 cpus; far2: 1 cpus; far3: 1 cpus); free: node" in said

    @pytest.mark.long
    def test_a_host_whose_cache_cannot_be_written(self, one_node: Raylets, identity: Path, tmp_path: Path) -> None:
        cache = one_node.head.folder / "cache" / "shisha-rt"
        kept = cache.rename(cache.with_name("kept")) if cache.exists() else None
        cache.parent.mkdir(exist_ok=True)
        cache.write_text("no folder")
        try:
            said = refusal(identity, "--machine", machine_of(tmp_path, ["far1"]), "--ray", one_node.address)
        finally:
            cache.unlink()
            if kept is not None:
                kept.rename(cache)
        assert f"place far1 on host {one_node.head.address}: {cache}/engines/" in said
        assert "cannot be made" in said


@pytest.mark.long
def test_nothing_is_left_when_the_daemon_is_killed(one_node: Raylets, identity: Path, tmp_path: Path) -> None:
    with DaemonProcess(
        tmp_path, identity, "--machine", machine_of(tmp_path, ["far1"]), "--ray", one_node.address
    ) as daemon:
        daemon.wait_for_workers()
        daemon.popen.kill()
        daemon.popen.wait()
        until(lambda: not far_ends(one_node) and not actors(one_node), "the end of what ran there")


@pytest.mark.long
@pytest.mark.parametrize("killed", [False, True], ids=["ended", "killed"])
def test_a_cluster_of_its_own_goes_with_the_daemon(identity: Path, tmp_path: Path, *, killed: bool) -> None:
    """`--ray local`, to try it out without any other."""
    pytest.importorskip("ray", reason="needs Ray: the extra `ray`")
    with of_a_local_cluster(tmp_path, identity) as daemon:
        daemon.wait_for_workers()
        assert daemon.control.set_plan(PLAN)["outcome"] == "live"
        with Load(daemon.endpoint, pause_s=PAUSE_S) as load:
            load.wait_for_answers(50)
        assert_kept(load)
        if killed:
            daemon.popen.kill()
            daemon.popen.wait()
            daemon.assert_no_process()


def of_a_local_cluster(folder: Path, model: Path, attempts: int = 4) -> DaemonProcess:
    """Started again where its node is too slow for Ray, which gives it half a minute, whatever else the host does."""
    for _ in range(attempts - 1):
        try:
            return DaemonProcess(folder, model, "--machine", machine_of(folder, FAR), "--ray", "local")
        except DaemonEnded as ended:
            if "timed out during startup" not in ended.stderr:
                raise
    return DaemonProcess(folder, model, "--machine", machine_of(folder, FAR), "--ray", "local")


ONE_PLACE: Final = parse_machine('[[place]]\nname = "far"\nhost = "ray"\n', name="hosts", source="hosts.toml")


class TestAHostThatCannotHaveTheModel:
    """The start ends, with what it was; it is not tried for ever."""

    def test_no_room_in_its_cache(self, one_node: Raylets) -> None:
        blocked = one_node.head.folder / "cache" / "shisha-rt" / "blocked"
        blocked.parent.mkdir(parents=True, exist_ok=True)
        blocked.write_text("a file, where a folder has to be")
        folder = FolderEntry(("blocked", "model"), ())
        with (
            contextlib.closing(Joined(one_node.address, ONE_PLACE, lambda _: None)) as joined,
            raised(BadInput, Error.CLUSTER_UNFIT, match=r"far on host .*: .*blocked/model: cannot be made"),
        ):
            joined.ship(ModelManifest("model", engine_key(), (folder,), (folder,)))
        blocked.unlink()

    def test_its_actor_fails(self, one_node: Raylets) -> None:
        """An actor that fails is ended: it has the CPUs that the next one needs."""
        empty = FolderEntry(("models", "of-nothing"), ())
        with (
            contextlib.closing(Joined(one_node.address, ONE_PLACE, lambda _: None)) as joined,
            raised(BadInput, Error.CLUSTER_UNFIT, match=r"hosts.toml: place far: host .*StopIteration"),
        ):
            joined.ship(ModelManifest("model", "another processor", (empty,), (empty,)))
