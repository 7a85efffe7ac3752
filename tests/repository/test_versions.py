"""When a version takes over, and when the present one stays, by what daemons answer."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from shisha_rt.core import dealer as de
from shisha_rt.daemon.host_share import HostShare
from shisha_rt.daemon.loop.poller import Poller
from shisha_rt.daemon.settings import Settings
from shisha_rt.errors import Error
from shisha_rt.machine.host.leases import CoreLeases
from shisha_rt.machine.machine import Machine, Memory, Place
from shisha_rt.protocol.exceptions import ShishaError
from shisha_rt.protocol.operations import ModelLoad, ModelUnload
from shisha_rt.repository import versions
from shisha_rt.repository.entries import ModelEntry
from shisha_rt.repository.fleet import Fleet, ServedModel
from shisha_rt.repository.hosted import StartOptions
from shisha_rt.repository.model_daemon import Fields, Home, ModelDaemon, Then
from shisha_rt.repository.versions import Versions
from tests.wording import raised

SAME = {"inputs": ["x"], "outputs": ["y"], "shapes": [[1]]}

COMPARED = {"compared": 3, "failed": 0, "different": 3, "difference": 0.5, "unlike": 0.1, "reason": ""}


class Answering(ModelDaemon):
    """A daemon without a process, whose answers a test gives."""

    def __init__(self, entry: ModelEntry, number: int, home: Home) -> None:
        super().__init__(entry, number, home)
        self.asked: dict[str, Then] = {}
        self.is_ended = False

    def ask(self, op: str, then: Then, **arguments: object) -> None:
        self.asked[op] = then

    def answer(self, op: str, **fields: Any) -> None:
        self.asked.pop(op)(fields)

    def start(self, *_: object) -> None:
        """Start nothing."""

    def send_away(self) -> None:
        """Nobody is here."""

    def terminate(self, number: int = 0) -> None:
        self.is_ended = True


class Front:
    """How many requests are in flight at any daemon."""

    in_flight = 0

    def in_flight_at(self, endpoint: str) -> int:
        return self.in_flight


class Host:
    """A model that serves, on a machine of two places, and its versions."""

    def __init__(self, folder: Path, home: Home, fleet: Fleet) -> None:
        self.file = folder / "net.onnx"
        self.file.write_bytes(b"a network")
        self.front = Front()
        self.fleet = fleet
        self.entry = ModelEntry("net", "1", Settings(str(self.file)), de.Terms())
        self.versions = Versions(fleet, self.front, [self.entry], lambda: None)  # type: ignore[arg-type]
        self.served = ServedModel(self.entry, daemon=Answering(self.entry, 0, home))
        self.old.ready = True
        fleet.models["net"] = self.served
        fleet.deal(de.ModelFound("net", de.Terms(), ("a", "b")))
        self.ends: list[str | None] = []

    @property
    def old(self) -> Answering:
        assert isinstance(self.served.daemon, Answering)
        return self.served.daemon

    def load(self, shadow: int = 0, **fields: Any) -> Answering:
        """Load another version, up to where it serves, and return its daemon."""
        self.change("model_load", ModelLoad("net", shadow=shadow, **fields))
        coming = self.served.coming
        assert isinstance(coming, Answering)
        coming.ready = True
        self.versions.compare(self.served, coming)
        return coming

    def change(self, op: str, arguments: ModelLoad | ModelUnload) -> None:
        self.versions.change(op, arguments, self.ends.append)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.setattr("shisha_rt.repository.fleet.ModelDaemon", Answering)
    poller, context = Poller(), zmq.Context[zmq.Socket[bytes]]()
    places = tuple(Place(name, (0,), 1, 1, 1.0, 1, "ram") for name in ("a", "b"))
    share = HostShare(Machine("two", "", (Memory("ram"),), places), CoreLeases(tmp_path / "leases"), is_dealt=True)
    home, start = Home(tmp_path, poller, context), StartOptions((logging.WARNING, ""), fresh=False)
    yield Host(tmp_path, home, Fleet(share, home, start, lambda: None))
    share.close()
    poller.close()
    context.term()


def refused(host: Host, op: str, arguments: ModelLoad | ModelUnload, kind: Error = Error.LOAD_FAILED) -> None:
    with raised(ShishaError, kind):
        host.change(op, arguments)
    assert (host.served.coming, host.ends) == (None, [])


def test_a_version_that_takes_what_the_present_one_takes_takes_over(host: Host) -> None:
    old, coming = host.old, host.load(version="2")
    old.answer("model_metadata", **SAME, most_frames=4)
    assert host.served.daemon is old
    coming.answer("model_metadata", **SAME, most_frames=4)
    assert (host.served.daemon, host.served.entry.version, host.ends) == (coming, "2", [None])
    assert (old.is_ended, coming.is_ended) == (False, False)


@pytest.mark.parametrize("differs", [{"inputs": []}, {"outputs": []}, {"shapes": []}, {"most_frames": 3}])
def test_a_version_that_takes_less_is_sent_back(host: Host, differs: Fields) -> None:
    old, coming = host.old, host.load(version="2")
    coming.answer("model_metadata", **{**SAME, "most_frames": 4, **differs})
    old.answer("model_metadata", **SAME, most_frames=4)
    assert (host.served.daemon, host.served.coming, host.served.entry.version) == (old, None, "1")
    assert coming.is_ended
    assert [isinstance(end, str) for end in host.ends] == [True]


@pytest.mark.parametrize(
    ("answer", "takes_over"),
    [
        ({"shadow": COMPARED}, True),
        ({"shadow": {**COMPARED, "compared": 0}}, False),
        ({"shadow": {**COMPARED, "failed": 1}}, False),
        ({"error": {"code": "UNAVAILABLE", "message": "it has ended"}}, False),
    ],
)
def test_a_version_that_computes_beside_takes_over_once_frames_were_compared(
    host: Host, answer: Fields, takes_over: bool
) -> None:
    old, coming = host.old, host.load(version="2", shadow=3)
    for daemon in (old, coming):
        daemon.answer("model_metadata", **SAME)
    assert host.served.daemon is old
    old.answer("shadow", **answer)
    assert (host.served.daemon is coming, coming.is_ended) == (takes_over, not takes_over)
    assert [end is None for end in host.ends] == [takes_over]


def test_a_comparison_that_ends_after_its_version_changes_nothing(host: Host) -> None:
    old, coming = host.old, host.load(version="2", shadow=3)
    for daemon in (old, coming):
        daemon.answer("model_metadata", **SAME)
    host.versions.ended(host.served, coming, "killed by signal 9")
    old.answer("shadow", shadow=COMPARED)
    assert (host.served.daemon, len(host.ends)) == (old, 1)


def test_a_file_as_it_is_served_is_loaded_already_and_one_that_is_written_anew_is_the_next_version(host: Host) -> None:
    host.change("model_load", ModelLoad("net"))
    assert (host.served.coming, host.ends) == (None, [None])
    host.file.write_bytes(b"another network")
    assert host.load().entry.version == "2"


def test_a_version_that_is_no_number_has_a_next_one_too(host: Host) -> None:
    host.served.entry = host.entry.as_version(str(host.file), "beta")
    other = host.file.with_name("other.onnx")
    other.touch()
    assert host.load(model=str(other)).entry.version == "beta.1"


def test_what_clients_may_not_load(host: Host, tmp_path_factory: pytest.TempPathFactory) -> None:
    beyond = tmp_path_factory.mktemp("beyond") / "net.onnx"
    beyond.touch()
    (host.file.parent / "link.onnx").symlink_to(beyond)
    for name in (str(beyond), str(host.file.parent / "link.onnx"), str(host.file.parent / ".." / "net.onnx")):
        refused(host, "model_load", ModelLoad("net", name))
    refused(host, "model_load", ModelLoad("net", str(host.file.parent / "missing.onnx")))
    refused(host, "model_load", ModelLoad("unheard"), Error.UNKNOWN_MODEL)
    refused(host, "model_unload", ModelUnload("unheard"), Error.UNKNOWN_MODEL)
    inner = host.file.parent / "inner"
    inner.mkdir()
    (inner / "net.onnx").touch()
    host.load(model=str(inner / "net.onnx"))


def test_the_version_before_comes_back_as_long_as_its_file_is_the_same(host: Host) -> None:
    undo = ModelUnload("net")
    refused(host, "model_undo", undo)
    old, coming = host.old, host.load(version="2")
    for daemon in (old, coming):
        daemon.answer("model_metadata", **SAME)
    host.ends.clear()
    host.change("model_undo", undo)
    assert host.served.coming is not None
    assert host.served.coming.entry.version == "1"
    host.versions.ended(host.served, host.served.coming, "killed by signal 9")
    host.ends.clear()
    host.file.write_bytes(b"another network")
    refused(host, "model_undo", undo)


def test_a_second_change_waits_for_the_first(host: Host) -> None:
    host.load(version="2")
    with raised(ShishaError, Error.LOAD_FAILED):
        host.change("model_load", ModelLoad("net", version="3"))


def test_a_daemon_that_was_replaced_ends_once_nothing_has_been_in_flight_for_a_while(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    old, coming = host.old, host.load(version="2")
    for daemon in (old, coming):
        daemon.answer("model_metadata", **SAME)

    def quiet(then: Callable[[], None]) -> float:
        then()
        host.versions.see_off(host.served, now_s)
        return host.served.leaving[old]

    assert quiet(lambda: None) == math.inf
    assert quiet(lambda: old.answer("status", status={"frames": {"in_flight": 1}})) == math.inf
    assert quiet(lambda: old.answer("status", status={"frames": {"in_flight": 0}})) == now_s
    now_s += versions._QUIET_S / 2
    assert quiet(lambda: old.answer("status", status={"frames": {"in_flight": 0}})) == now_s - versions._QUIET_S / 2
    host.front.in_flight = 1
    assert quiet(lambda: None) == math.inf
    host.front.in_flight = 0
    assert quiet(lambda: None) == math.inf
    old.answer("status", status={"frames": {"in_flight": 0}})
    now_s += 2 * versions._QUIET_S
    assert not old.is_ended
    assert quiet(lambda: None) == -math.inf
    assert (old.is_ended, coming.is_ended) == (True, False)


def test_what_is_unloaded_ends_with_the_version_that_was_to_take_over(host: Host) -> None:
    old, coming = host.old, host.load(version="2")
    host.change("model_unload", ModelUnload("net"))
    assert (old.is_ended, coming.is_ended, host.served.serving, host.served.is_unloaded) == (True, True, None, True)
    assert [end is None for end in host.ends] == [False, True]
    host.ends.clear()
    host.change("model_unload", ModelUnload("net"))
    assert host.ends == [None]
    host.change("model_load", ModelLoad("net"))
    assert (host.served.is_unloaded, host.ends) == (False, [None])
    host.fleet.serves(host.served, time.monotonic())
    assert host.ends == [None, None]
