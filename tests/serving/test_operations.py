"""Every operation that the wire's page lists, asked of a real daemon."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from shisha_rt import __version__
from shisha_rt.client import (
    Client,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
)
from shisha_rt.protocol.header import AnswerHead, decode_head, encode_operation
from tests.pages.shown import ROOT
from tests.serving.daemon_process import PATIENCE_MS, DaemonProcess, machine_file
from tests.serving.identity_model import LAYERS, NAME, SHAPE, frame_of
from tests.serving.load import Load, assert_kept
from tests.serving.page import scrape, values
from tests.serving.tuned import tuner
from tests.waiting import PATIENCE_S, until

TENSOR = {"datatype": "FP32", "shape": list(SHAPE)}
TWO_STAGES = [{"first": 0, "last": 3, "places": ["slow0"]}, {"first": 4, "last": LAYERS - 1, "places": ["fast0"]}]


@pytest.fixture(scope="module")
def daemon(identity: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """One for all: after each test both places are up and at full speed, whatever the plan is."""
    folder = tmp_path_factory.mktemp("operations")
    with DaemonProcess(folder, identity, "--machine", machine_file(folder, ["fast0", "slow0"])) as running:
        yield running


@pytest.fixture
def client(daemon: DaemonProcess) -> Client:
    return daemon.control


def test_about_the_server_and_its_model(client: Client, daemon: DaemonProcess) -> None:
    assert client.call("server_live") == {"live": True}
    assert client.call("server_ready") == {"ready": True}
    server = client.call("server_metadata")
    assert (server["name"], server["version"]) == ("shisha-rt", __version__)
    assert "binary_tensor_data" in server["extensions"]
    assert server["max_in_flight"] > 0
    assert server["max_message_bytes"] > frame_of(0).nbytes
    assert client.call("model_ready") == {"name": NAME, "ready": True}
    assert client.call("model_ready", model_name=NAME) == {"name": NAME, "ready": True}
    model = client.call("model_metadata")
    assert model["name"] == NAME
    assert model["inputs"] == [{"name": "x", **TENSOR}]
    assert model["outputs"] == [{"name": "y", **TENSOR}]
    (before,) = client.call("model_statistics")["model_stats"]
    client.infer(frame_of(1))
    (statistics,) = client.call("model_statistics")["model_stats"]
    assert (statistics["name"], statistics["inference_count"]) == (NAME, before["inference_count"] + 1)
    with pytest.raises(NotFound):
        client.call("model_ready", model_name="another")
    with Client(daemon.endpoint, timeout_s=PATIENCE_S) as another:
        assert another.call("server_metadata")["instance"] == server["instance"]


def test_status(client: Client, daemon: DaemonProcess) -> None:
    daemon.wait_for_workers()
    answered = client.status()["frames"]["answered"].get("OK", 0)
    client.infer(frame_of(1))
    status = client.status()
    assert (status["state"], status["pid"], status["fault"]) == ("serving", daemon.pid, None)
    assert status["instance"] == client.call("server_metadata")["instance"]
    assert (status["model"]["name"], status["model"]["layers"]) == (NAME, LAYERS)
    assert status["plan"]["epoch"] == client.plan()["epoch"]
    assert {place["name"]: place["state"] for place in status["places"]} == {"fast0": "up", "slow0": "up"}
    assert all(place["available"] and not place["emulated"] for place in status["places"])
    assert status["frames"]["answered"] == {"OK": answered + 1}
    assert status["frames"]["slots_free"] == status["frames"]["slots"]


def quoted(text: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", text))


def keys_within(value: object) -> set[str]:
    if isinstance(value, dict):
        return set(value).union(*map(keys_within, value.values()))
    return set().union(*map(keys_within, value)) if isinstance(value, list) else set()


def test_the_page_of_the_wire_has_every_field(client: Client, daemon: DaemonProcess) -> None:
    """A row for each field of `status`, with all that is in it; the stages below; examples of what else has many."""
    daemon.wait_for_workers()
    client.infer(frame_of(1))
    page = (ROOT / "docs" / "wire.md").read_text(encoding="utf-8")
    section = page.partition("\n### The status\n")[2].partition("\n`model_statistics` counts")[0]
    rows = dict(re.findall(r"^\| (`.+?) \| (.+) \|$", section, re.MULTILINE))
    within = {name: quoted(text) for names, text in rows.items() for name in quoted(names)}
    status, plan = client.status(), client.plan()
    assert within.keys() == status.keys()
    stage = status.pop("plan")["stages"][0]
    assert set(stage) - set(plan["stages"][0]) - quoted(section[section.index("\nEach of") :]) == set()
    del status["tuner"], status["frames"]["answered"], status["model"]["shapes"][0]["inputs"]
    assert {name: missing for name in status if (missing := keys_within(status[name]) - within[name])} == {}
    (example,) = re.findall(r"^(\{\"tuner\":\{.*?\}\})$", page, re.MULTILINE | re.DOTALL)
    assert json.loads(example).keys() == {"tuner"}
    assert json.loads(example)["tuner"].keys() == tuner(client).keys()
    (example,) = re.findall(r'"op":"server_metadata"\}` \| `(\{"name":"shisha-rt","version".*?\})`', page)
    assert json.loads(example).keys() == client.call("server_metadata").keys()


def test_events_are_polled(client: Client) -> None:
    everything = client.events()
    kinds = [event["kind"] for event in everything["events"]]
    assert {"worker_started", "plan_preparing", "plan_live", "ready"} <= set(kinds)
    assert [event["event"] for event in everything["events"]] == list(range(len(kinds)))
    assert everything["next"] == len(kinds)
    first = client.events(limit=2)
    assert first == {"events": everything["events"][:2], "next": 2}
    assert client.events(since=2, limit=1)["events"] == everything["events"][2:3]
    assert client.events(since=everything["next"]) == {"events": [], "next": everything["next"]}
    epoch = client.set_plan(TWO_STAGES)["epoch"]
    news = client.events(since=everything["next"])["events"]
    assert ("plan_live", epoch) in [(event["kind"], event.get("epoch")) for event in news]
    for wrong in ({"since": -1}, {"limit": 0}, {"limit": 10_001}):
        with pytest.raises(InvalidArgument):
            client.call("events", **wrong)


def test_plan_get_and_plan_set(client: Client) -> None:
    before = client.plan()
    assert before["stages"][0].keys() == {"first", "last", "places", "service_s"}
    settled = client.set_plan(TWO_STAGES)
    assert settled["outcome"] == "live"
    assert settled["epoch"] > before["epoch"]
    assert isinstance(settled["reason"], str)
    client.infer(frame_of(5))
    after = client.plan()
    assert after["epoch"] == settled["epoch"]
    assert [{key: stage[key] for key in ("first", "last", "places")} for stage in after["stages"]] == TWO_STAGES
    again = client.set_plan(after["stages"])  # as it was printed, with times that are ignored
    assert (again["outcome"], again["epoch"]) == ("live", after["epoch"] + 1)


@pytest.mark.parametrize(
    "stages",
    [
        [{"first": 0, "last": LAYERS - 2, "places": ["fast0"]}],
        [{"first": 0, "last": LAYERS - 1, "places": ["nowhere"]}],
        [{"first": 0, "last": LAYERS - 1, "places": ["fast0", "fast0"]}],
        [{"first": 0, "last": 3, "places": ["fast0", "slow0"]}, {"first": 4, "last": LAYERS - 1, "places": ["fast0"]}],
        [{"first": 0, "last": 3, "places": ["fast0"]}, {"first": 4, "last": 8, "places": ["slow0"], "after": []}],
        [{"first": 0, "last": 3, "places": ["fast0"], "after": [1]}, {"first": 4, "last": 8, "places": ["slow0"]}],
        [{"first": 0, "last": 3, "places": ["fast0"]}, {"first": 3, "last": LAYERS - 1, "places": ["slow0"]}],
    ],
)
def test_a_plan_that_cannot_run_is_refused(client: Client, stages: list[dict[str, Any]]) -> None:
    before = client.plan()["epoch"]
    settled = client.set_plan(stages)
    assert (settled["epoch"], settled["outcome"]) == (None, "refused")
    assert "\n" not in settled["reason"]
    assert client.plan()["epoch"] == before


@pytest.mark.parametrize("stages", [[], "all", [{"first": 0}], [{"first": -1, "last": 0, "places": ["fast0"]}]])
def test_what_is_no_plan_is_an_error(client: Client, stages: Any) -> None:
    with pytest.raises(InvalidArgument):
        client.call("plan_set", stages=stages)


def test_a_place_goes_down_and_comes_up_again(client: Client, daemon: DaemonProcess) -> None:
    """Under load: the daemon makes a new plan of its own, and nothing is lost."""
    pids = daemon.wait_for_workers()
    with Load(daemon.endpoint) as load:
        load.wait_for_answers(20)
        assert client.call("place_set", place="slow0", down=True) == {"place": "slow0", "state": "down"}
        until(lambda: _places(client) == {"fast0"}, "a plan without the place")
        until(lambda: daemon.worker_pids()["slow0"] is None, "the end of its worker")
        ends = [e for e in client.events(limit=10_000)["events"] if e["kind"] in ("worker_killed", "worker_gone")]
        assert [(end["place"], end["dismissed"]) for end in ends[-2:]] == [("slow0", True)] * 2
        load.wait_for_answers(20)
        refused = client.set_plan(TWO_STAGES)
        assert (refused["outcome"], "slow0" in refused["reason"]) == ("refused", True)
        with pytest.raises(FailedPrecondition):
            client.call("place_set", place="fast0", down=True)
        assert client.call("place_set", place="slow0", up=True) == {"place": "slow0", "state": "up"}
        until(lambda: _places(client) == {"fast0", "slow0"}, "a plan with it again")
        load.wait_for_answers(20)
    assert_kept(load)
    assert daemon.wait_for_workers()["fast0"] == pids["fast0"]


def test_a_plan_of_the_users_stays_when_a_place_comes_up(client: Client, daemon: DaemonProcess) -> None:
    client.call("place_set", place="slow0", down=True)
    mine = client.set_plan([{"first": 0, "last": LAYERS - 1, "places": ["fast0"]}])
    client.call("place_set", place="slow0", up=True)
    daemon.wait_for_workers()
    assert client.plan()["epoch"] == mine["epoch"]


def test_place_set_in_vain(client: Client) -> None:
    with pytest.raises(NotFound):
        client.call("place_set", place="nowhere", down=True)
    with pytest.raises(NotFound, match="nowhere"):
        client.call("crowded", places=["slow0", "nowhere"])
    assert client.call("crowded", places=["slow0"]) == client.call("crowded", places=[]) == {}
    for arguments in ({}, {"up": True, "down": True}, {"speed": 0}, {"speed": -1}):
        with pytest.raises(InvalidArgument):
            client.call("place_set", place="slow0", **arguments)


def test_a_place_is_slowed_down(client: Client, daemon: DaemonProcess) -> None:
    with Load(daemon.endpoint) as load:
        load.wait_for_answers(10)
        assert client.call("place_set", place="slow0", speed=0.5) == {"place": "slow0", "speed": 0.5}
        load.wait_for_answers(10)
    assert_kept(load)
    slowed = {place["name"]: (place["speed"], place["emulated"]) for place in client.status()["places"]}
    assert slowed == {"fast0": (1, False), "slow0": (0.5, True)}
    with pytest.raises(InvalidArgument):
        client.call("place_set", place="slow0", speed=2)
    client.call("place_set", place="slow0", speed=1)
    assert not any(place["emulated"] for place in client.status()["places"])


def test_a_daemon_without_a_tuner_says_so(client: Client) -> None:
    assert client.call("tuner_get")["tuner"]["state"] == "off"
    with pytest.raises(FailedPrecondition):
        client.call("tuner_set", pause=True)
    for wrong in ({}, {"pause": True, "resume": True}, {"alpha": 0}):
        with pytest.raises(InvalidArgument):
            client.call("tuner_set", **wrong)


def test_cancel_of_nothing(client: Client) -> None:
    assert client.cancel("nothing") is False


def _places(client: Client) -> set[str]:
    return {place for stage in client.plan()["stages"] for place in stage["places"]}


def test_a_released_place_has_no_thread_of_the_daemon_left(client: Client, daemon: DaemonProcess) -> None:
    """Nor of a team that a worker keeps for its plan to come back; and its core is used again when it is taken back."""
    cores = {place["name"]: place["cores"][0] for place in client.status()["places"]}
    if cores["fast0"] == cores["slow0"]:
        pytest.skip("needs two cores")
    team = [{"first": 0, "last": LAYERS - 1, "places": [["fast0", "slow0"]]}]
    for stages in (team, TWO_STAGES):
        assert client.set_plan(stages)["outcome"] == "live"
    every = _masks(daemon)
    assert any(mask == {cores["slow0"]} for mask in every.values()), "the team's threads are pinned"
    with Load(daemon.endpoint) as load:
        load.wait_for_answers(20)
        assert client.call("place_set", place="slow0", down=True) == {"place": "slow0", "state": "down"}
        left = {task for task, mask in _masks(daemon).items() if cores["slow0"] in mask}
        assert left == set()
        load.wait_for_answers(20)
        client.call("place_set", place="slow0", up=True)
        until(lambda: _places(client) == {"fast0", "slow0"}, "a plan with it again")
        load.wait_for_answers(20)
    assert_kept(load)
    assert cores["slow0"] in os.sched_getaffinity(daemon.pid)


def _masks(daemon: DaemonProcess) -> dict[int, set[int]]:
    """Where each thread of the daemon and its processes may run."""
    masks = {}
    for process in daemon.processes():
        for thread in process.threads():
            with contextlib.suppress(OSError):
                masks[thread.id] = os.sched_getaffinity(thread.id)
    return masks


def test_places_without_devices_have_none_to_slow(client: Client) -> None:
    with pytest.raises(NotFound, match=r"'fast0' has no 'special'; .* it has no"):
        client.call("place_set", place="fast0", device="special", speed=0.5)
    status = client.status()
    assert all(place["devices"] == [] for place in status["places"])
    assert all(stage["placement"] is None for stage in status["plan"]["stages"])


def test_without_a_tuner(client: Client, daemon: DaemonProcess) -> None:
    assert daemon.running("stages.worker")
    assert not daemon.running("shisha_rt.daemon.children.tuner")
    assert tuner(client)["state"] == "off"
    for wanted in ({"pause": True}, {"resume": True}, {"restart": True}, {"alpha": 3}):
        with pytest.raises(FailedPrecondition, match="strategy seed"):
            client.call("tuner_set", **wanted)
    shown = values(scrape(daemon.metrics), "shisha_tuner_state", "shisha_tuner_state")
    assert {state for state, is_so in shown.items() if is_so} == {"off"}


def test_who_comes_after_clients_were_sent_away_is_sent_away_too(client: Client, daemon: DaemonProcess) -> None:
    """Else a client that had just been led here would never hear that another takes over, and lose its last frame."""
    client.call("send_away")
    late: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
    with contextlib.closing(late):
        late.linger = 0
        late.connect(daemon.endpoint)
        late.send(encode_operation("server_metadata", "asked"))
        assert late.poll(PATIENCE_MS)
        heads = [decode_head(late.recv_multipart()[0]) for _ in range(2)]
    assert [(head.id, head.moved) for head in heads if isinstance(head, AnswerHead)] == [(None, True), ("asked", False)]
    assert (client.infer(frame_of(2)).output == frame_of(2)).all(), "whoever was led nowhere stays"
