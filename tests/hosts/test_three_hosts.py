"""Hosts behind real links die and come back under load, and links fall silent; every frame is answered."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.hosts.three_hosts import ThreeHosts
from tests.serving.daemon_process import DaemonProcess
from tests.serving.identity_model import LAYERS, write_identity_model
from tests.serving.load import PAUSE_S, Load, assert_kept
from tests.waiting import until

pytestmark = pytest.mark.long

PLAN: Final = [
    {"first": 0, "last": 1, "places": ["here"]},
    {"first": 2, "last": 4, "places": ["far1"]},
    {"first": 5, "last": 6, "places": ["far2"]},
    {"first": 7, "last": LAYERS - 1, "places": ["far3"]},
]
RATE: Final = 1e9
DELAY_S: Final = 1e-3
SILENT_S: Final = 5.0  # packets leave in order: what comes later waits for those that are held


@pytest.fixture
def daemon(three_raylets: ThreeHosts, tmp_path: Path) -> Iterator[DaemonProcess]:
    core = min(os.sched_getaffinity(0))
    places = [f'name = "here"\ncores = [{core}]\nshared = true\n']
    places += [f'name = "far{number}"\nhost = "ray"\nresources = {{ host{number} = 1 }}\n' for number in (1, 2, 3)]
    machine = tmp_path / "hosts.toml"
    machine.write_text("".join(f"[[place]]\n{place}\n" for place in places))
    model = write_identity_model(tmp_path)
    with DaemonProcess(tmp_path, model, "--machine", machine, "--ray", three_raylets.cluster.address) as running:
        running.wait_for_workers()
        assert running.control.set_plan(PLAN)["outcome"] == "live"
        yield running


def events(daemon: DaemonProcess, kind: str, place: str) -> list[dict[str, Any]]:
    """Of one place."""
    logged = daemon.control.events(limit=10_000)["events"]
    return [event for event in logged if event["kind"] == kind and event["place"] == place]


def planned(daemon: DaemonProcess) -> set[str]:
    """The places of the live plan."""
    return {place for stage in daemon.control.plan()["stages"] for place in stage["places"]}


def status_of(daemon: DaemonProcess, place: str) -> dict[str, Any]:
    (status,) = (entry for entry in daemon.control.status()["places"] if entry["name"] == place)
    return dict(status)


def test_each_place_is_on_its_host_and_links_are_as_they_are(daemon: DaemonProcess, three_raylets: ThreeHosts) -> None:
    for number, node in three_raylets.nodes.items():
        status = status_of(daemon, f"far{number}")
        assert status["host"] == node.address
        assert status["link"]["there_latency_s"] > (DELAY_S if number > 1 else 0)
    # Where other load stretches the small messages, the large ones look quick; links are measured again all the time.
    for number in (2, 3):
        until(
            lambda number=number: status_of(daemon, f"far{number}")["link"]["back_bytes_per_s"] < RATE / 8,  # type: ignore[misc]
            f"the rate of the link to host {number}",
        )


@pytest.mark.parametrize("number", [1, 3], ids=["beside", "behind-a-link"])
def test_a_host_dies_and_another_takes_its_place(number: int, daemon: DaemonProcess, three_raylets: ThreeHosts) -> None:
    place = f"far{number}"
    with Load(daemon.endpoint, 0, pause_s=PAUSE_S) as first, Load(daemon.endpoint, 1, pause_s=PAUSE_S) as second:
        for round_ in (1, 2):
            first.wait_for_answers(20)
            three_raylets.nodes[number].kill()
            for load, sent in ((first, first.sent), (second, second.sent)):
                load.wait_until_answered(sent)
            until(lambda round_=round_: len(events(daemon, "host_lost", place)) == round_, "its loss")  # type: ignore[misc]
            until(lambda: place not in planned(daemon), "a plan without it")
            assert status_of(daemon, place)["state"] != "up"
            first.wait_for_answers(20)
            node = three_raylets.add(number)
            pids = daemon.wait_for_workers()
            assert pids.keys() == {"here", "far1", "far2", "far3"}
            assert status_of(daemon, place)["host"] == node.address
            came = events(daemon, "host_came", place)
            assert [event["host"] for event in came] == round_ * [node.address]
            set_plan_again(daemon)
            first.wait_for_answers(20)
    assert_kept(first, second)
    others = {"far1", "far2", "far3"} - {place}
    assert [events(daemon, "host_lost", other) for other in sorted(others)] == [[], []]


def set_plan_again(daemon: DaemonProcess) -> None:
    """Replanning for the place that is back may be under way."""
    until(lambda: daemon.control.set_plan(PLAN)["outcome"] == "live", "the plan")
    assert planned(daemon) == {"here", "far1", "far2", "far3"}


def test_a_link_falls_silent(daemon: DaemonProcess, three_raylets: ThreeHosts) -> None:
    """Nobody closes a connection: packets do not arrive any more. The relay counts as one that hangs."""
    hangs = len(events(daemon, "worker_gone", "far2"))
    with Load(daemon.endpoint, 0, pause_s=PAUSE_S) as first, Load(daemon.endpoint, 1, pause_s=PAUSE_S) as second:
        first.wait_for_answers(20)
        three_raylets.link.set(RATE, SILENT_S, [0])
        until(lambda: len(events(daemon, "worker_gone", "far2")) > hangs, "the relay's end")
        for load, sent in ((first, first.sent), (second, second.sent)):
            load.wait_until_answered(sent)
        three_raylets.link.set(RATE, DELAY_S, [0])
        daemon.wait_for_workers()
        set_plan_again(daemon)
        first.wait_for_answers(20)
    assert_kept(first, second)
