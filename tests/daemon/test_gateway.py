"""Which endpoints are served, and what happens to answers that nobody reads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import zmq

from shisha_rt.daemon.front.endpoint import check_endpoint
from shisha_rt.daemon.front.outbox import Outbox
from shisha_rt.errors import BadInput


@pytest.mark.parametrize(
    "endpoint",
    ["tcp://127.0.0.1:5555", "tcp://127.0.0.1:0", "tcp://localhost:1", "tcp://[::1]:5555", "tcp://127.9.9.9:1",
     "ipc:///tmp/socket"],
)  # fmt: skip
def test_this_machine_is_served(endpoint: str) -> None:
    check_endpoint(endpoint)


@pytest.mark.parametrize(
    "endpoint",
    ["tcp://0.0.0.0:5555", "tcp://*:5555", "tcp://192.0.2.1:5555", "tcp://example.org:5555", "tcp://127.0.0.1",
     "tcp://127.0.0.1:http", "tcp://127.0.0.1:99999", "tcp://[::]:5555", "udp://127.0.0.1:1", "inproc://a", "ipc://",
     "ipc://@abstract", "127.0.0.1:5555", ""],
)  # fmt: skip
def test_anything_else_is_refused_in_one_line(endpoint: str) -> None:
    with pytest.raises(BadInput, match=r"expected tcp://127\.0\.0\.1:PORT or ipc://PATH") as caught:
        check_endpoint(endpoint)
    assert "\n" not in str(caught.value)


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
    peers = Peers(limit_bytes=1000)
    yield peers
    for socket in (*peers.sockets, peers.router):
        socket.close(linger=0)
    peers.context.term()


def test_a_slow_client_keeps_its_answers_in_order_and_holds_up_nobody(peers: Peers) -> None:
    slow, quick = peers.peer(b"slow"), peers.peer(b"quick")
    for number in range(20):
        peers.outbox.send([b"slow", b"%d" % number])
    assert not peers.outbox.empty
    peers.outbox.send([b"quick", b"answer"])
    assert quick.recv() == b"answer"
    received: list[int] = []
    while len(received) < 20:
        peers.outbox.flush()
        if slow.poll(timeout=1):
            received.append(int(slow.recv()))
    assert received == list(range(20))
    peers.outbox.flush()
    assert peers.outbox.empty
    assert peers.lost == 0


def test_beyond_the_limit_answers_are_counted_and_dropped(peers: Peers) -> None:
    peers.peer(b"slow")
    for _ in range(50):
        peers.outbox.send([b"slow", bytes(96)])
    kept = 10  # of 100 bytes each, identity included
    assert 50 - kept - 4 <= peers.lost <= 50 - kept


def test_a_client_that_left_costs_its_answers_only(peers: Peers) -> None:
    peers.outbox.send([b"nobody", b"answer"])
    assert peers.lost == 1
    assert peers.outbox.empty
