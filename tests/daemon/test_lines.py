"""Direct lines: what comes over one is a request like any other, and what is no message ends that line alone."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shisha_rt.daemon.front import public_socket
from shisha_rt.daemon.front.lines import Lines
from shisha_rt.errors import Error
from shisha_rt.process.channel import Channel
from shisha_rt.protocol.header import encode_operation
from shisha_rt.protocol.line import pack, unpack
from tests.daemon.guarded import Guarded
from tests.daemon.local_gateway import LIMITS, LocalGateway
from tests.process.descriptors import descriptors_to_be_had


@pytest.fixture
def here(tmp_path: Path) -> Iterator[LocalGateway]:
    with LocalGateway(f"ipc://{tmp_path}/daemon") as gateway:
        yield gateway


def asked(request_id: str) -> bytes:
    return pack([encode_operation("status", request_id)])


def read(end: socket.socket) -> dict[str, Any]:
    """The header of an answer."""
    fields: dict[str, Any] = msgspec.json.decode(unpack(end.recv(1 << 16))[0])
    return fields


def test_requests_are_answered_on_the_line_that_they_came_by(here: LocalGateway) -> None:
    lines = [here.line(), here.line()]
    for line in lines:
        line.send(asked("1"))  # the same id: each client has its own
    here.turns()
    assert [arrived.request.id for arrived in here.arrived] == ["1", "1"]
    for number, arrived in enumerate(here.arrived):
        arrived.reply.send_fields({"of": number})
    assert sorted(read(line)["of"] for line in lines) == [0, 1]
    assert len(here.lines.pids) == 1


def test_each_of_many_requests_is_taken_once_in_order_and_lines_take_turns(here: LocalGateway) -> None:
    lines = [here.line(), here.line()]
    for number in range(50):
        for line in lines:
            line.send(asked(str(number)))
    while len(here.arrived) < 100:
        here.turn()
        counts = [sum(arrived.reply.client is client for arrived in here.arrived) for client in clients_of(here)]
        assert abs(counts[0] - counts[-1]) <= 1
    for client in clients_of(here):
        ids = [arrived.request.id for arrived in here.arrived if arrived.reply.client is client]
        assert ids == [str(number) for number in range(50)]


def clients_of(here: LocalGateway) -> list[object]:
    return list(dict.fromkeys(arrived.reply.client for arrived in here.arrived))


def test_a_message_that_is_not_understood_is_answered_and_the_line_stays(here: LocalGateway) -> None:
    line = here.line()
    for message in (b"\5\0\0\0", pack([b"{"])):
        line.send(message)
        here.turns()
        assert read(line)["error"]["kind"] == Error.MALFORMED_REQUEST
    line.send(asked("1"))
    here.turns()
    assert here.arrived


def test_a_message_of_any_allowed_size_comes_through(here: LocalGateway) -> None:
    """One that is larger than a datagram lies in memory of its own."""
    ours = Channel(here.line())
    assert ours.try_send(pack([encode_operation("status", "1") + b" " * 50_000]))
    here.turns()
    (arrived,) = here.arrived
    arrived.reply.send_fields({"much": "m" * 100_000})
    message = ours.take()
    assert message is not None
    assert len(unpack(message)[0]) > 100_000


def test_a_large_message_waits_for_a_descriptor_and_others_do_not(here: LocalGateway) -> None:
    """The kernel drops a descriptor that the process may not have, and with it the message; the line was cut."""
    line, other = Channel(here.line()), here.line()
    with descriptors_to_be_had(2):
        here.sharing.look()
        assert line.try_send(pack([encode_operation("status", "large") + b" " * 50_000]))
        assert line.try_send(asked("next"))
        with descriptors_to_be_had(0):
            for turns in range(3):
                other.send(asked(f"small {turns}"))
                here.turns()
                here.sharing.look()
            assert [arrived.request.id for arrived in here.arrived] == ["small 0", "small 1", "small 2"]
        here.sharing.look()
        here.turns()
    assert [arrived.request.id for arrived in here.arrived[3:]] == ["large", "next"]
    before = open_descriptors()
    here.sharing.look()
    assert line.try_send(pack([encode_operation("status", "again") + b" " * 50_000]))
    here.turns()
    assert here.arrived[-1].request.id == "again"
    assert open_descriptors() == before


def test_lines_that_wait_for_a_descriptor_can_be_closed(tmp_path: Path) -> None:
    with LocalGateway(f"ipc://{tmp_path}/daemon") as here:
        line = Channel(here.line())
        with descriptors_to_be_had(2):
            here.sharing.look()
            assert line.try_send(pack([encode_operation("status", "large") + b" " * 50_000]))
            with descriptors_to_be_had(0):
                here.turns()
    assert not here.arrived


def sent_too_much(end: socket.socket) -> None:
    assert Channel(end).try_send(bytes(2 * LIMITS.max_message_bytes + LIMITS.max_header_bytes + (2 << 20)))


def sent_a_file(end: socket.socket) -> None:
    with Path(os.devnull).open() as file:
        socket.send_fds(end, [(8).to_bytes(8, "little")], [file.fileno()])


def sent_a_descriptor(end: socket.socket) -> None:
    with Path(os.devnull).open() as file:
        socket.send_fds(end, [bytes(8) + asked("1")], [file.fileno()])


def open_descriptors() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


@pytest.mark.parametrize("spoil", [sent_too_much, sent_a_file, sent_a_descriptor, socket.socket.close])
def test_what_is_no_message_ends_its_line_and_no_other(here: LocalGateway, spoil: Any) -> None:
    line, other = here.line(), here.line()
    before = open_descriptors()
    spoil(line)
    here.turns()
    assert not here.arrived
    if line.fileno() >= 0:
        assert line.recv(1) == b""
        assert open_descriptors() == before - 1
    other.send(asked("1"))
    here.turns()
    assert here.arrived


def test_an_answer_to_a_client_that_has_gone_is_counted(here: LocalGateway) -> None:
    line = here.line()
    line.send(asked("1"))
    here.turns()
    (arrived,) = here.arrived
    here.gateway.follow(arrived.reply.client, arrived.reply.envelope)
    line.close()
    here.turns()
    arrived.reply.send_fields({})
    assert here.counts == {"shisha_answers_undeliverable": 1}
    here.gateway.send_away()  # nobody follows any more
    assert here.counts == {"shisha_answers_undeliverable": 1}


def test_answers_wait_for_a_client_that_reads_late(here: LocalGateway) -> None:
    """In order, whatever the socket's buffer takes; and who leaves too much unread gets no more work."""
    line = here.line()
    line.send(asked("first"))
    here.turns()
    client, reply = here.arrived[0].reply.client, here.arrived[0].reply
    for number in range(2000):
        here.gateway.outbox.send(client, [str(number).encode() + bytes(1000)])
    assert here.gateway.outbox.waiting
    got = 0
    while got < 2000:
        (part,) = unpack(line.recv(1 << 16))
        assert bytes(part).rstrip(b"\0") == str(got).encode()
        got += 1
        if got % 50 == 0:
            here.gateway.outbox.flush(float("inf"))
    assert not here.gateway.outbox.waiting
    reply.send_fields({})
    assert read(line)["id"] == "first"


def test_an_answer_that_has_no_room_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was dropped without a word, and a client that had been stopped for a while waited for it for ever."""
    monkeypatch.setattr(public_socket, "_UNREAD_BYTES", 1 << 16)
    with LocalGateway(f"ipc://{tmp_path}/daemon") as here:
        line = here.line()
        line.send(asked("first"))
        here.turns()
        reply, unread = here.arrived[0].reply, 0
        while here.gateway.outbox.send(reply.client, [bytes(20_000)]):
            unread += 1
        reply.send_fields({"long": "x" * 20_000})
        for _ in range(unread):
            line.recv(1 << 16)
            here.gateway.outbox.flush(float("inf"))
        answer = read(line)
        assert (answer["id"], answer["error"]["kind"]) == ("first", Error.TOO_MANY_BYTES)


def test_there_are_so_many_lines_and_no_more(tmp_path: Path) -> None:
    with LocalGateway(f"ipc://{tmp_path}/daemon", most_lines=1) as here:
        line = here.line()
        end = here.connected()
        refused: Any = here.answer(end, b'{"op":"line"}')
        assert refused["error"]["kind"] == Error.LINE_REFUSED
        assert end.recv(1) == b""
        line.close()
        here.turns()
        here.line()


def test_there_are_none_where_clients_have_keys() -> None:
    """A key says who may do what; a line would say only which user's program it is."""
    guarded = Guarded()
    with LocalGateway("tcp://127.0.0.1:0") as here:
        lines = Lines(guarded.gateway, here.poller, 4)
        assert not lines.has_room
        lines.close()
    guarded.close()
