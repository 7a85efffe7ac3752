"""Which endpoints are served, and what happens to answers that nobody reads."""

from __future__ import annotations

import contextlib
import math
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import zmq

from shisha_rt.daemon.front import connections
from shisha_rt.daemon.front.addresses import check_endpoint
from shisha_rt.daemon.front.connections import parse_tcp_info
from shisha_rt.daemon.front.gateway import Gateway
from shisha_rt.daemon.front.outbox import LEAST_AGAIN_S, UNASKED_S, Outbox
from shisha_rt.daemon.front.regions import Regions
from shisha_rt.errors import BadInput, Error
from shisha_rt.model.graph import Tensor
from shisha_rt.protocol.limits import Limits
from shisha_rt.protocol.signature import Signature
from tests.waiting import until
from tests.wording import raised, says


@pytest.mark.parametrize(
    "endpoint",
    ["tcp://127.0.0.1:5555", "tcp://127.0.0.1:0", "tcp://localhost:1", "tcp://[::1]:5555", "tcp://127.9.9.9:1",
     "ipc:///tmp/socket"],
)  # fmt: skip
def test_this_machine_is_served(endpoint: str) -> None:
    check_endpoint(endpoint)


@pytest.mark.parametrize(
    "endpoint",
    ["tcp://127.0.0.1", "tcp://127.0.0.1:http", "tcp://127.0.0.1:99999", "tcp://:5555", "tcp://127.0.0.1:\u0665",
     "udp://127.0.0.1:1", "inproc://a", "ipc://", "ipc://@abstract", "127.0.0.1:5555", "", "tcp://::1:5555",
     "tcp://[::1:5555", "tcp://[localhost]:5555", "tcp:// 127.0.0.1:5555", "tcp://a;127.0.0.1:5555"],
)  # fmt: skip
def test_anything_else_is_refused_in_one_line(endpoint: str) -> None:
    with raised(BadInput, Error.BAD_ENDPOINT, match=r"expected tcp://HOST:PORT or ipc://PATH") as caught:
        check_endpoint(endpoint)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "endpoint",
    ["tcp://0.0.0.0:5555", "tcp://*:5555", "tcp://192.0.2.1:5555", "tcp://example.org:5555", "tcp://[::]:5555"],
)
def test_other_hosts_are_served_with_keys_only(endpoint: str) -> None:
    with raised(BadInput, Error.EXPOSED_ADDRESS, match=r"--access FILE \(who may .* and --secret-key FILE") as caught:
        check_endpoint(endpoint)
    assert "\n" not in str(caught.value)
    check_endpoint(endpoint, access="access.toml", secret_key="daemon.key_secret")


def test_half_of_what_keys_take_is_refused() -> None:
    for endpoint in ("tcp://0.0.0.0:5555", "tcp://127.0.0.1:5555"):
        with raised(BadInput, Error.OPTIONS_CLASH, match="expected --secret-key FILE, too"):
            check_endpoint(endpoint, access="access.toml")
        with raised(BadInput, Error.OPTIONS_CLASH, match="expected --access FILE, too"):
            check_endpoint(endpoint, secret_key="daemon.key_secret")
    check_endpoint("ipc:///tmp/socket", access="access.toml")


ANSWER_BYTES = 96
KEPT = 10
"""Answers that wait for one client alone."""


class Peers:
    """A ROUTER with a queue of two messages for each peer, and an outbox over it."""

    def __init__(self, limit_bytes: int) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.sockets: list[zmq.Socket[bytes]] = []
        self.router = self.context.socket(zmq.ROUTER)
        self.router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self.router.setsockopt(zmq.SNDHWM, 1)
        self.router.bind("inproc://peers")
        self.lost = 0
        self.outbox = Outbox(self.router, limit_bytes, self._count)

    def _count(self) -> None:
        self.lost += 1

    def peer(self, name: bytes) -> zmq.Socket[bytes]:
        socket = self.context.socket(zmq.DEALER)
        self.sockets.append(socket)
        socket.setsockopt(zmq.IDENTITY, name)
        socket.setsockopt(zmq.RCVHWM, 1)
        socket.setsockopt(zmq.RCVTIMEO, 5000)
        socket.connect("inproc://peers")
        socket.send(b"hello")
        assert self.router.recv_multipart() == [name, b"hello"]
        return socket


@pytest.fixture
def peers() -> Iterator[Peers]:
    peers = Peers(limit_bytes=KEPT * (ANSWER_BYTES + 512 + len(b"slow")))
    yield peers
    for opened in (*peers.sockets, peers.router):
        opened.close(linger=0)
    peers.context.term()


def test_a_slow_client_keeps_its_answers_in_order_and_holds_up_nobody(peers: Peers) -> None:
    slow, quick = peers.peer(b"slow"), peers.peer(b"quick")
    for number in range(10):
        peers.outbox.send(b"slow", [b"slow", b"%d" % number])
    assert peers.outbox.waiting
    peers.outbox.send(b"quick", [b"quick", b"answer"])
    assert quick.recv() == b"answer"
    received: list[int] = []
    while len(received) < 10:
        peers.outbox.flush(math.inf)
        if slow.poll(timeout=1):
            received.append(int(slow.recv()))
    assert received == list(range(10))
    peers.outbox.flush(math.inf)
    assert not peers.outbox.waiting
    assert peers.lost == 0


def test_beyond_the_limit_answers_are_counted_and_dropped(peers: Peers) -> None:
    peers.peer(b"slow")
    for _ in range(50):
        peers.outbox.send(b"slow", [b"slow", bytes(ANSWER_BYTES)])
    assert 50 - KEPT - 4 <= peers.lost <= 50 - KEPT


def test_however_many_do_not_read_what_is_kept_is_bounded_and_the_next_finds_room(peers: Peers) -> None:
    for number in range(3):
        peers.peer(b"%d" % number)
        for _ in range(50):
            peers.outbox.send(b"%d" % number, [b"%d" % number, bytes(ANSWER_BYTES)])
        in_zeromq = 4 * (number + 1)
        assert 50 * (number + 1) - peers.lost <= 2 * KEPT + in_zeromq
    lost = peers.lost
    assert peers.outbox.is_full(b"0")
    slow = peers.peer(b"slow")
    assert not peers.outbox.is_full(b"slow")
    for _ in range(3):
        peers.outbox.send(b"slow", [b"slow", bytes(ANSWER_BYTES)])
    assert peers.lost == lost
    for _ in range(3):
        while not slow.poll(timeout=1):
            peers.outbox.flush(math.inf)
        assert len(slow.recv()) == ANSWER_BYTES


def test_an_answer_larger_than_a_clients_room_waits_if_no_other_of_it_does(peers: Peers) -> None:
    slow, size, sent = peers.peer(b"slow"), 2 * KEPT * (ANSWER_BYTES + 512), 0
    while not peers.lost:
        peers.outbox.send(b"slow", [b"slow", bytes(size)])
        sent += 1
    assert peers.outbox.waiting
    for _ in range(sent - 1):
        while not slow.poll(timeout=1):
            peers.outbox.flush(math.inf)
        assert len(slow.recv()) == size
    assert not peers.outbox.waiting


def test_what_waits_is_tried_at_once_after_a_change_and_ever_more_seldom_without(peers: Peers) -> None:
    slow = peers.peer(b"slow")
    assert peers.outbox.wake_s() == math.inf
    for _ in range(10):
        peers.outbox.send(b"slow", [b"slow", b"answer"])
    now_s, waits_s = 100.0, []
    for _ in range(12):
        peers.outbox.flush(now_s)
        waits_s.append(peers.outbox.wake_s() - now_s)
        now_s += waits_s[-1]
    # Longer waits are allowed: a try that took long is not repeated soon.
    least_s = [min(UNASKED_S, LEAST_AGAIN_S * 2**tries) for tries in range(1, 13)]
    assert all(wait_s > 0.999 * least for wait_s, least in zip(waits_s, least_s, strict=True))
    assert least_s[-1] == UNASKED_S
    peers.outbox.flush(now_s)
    peers.outbox.flush(now_s)  # something has changed
    assert now_s + LEAST_AGAIN_S <= peers.outbox.wake_s() < now_s + UNASKED_S
    while peers.outbox.wake_s() >= now_s + UNASKED_S:  # until it has read so much that there is room again
        slow.recv()
        now_s += UNASKED_S
        peers.outbox.flush(now_s)
    assert peers.outbox.wake_s() < now_s + UNASKED_S / 2


def test_a_client_that_left_costs_its_answers_only(peers: Peers) -> None:
    peers.outbox.send(b"nobody", [b"nobody", b"answer"])
    assert peers.lost == 1
    assert not peers.outbox.waiting


class Front:
    """A gateway whose limit for a message is 67 KB, and a turn of the daemon's loop for it."""

    def __init__(self, endpoint: str) -> None:
        self.counts: Counter[str] = Counter()
        signature = Signature("m", (Tensor("x", (1, 300), "FP32"),), (Tensor("y", (1, 300), "FP32"),))
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.limits = Limits(max_message_bytes=67_000, max_answer_bytes=1_200, max_header_bytes=64_000)
        self.gateway = Gateway(self.context, endpoint, signature, self.limits, Regions(16, 1 << 20), self._count)
        self.clients: list[zmq.Socket[bytes]] = []
        self.gateway.connections.stirred()

    def _count(self, name: str) -> None:
        self.counts[name] += 1

    def turn(self) -> list[str]:
        """What arrived, by id."""
        arrived = [arrival.request.id for arrival in self.gateway.receive()]
        self.gateway.tend(time.monotonic())
        return arrived

    def until(self, done: Callable[[], bool]) -> list[str]:
        arrived: list[str] = []
        until(done, every_s=1e-3, meanwhile=lambda: arrived.extend(self.turn()))
        return arrived

    def client(self) -> zmq.Socket[bytes]:
        client = self.context.socket(zmq.DEALER)
        self.clients.append(client)
        client.set(zmq.SNDHWM, 0)
        client.set(zmq.LINGER, 0)
        client.set(zmq.RECONNECT_IVL, -1)
        client.connect(self.gateway.endpoint)
        return client

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self.gateway.close()
        self.context.term()


@pytest.fixture
def front() -> Iterator[Front]:
    front = Front("tcp://127.0.0.1:0")
    yield front
    front.close()


def ask(client: zmq.Socket[bytes], request_id: str) -> None:
    client.send_json({"op": "server_live", "id": request_id})


def plain_connection(endpoint: str) -> socket.socket:
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    return socket.create_connection((host, int(port)))


def spoken_by_hand(endpoint: str) -> socket.socket:
    """A connection over which ZMTP has been agreed on, as a DEALER."""
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
    ready = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
    end = plain_connection(endpoint)
    end.sendall(greeting + b"\x04" + bytes([len(ready)]) + ready)
    said = b""
    while b"READY" not in said:
        said += end.recv(1000)
    return end


BYTES_PER_S = 400e6
"""Of a client that sends no end: on a quick host more could come between two looks than is to be held against them."""


def endless_message(endpoint: str) -> Iterator[int]:
    """Parts of a message of which none is the last; yields the bytes sent, until it is cut off."""
    part = b"\x03" + struct.pack(">Q", 60_000) + bytes(60_000)
    sent = 0
    with spoken_by_hand(endpoint) as end:
        end.setblocking(False)
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            while True:
                with contextlib.suppress(BlockingIOError):
                    sent += end.send(part[sent % len(part) :])
                yield sent


def test_a_client_whose_message_does_not_end_is_cut_off_and_what_it_sent_is_let_go(front: Front) -> None:
    """9,000 parts of 60 KB took a daemon from 79 to 598 MiB, where a message may have 67 KB."""
    other, endless = front.client(), endless_message(front.gateway.endpoint)
    ask(other, "before")
    assert front.until(lambda: bool(front.gateway.waiting)) == ["before"]
    before_bytes, most_bytes, began_s = psutil.Process().memory_info().rss, 0, time.monotonic()
    for sent in endless:
        front.turn()
        while sent > BYTES_PER_S * (time.monotonic() - began_s):
            front.turn()
        most_bytes = max(most_bytes, psutil.Process().memory_info().rss - before_bytes)
        assert sent < 9000 * 60_000, "it goes on for ever"
    assert most_bytes < 128 << 20, "65 messages of 131 KB may wait, and what comes between two looks, however late"
    assert front.counts == {"shisha_connections_cut": 1}
    ask(other, "after")
    assert front.until(lambda: len(front.gateway.waiting) == 2) == ["after"]


@pytest.mark.parametrize(
    ("told_bytes", "expected"),
    [
        (0, (1, None)),
        (1, (8, None)),
        (4, (8, None)),
        (104, (8, None)),
        (135, (8, None)),
        (136, (8, 77)),
        (232, (8, 77)),
    ],
)
def test_a_kernel_tells_as_much_of_a_connection_as_it_does(told_bytes: int, expected: tuple[int, int | None]) -> None:
    """8 is the state CLOSE_WAIT."""
    whole = bytes([8]) + bytes(127) + (77).to_bytes(8, sys.byteorder) + bytes(96)
    assert parse_tcp_info(whole[:told_bytes]) == expected


def test_clients_are_served_where_the_kernel_counts_nothing(
    front: Front, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It tells less of a connection than it is asked for. The loop ended with the first client under an emulator."""

    def getsockopt(end: socket.socket, level: int, option: int, size_bytes: int) -> bytes:
        return super(socket.socket, end).getsockopt(level, option, min(size_bytes, 104))

    monkeypatch.setattr(socket.socket, "getsockopt", getsockopt)
    seen_s = time.monotonic() + 0.3  # by then each has been looked at
    for number in range(2):
        ask(front.client(), f"{number}")
    assert sorted(front.until(lambda: len(front.gateway.waiting) == 2 and time.monotonic() > seen_s)) == ["0", "1"]
    assert [line for line in caplog.messages if "does not count" in line] == [
        says("… what clients send: one whose message …")
    ]


def test_a_client_of_an_old_protocol_is_told_so(front: Front) -> None:
    """One message of 5 bytes, as ZeroMQ 2 framed it, ended a daemon."""
    with plain_connection(front.gateway.endpoint) as end:
        end.sendall(b"\x01\0" + b"\x03\0{}")  # no name of its own, and a message of one part
        end.setblocking(False)
        said = bytearray()

        def is_told() -> bool:
            with contextlib.suppress(BlockingIOError):
                said.extend(end.recv(1000))
            return b"expected 3.0" in said

        assert front.until(is_told) == []
    ask(front.client(), "after")
    assert front.until(lambda: bool(front.gateway.waiting)) == ["after"]


def lose_a_client_whose_queue_is_full(wait_s: float) -> None:
    """It sends until nothing goes any more, and is reset, while the daemon does something else for so long."""
    front = Front("tcp://127.0.0.1:0")
    with spoken_by_hand(front.gateway.endpoint) as end:
        end.settimeout(0.2)
        with contextlib.suppress(TimeoutError):
            while True:
                end.sendall(1000 * b"\0\x02{}")
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    time.sleep(wait_s)
    ask(front.client(), "after")
    front.until(lambda: bool(front.gateway.waiting))
    front.close()


@pytest.mark.long
def test_a_client_that_is_lost_while_its_queue_is_full_does_not_end_the_process() -> None:
    """With heartbeats every 2 s it did: "Assertion failed: !_io_error (src/stream_engine_base.cpp:310)"."""
    lose = f"from {__name__} import lose_a_client_whose_queue_is_full as lose; lose(2.2)"
    done = subprocess.run([sys.executable, "-c", lose], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_who_sends_much_in_whole_messages_is_left_alone(front: Front) -> None:
    client, answers = front.client(), 0
    for number in range(400):
        client.send_multipart([b'{"op":"infer","id":"%d"}' % number, bytes(60_000)])
    while answers < 400:
        front.turn()
        while client.poll(1):
            client.recv_multipart()
            answers += 1
    assert not front.counts


def test_a_look_is_at_some_of_many_connections_and_all_have_their_turn(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand took more of the loop than all frames, 7 ms for every look."""
    looked: list[int] = []
    tcp_info = connections._tcp_info

    def counted(end: socket.socket) -> tuple[int, int | None]:
        looked.append(end.fileno())
        return tcp_info(end)

    monkeypatch.setattr(connections, "_tcp_info", counted)
    count = 2 * connections.LOOKED_AT + 20
    with contextlib.ExitStack() as opened:
        for _ in range(count):
            opened.enter_context(plain_connection(front.gateway.endpoint))
        front.until(lambda: len(set(looked)) == count)
        now_s = time.monotonic() + 1
        looked.clear()
        front.gateway.connections.look(now_s)
        assert 0 < len(looked) <= connections.LOOKED_AT
        for number in range(1, 4):
            front.gateway.connections.look(now_s + number)
        assert len(set(looked)) == count


def test_connections_that_end_leave_no_descriptor(front: Front) -> None:
    ask(front.client(), "stays")
    for number in range(5):
        client = front.client()
        ask(client, f"{number}")
        until(lambda sent=f"{number}": sent in front.turn(), every_s=1e-3)  # type: ignore[misc]
        front.clients.remove(client)
        client.close()
    port = int(front.gateway.endpoint.rpartition(":")[2])

    def ends() -> list[int]:
        """A socket is there as long as libzmq or we have a descriptor of it."""
        sockets = psutil.Process().net_connections("tcp")
        return [
            connection.fd
            for connection in sockets
            if connection.laddr.port == port and connection.status != psutil.CONN_LISTEN
        ]

    seen_s = time.monotonic() + 0.3  # by then each has been looked at
    front.until(lambda: len(ends()) == 1 and time.monotonic() > seen_s)


def test_an_ipc_endpoint_has_nothing_that_counts_and_is_served_all_the_same(tmp_path: Path) -> None:
    front = Front(f"ipc://{tmp_path}/socket")
    ask(front.client(), "first")
    assert front.until(lambda: bool(front.gateway.waiting)) == ["first"]
    front.close()
