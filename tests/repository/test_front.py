"""Requests on their way through the host process, while one daemon takes over from another."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import zmq

from shisha_rt.daemon.front.public_socket import Message
from shisha_rt.daemon.loop.poller import Poller
from shisha_rt.errors import Error
from shisha_rt.protocol.request import RequestRoute
from shisha_rt.repository import front
from shisha_rt.repository.front import Front
from tests.process.descriptors import descriptors_to_be_had
from tests.waiting import until

NAME: Final = "net"


class Between:
    """A front between three clients and two daemons, of which `leads` names the one that serves."""

    def __init__(self, folder: Path) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._poller = Poller()
        public = f"ipc://{folder / 'public'}"
        self.leads = "old"
        self.daemons = {name: self._context.socket(zmq.ROUTER) for name in ("old", "new")}
        for name, daemon in self.daemons.items():
            daemon.bind(f"ipc://{folder / name}")
        self._front = Front(
            self._context, public, lambda _: None, None, self._poller, lambda _: f"ipc://{folder / self.leads}"
        )
        self._front.listen(self._poller, self._front.receive)
        self.clients = [self._context.socket(zmq.DEALER) for _ in range(3)]
        for client in self.clients:
            client.connect(public)
        self.client = self.clients[0]

    def send(self, op: str, request_id: str, size_bytes: int = 0, by: int = 0, **fields: Any) -> None:
        header = {"op": op, "id": request_id, "model_name": NAME, **fields}
        self.clients[by].send_multipart([json.dumps(header).encode(), *([bytes(size_bytes)] if size_bytes else [])])

    def turn(self) -> None:
        for event in self._poller.poll(0.01):
            match event:
                case (Message() as message, RequestRoute() as route):
                    self._front.forward(message, route, NAME, time.monotonic())
        self._front.tend(time.monotonic())

    def received(self, socket: zmq.Socket[bytes]) -> list[bytes]:
        def has_come() -> bool:
            self.turn()
            return bool(socket.poll(0))

        until(has_come, "a message", every_s=0.0)
        return socket.recv_multipart()

    def close(self) -> None:
        self._front.close()
        self._poller.close()
        self._context.destroy(linger=0)


@pytest.fixture
def between(tmp_path: Path) -> Iterator[Between]:
    between = Between(tmp_path)
    yield between
    between.close()


def test_what_waits_for_the_new_daemon_is_bounded_and_a_cancel_reaches_the_old_one(
    between: Between, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "_HELD_BYTES", 1 << 16)
    between.send("infer", "first")
    client, first = between.received(between.daemons["old"])
    assert json.loads(first)["id"] == "first"
    between.leads = "new"
    for number in range(3):
        between.send("infer", f"after {number}", 30_000)
    error = json.loads(between.received(between.client)[0])
    assert (error["id"], error["error"]["kind"]) == ("after 2", Error.TOO_MANY_BYTES)
    between.send("cancel", "stop", target="first")
    assert json.loads(between.received(between.daemons["old"])[1])["target"] == "first"
    for request_id in ("first", "stop"):
        between.daemons["old"].send_multipart([client, json.dumps({"id": request_id}).encode()])
    went_on = [json.loads(between.received(between.daemons["new"])[1])["id"] for _ in range(2)]
    assert went_on == ["after 0", "after 1"]


def test_what_was_held_counts_no_more_once_it_is_sent(
    between: Between, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "queued_messages", lambda _: 1)
    between.leads = "late"
    for number in range(4):
        between.send("infer", str(number), 10_000)
    lines = between._front._lines
    until(lambda: any(len(line.in_flight) == 4 for line in lines.values()), meanwhile=between.turn)
    (line,) = lines.values()
    assert line.held_bytes >= 20_000
    with between._context.socket(zmq.ROUTER) as late:
        late.bind(f"ipc://{tmp_path / 'late'}")
        assert [json.loads(between.received(late)[1])["id"] for _ in range(4)] == ["0", "1", "2", "3"]
    assert line.held_bytes == 0


def test_a_client_that_comes_takes_the_place_of_the_longest_unused(
    between: Between, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines of clients that had gone took up all sockets within ten minutes, which ended the host process."""
    monkeypatch.setattr(front, "_MOST_LINES", 2)
    daemon, routes = between.daemons["old"], []
    clients = between.clients
    for by in range(2):
        between.send("infer", "busy", by=by)
        routes.append(between.received(daemon)[0])
    between.send("infer", "too many", by=2)
    error = json.loads(between.received(clients[2])[0])
    assert (error["id"], error["error"]["kind"]) == ("too many", Error.TOO_MANY_CALLERS)
    daemon.send_multipart([routes[1], json.dumps({"id": "busy"}).encode()])
    between.received(clients[1])
    between.send("infer", "one more", by=2)
    route, header = between.received(daemon)
    assert json.loads(header)["id"] == "one more"
    assert len(between._front._lines) == 2
    for to, request_id, by in ((routes[0], "busy", 0), (route, "one more", 2)):
        daemon.send_multipart([to, json.dumps({"id": request_id}).encode()])
        assert json.loads(between.received(clients[by])[0])["id"] == request_id
    for by in (1, 2):
        between.send("infer", "again", by=by)
        routes.append(between.received(daemon)[0])
    assert routes[-1] == route


def test_a_client_that_comes_as_descriptors_are_short_is_refused(between: Between) -> None:
    """It ended the host process, with all models."""
    between.send("infer", "busy")
    between.received(between.daemons["old"])
    between.clients[1].send_multipart([b"no header"])
    between.received(between.clients[1])
    with descriptors_to_be_had(0):
        between.send("infer", "one more", by=1)
        error = json.loads(between.received(between.clients[1])[0])
    assert (error["id"], error["error"]["kind"]) == ("one more", Error.TOO_MANY_CALLERS)


def test_what_is_no_answer_is_dropped_but_no_fault_of_the_front_is(
    between: Between, monkeypatch: pytest.MonkeyPatch
) -> None:
    between.send("infer", "busy")
    client, _ = between.received(between.daemons["old"])
    for message in (b"", b"[]", b'{"id": "\xff"}', 100_000 * b"[", b'{"id": "busy"}'):
        between.daemons["old"].send_multipart([client, message])
    assert json.loads(between.received(between.client)[0])["id"] == "busy"

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    between.send("infer", "next")
    client, _ = between.received(between.daemons["old"])
    between.daemons["old"].send_multipart([client, b'{"id": "next"}'])
    monkeypatch.setattr(between._front, "answer", fail)
    with pytest.raises(ZeroDivisionError):
        between.received(between.client)
