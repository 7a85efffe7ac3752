"""Keys at the public socket, with real sockets: who comes in, who may do what, and whose an answer is."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import zmq

from shisha_rt.daemon.front.access_control import read_access
from shisha_rt.daemon.front.connections import LOOK_EVERY_S, Connection
from shisha_rt.daemon.front.gateway import Arrived
from shisha_rt.daemon.front.security import Security
from shisha_rt.errors import BadInput
from shisha_rt.protocol.access import AccessList, Permission, User
from tests.daemon.guarded import ALICE, BOSS, DAEMON, MALLORY, STRANGER, USERS, Guarded
from tests.wording import says

NOTHING_MS = 200
"""What has not come by then does not come: all that is sent here is underway already."""


@pytest.fixture
def guarded() -> Iterator[Guarded]:
    guarded = Guarded()
    yield guarded
    guarded.close()


def nothing_comes(guarded: Guarded, client: zmq.Socket[bytes]) -> bool:
    end_s = time.monotonic() + NOTHING_MS / 1e3
    while time.monotonic() < end_s:
        guarded.turn()
        if client.poll(1):
            return False
    return True


def connection_of(arrived: Arrived) -> Connection:
    assert isinstance(arrived.reply.client, Connection)
    return arrived.reply.client


def routing_id_of(guarded: Guarded) -> bytes:
    """Of whoever sent the last request."""
    return guarded.arrived[-1].reply.envelope[0]


def taken_over(guarded: Guarded, routing_id: bytes, turn: Callable[[], object]) -> zmq.Socket[bytes]:
    """A connection of another user at a routing id that has become free; it has said nothing.

    One that comes too early stays without: libzmq forgets an id only a little after nothing can be sent to it any more.
    """
    for _ in range(40):
        while is_there(guarded, routing_id):
            turn()
        mallory = guarded.client(MALLORY, routing_id=routing_id)
        end_s = time.monotonic() + 0.5
        while time.monotonic() < end_s:
            turn()
            if is_there(guarded, routing_id):
                assert mallory.recv() == b"anybody?"
                return mallory
        guarded.leave(mallory)
    raise AssertionError("the routing id does not become free")


def is_there(guarded: Guarded, routing_id: bytes) -> bool:
    """What is queued for who has gone may be full: to wait for room would be to wait for nobody."""
    try:
        guarded.gateway.socket.send_multipart([routing_id, b"anybody?"], zmq.NOBLOCK)
    except zmq.Again:
        return True
    except zmq.ZMQError:  # there is nobody of that id
        return False
    return True


def test_who_has_a_key_is_served_and_nobody_else(guarded: Guarded) -> None:
    known = guarded.client(ALICE)
    for stranger in (
        guarded.client(STRANGER),
        guarded.client(ALICE, server=STRANGER.public),
        guarded.client(None),
    ):
        with contextlib.suppress(zmq.Again):  # who has been refused already has no pipe to queue it in
            stranger.send_json({"op": "server_live", "id": "mine"}, zmq.NOBLOCK)
    guarded.until(lambda: guarded.refused["unknown_key"] and guarded.refused["handshake"] >= 2)
    accepted = guarded.accept(known, "1")
    accepted.reply.send_fields({"live": True})
    assert guarded.answer_to(known) == {"id": "1", "live": True}
    assert [arrival.request.id for arrival in guarded.arrived] == ["1"], "nothing of a stranger is ever read"


def test_control_needs_an_operator(guarded: Guarded, caplog: pytest.LogCaptureFixture) -> None:
    client, boss = guarded.client(ALICE), guarded.client(BOSS)
    asks: dict[str, dict[str, object]] = {
        "tuner_set": {"pause": True},
        "place_set": {"place": "a", "down": True},
        "plan_get": {},
    }
    for number, (op, arguments) in enumerate(asks.items()):
        guarded.ask(client, f"{number}", op, **arguments)
        refusal = guarded.answer_to(client)
        assert refusal["id"] == f"{number}"
        assert refusal["error"]["code"] == "PERMISSION_DENIED"
        assert refusal["error"]["message"] == says(f"{op}: 'alice' is … client; …")
    assert guarded.refused == {"permission": 3}
    (line,) = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert line == says("refused: tuner_set, which 'alice' (client) …"), "one line a second"
    guarded.ask(client, "look", "status")
    guarded.ask(boss, "steer", "tuner_set", pause=True)
    guarded.until(lambda: len(guarded.arrived) == 2)
    assert not guarded.gateway.waiting.keys() - {
        (arrival.reply.client, arrival.request.id) for arrival in guarded.arrived
    }


def test_a_key_is_looked_up_at_each_message_and_not_at_the_handshake_only(guarded: Guarded) -> None:
    """With a frame in flight: it was accepted, so its answer comes; then the connection ends."""
    client = guarded.client(ALICE)
    in_flight = guarded.accept(client, "accepted")
    guarded.gateway.change_access(AccessList(USERS[1:]))
    guarded.ask(client, "after")
    refusal = guarded.answer_to(client)
    assert refusal["id"] == "after"
    assert refusal["error"]["code"] == "PERMISSION_DENIED"
    assert guarded.refused == {"revoked": 1}
    time.sleep(3 * LOOK_EVERY_S)
    guarded.turn()
    in_flight.reply.send_fields({"live": True})
    assert guarded.answer_to(client) == {"id": "accepted", "live": True}
    guarded.until(lambda: not connection_of(in_flight).open)
    assert not guarded.gateway.waiting


def test_who_is_sent_away_and_does_not_go_is_cut_off(guarded: Guarded) -> None:
    """It asks on and on."""
    client = guarded.client(ALICE)
    accepted = guarded.accept(client, "1")
    accepted.reply.send_fields({})
    guarded.gateway.change_access(AccessList(()))

    def has_gone() -> bool:
        if guarded.clients and client.poll(0, zmq.POLLOUT):
            guarded.ask(client, "again")
        return not connection_of(accepted).open

    guarded.until(has_gone)
    guarded.until(lambda: True)
    assert guarded.refused["revoked"]


def test_what_a_user_may_changes_at_once(guarded: Guarded) -> None:
    boss = guarded.client(BOSS)
    guarded.ask(boss, "1", "plan_get")
    guarded.until(lambda: len(guarded.arrived) == 1)
    guarded.gateway.change_access(AccessList([User("boss", Permission.CLIENT, BOSS.public)]))
    guarded.ask(boss, "2", "plan_get")
    assert guarded.answer_to(boss)["error"]["code"] == "PERMISSION_DENIED"


def test_users_of_the_daemons_own_stay_whatever_the_list_says() -> None:
    inner = User("(HTTP)", public_key=STRANGER.public)
    security = Security(DAEMON, AccessList(USERS), lambda _: None, [inner])
    security.users = AccessList(())
    assert security.user_of(STRANGER.public) is inner
    assert security.user_of(ALICE.public) is None


def test_a_routing_id_of_ones_own_is_refused(guarded: Guarded) -> None:
    client = guarded.client(ALICE, routing_id=b"camera")
    guarded.ask(client, "1")
    refusal = guarded.answer_to(client)["error"]
    assert refusal["code"] == "INVALID_ARGUMENT"
    assert "expected none (ZMQ_ROUTING_ID)" in refusal["message"]
    assert guarded.refused == {"routing_id": 1}


@pytest.mark.parametrize("asks", [False, True])
def test_an_answer_is_not_for_who_takes_over_a_routing_id(guarded: Guarded, asks: bool) -> None:
    """A client of libzmq 4.3.5 may choose one that looks as if it was made; it is free once its connection has gone."""
    alice = guarded.client(ALICE)
    held = [guarded.accept(alice, "1"), guarded.accept(alice, "2")]
    routing_id = routing_id_of(guarded)
    assert len(routing_id) == 5
    assert routing_id[0] == 0
    guarded.leave(alice)
    mallory = taken_over(guarded, routing_id, guarded.turn)
    if asks:
        own = guarded.accept(mallory, "1")
        assert routing_id_of(guarded) == routing_id
    for arrival in held:
        arrival.reply.send_fields({"secret": 42})
    assert guarded.counts["shisha_answers_undeliverable"] == 2
    if asks:
        own.reply.send_fields({"own": True})
        assert guarded.answer_to(mallory) == {"id": "1", "own": True}
    assert nothing_comes(guarded, mallory)
    assert not guarded.gateway.waiting


def test_an_answer_is_looked_at_once_more_when_it_is_settled_where_it_goes(guarded: Guarded) -> None:
    """The daemon has not heard that its connection has gone, and libzmq has given the routing id to another's."""
    alice = guarded.client(ALICE)
    held = guarded.accept(alice, "1")
    routing_id = routing_id_of(guarded)
    guarded.leave(alice)
    unheard = itertools.count(1000)

    def turn_of_zeromq() -> None:
        """Without a look at what it tells of connections."""
        list(guarded.security.receive(lambda key: f"{key}{next(unheard)}"))
        guarded.gateway.socket.get(zmq.EVENTS)

    mallory = taken_over(guarded, routing_id, turn_of_zeromq)
    assert connection_of(held).open, "nobody has looked"
    held.reply.send_fields({"secret": 42})
    assert not connection_of(held).open
    said = guarded.answer_to(mallory)
    assert (said["id"], said["error"]["kind"]) == (None, "receiver_gone")
    assert guarded.counts["shisha_answers_undeliverable"] == 1


def test_requests_streams_and_memory_are_a_connections_own(guarded: Guarded) -> None:
    """The next connection with the same routing id, even of the same user, has none of the last one's."""
    alice = guarded.client(ALICE)
    held = guarded.accept(alice, "1")
    region = guarded.regions.create(holder=1, size_bytes=4096)
    region.client = held.reply.client
    routing_id = routing_id_of(guarded)
    guarded.leave(alice)
    mallory = taken_over(guarded, routing_id, guarded.turn)
    again = guarded.accept(mallory, "1")  # the id is waiting, but not this connection's
    assert again.reply.client != held.reply.client
    lent = {"shared_memory_region": region.token, "shared_memory_offset": 0, "shared_memory_byte_size": 1200}
    tensor = {"name": "x", "shape": [1, 300], "datatype": "FP32", "parameters": lent}
    guarded.ask(mallory, "2", "infer", model_name="m", inputs=[tensor])
    assert "no region of" in guarded.answer_to(mallory)["error"]["message"]


def test_connections_with_keys_are_watched_for_messages_that_do_not_end(guarded: Guarded) -> None:
    client = guarded.client(ALICE)
    accepted = guarded.accept(client, "1")
    client.send_multipart(4000 * [bytes(60_000)], copy=False)
    guarded.until(lambda: not connection_of(accepted).open)
    assert guarded.counts == {"shisha_connections_cut": 1}


def test_connections_that_speak_no_curve_cost_nothing(guarded: Guarded) -> None:
    host, _, port = guarded.gateway.endpoint.removeprefix("tcp://").rpartition(":")
    known = guarded.client(ALICE)
    guarded.accept(known, "before")
    before = psutil.Process().num_fds()
    for number in range(50):
        with socket.create_connection((host, int(port))) as end:
            if number % 2:
                end.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32))
            guarded.turn()
    guarded.until(lambda: guarded.refused["handshake"] >= 50)
    guarded.until(lambda: psutil.Process().num_fds() <= before)
    guarded.accept(known, "after")


def test_a_handshake_gets_a_number_that_no_connection_before_it_can_have(guarded: Guarded) -> None:
    connections = [connection_of(guarded.accept(guarded.client(ALICE), "1")) for _ in range(3)]
    assert len({connection.user_id for connection in connections}) == 3
    for connection in connections:
        assert connection.key == ALICE.public
        assert int(connection.user_id.removeprefix(connection.key)) > connection.above


# --- the file ---------------------------------------------------------------------------------------------------------


def written(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "access.toml"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_list_is_read_from_its_file(tmp_path: Path) -> None:
    text = f"[[user]]\nname = 'a'\npermission = 'operator'\npublic_key = '{ALICE.public}'\n"
    assert read_access(written(tmp_path, text, 0o644)).users == (User("a", Permission.OPERATOR, ALICE.public),)


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        ("", 0o620, r"may write it; .* chmod go-w"),
        ("", 0o602, r"may write it; .* chmod go-w"),
        ("[[user]\n", 0o600, "not TOML"),
        ("x = " + 100_000 * "[", 0o600, "nested too deeply"),
        ("# " + (1 << 20) * "x", 0o600, "larger than 1048576 bytes"),
    ],
)
def test_a_file_that_is_no_list_is_refused_in_a_line(tmp_path: Path, text: str, mode: int, said: str) -> None:
    path = written(tmp_path, text, mode)
    with pytest.raises(BadInput, match=f"^{path}: .*{said}") as refused:
        read_access(path)
    assert "\n" not in str(refused.value)


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "latin").write_bytes(b"# \xe9")
    for name, said in (
        ("pipe", "regular file"),
        ("", "directory"),
        ("none", "No such file"),
        ("latin", "not UTF-8"),
    ):
        with pytest.raises(BadInput, match=said):
            read_access(tmp_path / name)
