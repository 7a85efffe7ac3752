"""What the host process takes from its daemons' answers."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from shisha_rt.core import dealer as de
from shisha_rt.daemon.host_share import HostShare
from shisha_rt.daemon.loop.poller import Poller
from shisha_rt.daemon.settings import Settings
from shisha_rt.machine.host.leases import CoreLeases
from shisha_rt.machine.machine import Machine, Memory, Place
from shisha_rt.repository.entries import ModelEntry, identity_of
from shisha_rt.repository.fleet import Fleet, ServedModel
from shisha_rt.repository.hosted import DaemonRecord, StartOptions, write_daemon_record
from shisha_rt.repository.model_daemon import DaemonEnded, Home, ModelDaemon, Then

ENTRY = ModelEntry("net", "1", Settings("net.onnx"), de.Terms())


MACHINE = Machine("two", "", (Memory("ram"),), tuple(Place(name, (0,), 1, 1, 1.0, 1, "ram") for name in ("a", "b")))


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    poller, context = Poller(), zmq.Context[zmq.Socket[bytes]]()
    yield Home(tmp_path, poller, context)
    poller.close()
    context.term()


@pytest.fixture
def fleet(home: Home, tmp_path: Path) -> Iterator[Fleet]:
    share = HostShare(MACHINE, CoreLeases(tmp_path / "leases"), is_dealt=True)
    yield Fleet(share, home, StartOptions((logging.WARNING, ""), fresh=False), lambda: None)
    share.close()


def status(busy_s: float = 0.0, *places: dict[str, Any]) -> dict[str, Any]:
    frames = {"busy_s": busy_s, "answered": {}, "in_flight": 0}
    return {"status": {"frames": frames, "places": places, "plan": {"stages": []}}}


def test_what_a_daemon_says_after_another_has_taken_over_is_not_counted(fleet: Fleet, home: Home) -> None:
    """The load since then would be less than none."""
    before, after = (ModelDaemon(ENTRY, number, home) for number in (1, 2))
    before.ready = after.ready = True
    fleet.models["net"] = served = ServedModel(ENTRY, daemon=after)
    fleet.deal(de.ModelFound("net", de.Terms(), ("a",)))
    fleet._heard(served, before, status(9.0))
    fleet._note_statistics(served, before, {"model_stats": [{}]})
    assert (served.seen, served.said, served.statistics) == (None, {}, ())
    fleet._heard(served, after, status(1.0))
    assert served.seen is not None
    assert served.seen.busy_s == 1.0


@pytest.mark.parametrize("given_up", [False, True])
def test_a_place_that_was_taken_down_is_dealt_to_others_without_a_warning(
    fleet: Fleet, home: Home, caplog: pytest.LogCaptureFixture, given_up: bool
) -> None:
    daemon = ModelDaemon(ENTRY, 1, home)
    daemon.ready = True
    fleet.models["net"] = served = ServedModel(ENTRY, daemon=daemon)
    fleet.deal(de.ModelFound("net", de.Terms(), ("a", "b")))
    place = {"name": "b", "available": False, "given_up": given_up, "state": "out", "last_error": None}
    fleet._heard(served, daemon, status(0.0, place))
    assert fleet.staying_places("net") == ("a",)
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * given_up


def test_what_a_daemon_that_stood_still_answers_at_once_is_one_look(
    fleet: Fleet, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but the first of the answers said that it computed nothing, and its place went to another model."""
    daemon = ModelDaemon(ENTRY, 1, home)
    daemon.ready = True
    fleet.models["net"] = served = ServedModel(ENTRY, daemon=daemon)
    fleet.deal(de.ModelFound("net", de.Terms(), ("a", "b")))
    looks = list[de.LoadSeen]()
    monkeypatch.setattr(fleet, "deal", lambda event: looks.append(event) if isinstance(event, de.LoadSeen) else None)
    now_s = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    fleet._heard(served, daemon, status(1.0))
    now_s = 104.0
    for _ in range(16):
        fleet._heard(served, daemon, status(5.0))
    assert [look.busy_places for look in looks] == [1.0]


def test_a_daemon_begins_on_its_places_and_leases_cores_where_the_host_process_does(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started = list[tuple[frozenset[str], Path | None]]()
    monkeypatch.setattr(ModelDaemon, "start", lambda _, machine, leases, __: started.append((machine.spare, leases)))
    fleet.started(ENTRY, ("a",))
    monkeypatch.setattr(fleet._share.leases, "fault", "no folder for them")
    fleet.started(ENTRY, ("a", "b"))
    assert started == [(frozenset({"b"}), tmp_path / "leases"), (frozenset(), None)]


def test_daemons_may_hold_the_cores_that_the_host_process_has_leased(fleet: Fleet, tmp_path: Path) -> None:
    """They outlive it."""
    fleet._share.leases.take(0)
    fleet.look_at_host(time.monotonic(), lambda: ((), ()))
    daemons = CoreLeases(tmp_path / "leases")
    assert daemons.hold((0,)) == frozenset()
    daemons.close()


def test_a_daemon_that_ends_amid_a_move_has_given_the_place_back(fleet: Fleet, home: Home) -> None:
    daemon = ModelDaemon(ENTRY, 1, home)
    fleet.models["net"] = served = ServedModel(ENTRY, daemon=daemon)
    fleet.deal(de.ModelFound("net", de.Terms(), ("a", "b")))
    fleet._dealer.models["net"].releasing.add("b")
    fleet.ended(served, DaemonEnded(daemon, "killed by signal 9"), time.monotonic())
    assert (fleet.places_of("net"), fleet.staying_places("net")) == (["a"], ("a",))


def test_of_a_daemon_that_has_ended_nothing_is_left_and_another_is_started(
    fleet: Fleet, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process id is that of another process now."""
    monkeypatch.setattr(ModelDaemon, "start", lambda *_: None)
    record = home.folder / "7.json"
    write_daemon_record(record, DaemonRecord(identity_of(ENTRY), 7, os.getpid(), ""))
    fleet.begin([ENTRY])
    assert not record.exists()
    daemon = fleet.models["net"].daemon
    assert daemon is not None
    assert (daemon.number, fleet.places_of("net")) == (8, ["a"])


@pytest.mark.parametrize("content", [None, b"", b"\0\xff", b"{}", b'{"told":{},"number":7,"pid":-1,"metrics":""}'])
def test_a_record_that_cannot_be_read_is_left_alone_and_its_number_not_used(
    fleet: Fleet, home: Home, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, content: bytes | None
) -> None:
    monkeypatch.setattr(ModelDaemon, "start", lambda *_: None)
    record = home.folder / "7.json"
    record.mkdir() if content is None else record.write_bytes(content)
    fleet.begin([ENTRY])
    assert record.exists()
    assert str(record) in caplog.text
    daemon = fleet.models["net"].daemon
    assert daemon is not None
    assert daemon.number == 8


def test_a_daemon_gives_up_a_place_that_it_was_not_dealt(
    fleet: Fleet, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a move whose end it did not hear of."""
    asked = list[tuple[str, dict[str, object]]]()
    monkeypatch.setattr(ModelDaemon, "ask", lambda _, op, __, **arguments: asked.append((op, arguments)))
    daemon = ModelDaemon(ENTRY, 1, home)
    daemon.ready = True
    fleet.models["net"] = served = ServedModel(ENTRY, daemon=daemon)
    fleet.deal(de.ModelFound("net", de.Terms(most=1), ("a",)))
    places = [{"name": name, "available": True, "given_up": False, "state": "up"} for name in ("a", "b")]
    fleet._heard(served, daemon, status(0.0, *places))
    assert [arguments for op, arguments in asked if op == "place_set"] == [{"place": "b", "down": True}]


def test_places_are_moved_once_their_daemon_says_so(fleet: Fleet, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[tuple[Then, dict[str, object]]]()
    monkeypatch.setattr(ModelDaemon, "ask", lambda _, __, then, **arguments: asked.append((then, arguments)))
    daemon = ModelDaemon(ENTRY, 1, home)
    daemon.ready = True
    fleet.models["net"] = ServedModel(ENTRY, daemon=daemon)
    fleet.deal(de.ModelFound("net", de.Terms(most=1), ("a",)))
    dealt = fleet._dealer.models["net"]
    dealt.taking.add("b")
    for answer, places in (({"error": {"message": "not now"}}, ["a"]), ({"state": "up"}, ["a", "b"])):
        fleet._move("net", "b", de.PlaceTaken("net", "b"))
        then, arguments = asked.pop()
        then(answer)
        assert (arguments, fleet.places_of("net")) == ({"place": "b", "up": True}, places)
    dealt.releasing.add("a")
    fleet._move("net", "a", de.PlaceGivenBack("net", "a"))
    then, arguments = asked.pop()
    then({"state": "down"})
    assert (arguments, fleet.places_of("net")) == ({"place": "a", "down": True}, ["b"])


@pytest.mark.parametrize(("refused", "delays_s"), [(False, [0.5, 1.0, 2.0, 4.0]), (True, [])])
def test_a_model_whose_daemon_dies_again_and_again_is_given_up(
    fleet: Fleet, home: Home, refused: bool, delays_s: list[float]
) -> None:
    """It is started later each time; at once it is given up if the daemon says itself that it cannot serve it."""
    fleet.models["net"] = served = ServedModel(ENTRY, kept=ENTRY)
    fleet.deal(de.ModelFound("net", de.Terms(), ("a",)))
    waited_s = []
    while not served.is_unloaded:
        served.daemon = ModelDaemon(ENTRY, 1, home)
        fleet.ended(served, DaemonEnded(served.daemon, "killed by signal 9", refused), 100.0)
        waited_s.append(served.again_at_s - 100.0)
    assert (waited_s[:-1], served.failed, fleet.models_on("a")) == (delays_s, True, [])
