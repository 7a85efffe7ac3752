"""Workers are killed and stopped at every bad moment: each accepted frame is answered once, right and in order.

A death is only forgiven a frame once, and a place five times in 30 seconds; so between two deaths the frames that
were in flight are waited for, and `place_set up` wipes a place's slate clean where a test needs more.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from shisha_rt.client import Client, Internal
from tests.serving.daemon_process import DaemonProcess, machine_file
from tests.serving.identity_model import LAYERS, frame_of, write_identity_model
from tests.serving.load import PAUSE_S, Load, assert_kept
from tests.serving.page import standing
from tests.waiting import PATIENCE_S, until

PLACES: Final = ("p0", "p1", "p2")
PLAN: Final = [
    {"first": 0, "last": 2, "places": ["p0"]},
    {"first": 3, "last": 5, "places": ["p1"]},
    {"first": 6, "last": LAYERS - 1, "places": ["p2"]},
]
OTHER_PLAN: Final = [
    {"first": 0, "last": 3, "places": ["p2"]},
    {"first": 4, "last": 5, "places": ["p0"]},
    {"first": 6, "last": LAYERS - 1, "places": ["p1"]},
]
KILLED: Final = "killed by signal 9 (SIGKILL)"
ROUNDS: Final = [2, pytest.param(12, marks=pytest.mark.long)]
SEED: Final = 20231


@pytest.fixture(scope="module")
def running(identity: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    folder = tmp_path_factory.mktemp("deaths")
    with DaemonProcess(folder, identity, "--machine", machine_file(folder, PLACES)) as process:
        yield process


@pytest.fixture
def daemon(running: DaemonProcess) -> DaemonProcess:
    """As good as new, but for what it remembers."""
    for place in PLACES:
        forgive(running, place)
    running.wait_for_workers()
    assert running.control.set_plan(PLAN)["outcome"] == "live"
    return running


@pytest.fixture
def since(daemon: DaemonProcess) -> int:
    """The number of the first event of the test's own."""
    return int(daemon.control.events(0, 10_000)["next"])


@pytest.fixture
def loads(daemon: DaemonProcess) -> Iterator[list[Load]]:
    line = daemon.local_socket
    with (
        Load(daemon.endpoint, 0, pause_s=PAUSE_S) as first,
        Load(daemon.endpoint, 1, pause_s=PAUSE_S, line=line) as second,
    ):
        yield [first, second]
    assert_kept(first, second)


def everything_sent_is_answered(loads: list[Load]) -> None:
    for load, sent in [(load, load.sent) for load in loads]:
        load.wait_until_answered(sent)


def forgive(daemon: DaemonProcess, place: str) -> None:
    daemon.control.call("place_set", place=place, up=True)


def deaths(daemon: DaemonProcess, since: int, reason: str) -> list[str]:
    """The places of the workers that died so, in order. On a starved machine some may have died otherwise."""
    events = daemon.control.events(since, 10_000)["events"]
    return [event["place"] for event in events if event["kind"] == "worker_gone" and reason in event["reason"]]


@pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.long)])
def test_kill_each_worker_at_work(daemon: DaemonProcess, since: int, loads: list[Load], times: int) -> None:
    board, replayed = daemon.board(len(PLACES)), daemon.control.status()["frames"]["replayed"]
    for place, name in enumerate(PLACES):
        for _ in range(times):
            pid = daemon.wait_for_workers()[name]
            board.wait_until_running(place)
            daemon.kill_worker(pid)
            everything_sent_is_answered(loads)
    assert deaths(daemon, since, KILLED) == [name for name in PLACES for _ in range(times)]
    assert daemon.control.status()["frames"]["replayed"] > replayed


@pytest.mark.parametrize("places", [PLACES[1:2], pytest.param(PLACES, marks=pytest.mark.long)])
def test_stop_each_worker_at_work(daemon: DaemonProcess, since: int, loads: list[Load], places: Sequence[str]) -> None:
    """A stopped worker is not presumed dead: after two seconds of silence it is killed, and only then replaced."""
    board = daemon.board(len(PLACES))
    for name in places:
        pid = daemon.wait_for_workers()[name]
        board.wait_until_running(PLACES.index(name))
        os.kill(pid, signal.SIGSTOP)
        daemon.wait_for_deaths(pid)
        everything_sent_is_answered(loads)
    silent = deaths(daemon, since, "no sign of life")
    assert [name for name in places if name in silent] == list(places)


def test_stop_all_workers_at_once(daemon: DaemonProcess, since: int, loads: list[Load]) -> None:
    pids = daemon.wait_for_workers()
    for pid in pids.values():
        os.kill(pid, signal.SIGSTOP)
    daemon.wait_for_deaths(*pids.values())
    everything_sent_is_answered(loads)
    assert {*deaths(daemon, since, "no sign of life")} == {*PLACES}


@pytest.mark.parametrize("rounds", ROUNDS)
def test_kill_workers_at_random_moments(daemon: DaemonProcess, since: int, loads: list[Load], rounds: int) -> None:
    """In the middle of a write to a slot, too: whatever was half written is computed again before anyone reads it."""
    rng = random.Random(SEED)
    kills = 0
    for _ in range(rounds):
        names = rng.sample(PLACES, rng.randint(1, len(PLACES)))
        pids = daemon.wait_for_workers()
        loads[0].wait_for_answers(rng.randrange(40))
        daemon.kill_worker(*(pids[name] for name in names))
        everything_sent_is_answered(loads)
        for name in names:
            forgive(daemon, name)
        kills += len(names)
    assert len(deaths(daemon, since, KILLED)) == kills
    print(f"{kills} kills, {sum(load.answered for load in loads)} frames")


def test_kill_each_worker_in_preparation(daemon: DaemonProcess, loads: list[Load]) -> None:
    """A stopped worker cannot have prepared anything, so its death always drops the plan."""
    for name in PLACES:
        pid = daemon.wait_for_workers()[name]
        assert daemon.control.set_plan(PLAN)["outcome"] == "live"  # after plans for a worker that was long in coming
        everything_sent_is_answered(loads)  # no frame of an earlier plan keeps the next one waiting
        before = daemon.control.plan()["epoch"]
        os.kill(pid, signal.SIGSTOP)
        proposal = Proposal(daemon.endpoint, OTHER_PLAN)
        until(lambda: daemon.control.status()["preparing"], "the preparation")
        daemon.kill_worker(pid)
        answer = proposal.settled()
        assert answer["outcome"] == "dropped"
        assert answer["epoch"] > before
        assert name in answer["reason"]
        assert "SIGKILL" in answer["reason"]
        assert daemon.control.plan()["epoch"] != answer["epoch"]
        everything_sent_is_answered(loads)


def test_stop_a_worker_in_preparation(daemon: DaemonProcess, loads: list[Load]) -> None:
    before = daemon.control.plan()["epoch"]
    os.kill(daemon.wait_for_workers()["p1"], signal.SIGSTOP)
    answer = daemon.control.set_plan(OTHER_PLAN)
    assert answer["outcome"] == "dropped"
    assert answer["epoch"] > before
    assert daemon.control.plan()["epoch"] != answer["epoch"]
    everything_sent_is_answered(loads)
    daemon.wait_for_workers()  # the frames may have been answered without a place whose worker was long in coming
    assert daemon.control.set_plan(OTHER_PLAN)["outcome"] == "live"


@pytest.mark.parametrize("rounds", ROUNDS)
def test_kill_workers_while_plans_change(daemon: DaemonProcess, loads: list[Load], rounds: int) -> None:
    """Death and preparation race: either may win, and the proposal is settled once in both cases."""
    rng = random.Random(SEED)
    outcomes: Counter[str] = Counter()
    for i in range(rounds):
        name = rng.choice(PLACES)
        pid = daemon.wait_for_workers()[name]
        proposal = Proposal(daemon.endpoint, OTHER_PLAN if i % 2 else PLAN)
        loads[0].wait_for_answers(rng.randrange(4))
        daemon.kill_worker(pid)
        outcomes[proposal.settled()["outcome"]] += 1
        everything_sent_is_answered(loads)
        forgive(daemon, name)
    assert outcomes["live"] + outcomes["dropped"] == rounds
    print(f"{dict(outcomes)}, {sum(load.answered for load in loads)} frames")


def test_a_place_that_keeps_dying_is_given_up(daemon: DaemonProcess, since: int, loads: list[Load]) -> None:
    killed: set[int] = set()

    def given_up() -> bool:
        status = next(place for place in daemon.control.status()["places"] if place["name"] == "p1")
        if status["pid"] is not None and status["pid"] not in killed:
            os.kill(status["pid"], signal.SIGKILL)
            killed.add(status["pid"])
        return bool(status["given_up"])

    until(given_up, "giving up the place")
    until(lambda: "p1" not in _places(daemon.control.plan()), "a plan without the place")
    everything_sent_is_answered(loads)
    assert len(killed) == 6
    status = daemon.control.status()
    place = next(place for place in status["places"] if place["name"] == "p1")
    assert (place["state"], place["given_up"], place["pid"]) == ("out", True, None)
    assert "SIGKILL" in place["last_error"]
    until(lambda: standing(daemon.metrics)["p1"] == "given_up", "the same on the page of metrics")
    events = daemon.control.events(since, 10_000)["events"]
    reasons = {event["kind"]: event["reason"] for event in events if event["kind"] in ("place_given_up", "replan")}
    assert "6 deaths" in reasons["place_given_up"]
    assert "SIGKILL" in reasons["place_given_up"]
    assert "p1" in reasons["replan"]
    refused = daemon.control.set_plan(PLAN)
    assert (refused["outcome"], "p1" in refused["reason"]) == ("refused", True)
    forgive(daemon, "p1")
    daemon.wait_for_workers()
    assert daemon.control.set_plan(PLAN)["outcome"] == "live"
    everything_sent_is_answered(loads)
    until(lambda: set(standing(daemon.metrics).values()) == {"up"}, "all is well again")


def test_the_second_death_is_the_frames_own_error(tmp_path: Path) -> None:
    """A frame that takes its worker down twice is answered INTERNAL; the frames around it never notice.

    A frame takes long enough here to be found running, and killed, before it is done, by a test that gets no core, too.
    """
    shape = (1, 128, 48, 48)
    model = write_identity_model(tmp_path, channels=128, size=48, name="slow")
    with DaemonProcess(tmp_path, model, "--machine", machine_file(tmp_path, ["only"])) as daemon:
        daemon.control.call("place_set", place="only", speed=0.02)
        board = daemon.board(1)
        outcomes: list[BaseException | None] = []

        def poison() -> None:
            with Client(daemon.endpoint, timeout_s=PATIENCE_S) as client:
                while not outcomes:  # one may be done before it has been seen to run
                    try:
                        client.infer(frame_of(1, shape))
                    except Internal as error:
                        outcomes.append(error)

        pid = daemon.wait_for_workers()["only"]
        sender = threading.Thread(target=poison)
        sender.start()
        poisoned = board.wait_until_running(0)
        daemon.kill_worker(pid)
        with Load(daemon.endpoint, model_name="slow", shape=shape, streams=1, depth=2) as load:
            pid = daemon.wait_for_workers()["only"]
            until(lambda: board.running(0) == poisoned, "its turn again", every_s=0.001)
            daemon.kill_worker(pid)
            daemon.control.call("place_set", place="only", speed=1.0)
            sender.join(PATIENCE_S)
            load.wait_for_answers(2)
        assert_kept(load)
        (error,) = outcomes
        assert isinstance(error, Internal)
        assert "died 2 times" in error.message
        assert "SIGKILL" in error.message


class Proposal(threading.Thread):
    """`plan_set` on a connection of its own, which waits while the test goes on."""

    def __init__(self, endpoint: str, stages: list[dict[str, Any]]) -> None:
        super().__init__(daemon=True)
        self._endpoint = endpoint
        self._stages = stages
        self._answer: dict[str, Any] | None = None
        self.start()

    def run(self) -> None:
        with Client(self._endpoint, timeout_s=PATIENCE_S) as client:
            self._answer = client.set_plan(self._stages)

    def settled(self) -> dict[str, Any]:
        self.join(PATIENCE_S)
        assert self._answer is not None, "the proposal was never settled"
        return self._answer


def _places(plan: dict[str, Any]) -> set[str]:
    return {place for stage in plan["stages"] for place in stage["places"]}
