"""What the world may do to a far end that listens, before its relay has come and after; and to a relay that calls."""

from __future__ import annotations

import contextlib
import random
import select
import socket
import time
from collections.abc import Iterator
from typing import Final

import pytest
import zmq

from stages.far.carrier import Carrier, CarrierBroken, FarEnd, NearEnd
from tests.stages.test_carriers import MIB, taken
from tests.waiting import PATIENCE_S

Keys = tuple[bytes, bytes]
WORDS: Final = [b"%d" % number for number in range(50)]


def everything(end: Carrier) -> list[bytes]:
    """What still comes; then it is broken, and stays so."""
    heard = []
    with contextlib.suppress(CarrierBroken):
        while True:
            heard.append(taken(end).data)
    for _ in range(2):
        with pytest.raises(CarrierBroken):
            end.take()
    return heard


class Callers:
    """Sockets of anybody's, with any keys or none."""

    def __init__(self) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._sockets: list[zmq.Socket[bytes]] = []

    def socket(self, keys: Keys | None) -> zmq.Socket[bytes]:
        socket = self._context.socket(zmq.PAIR)
        self._sockets.append(socket)
        if keys is not None:
            socket.set(zmq.CURVE_PUBLICKEY, keys[0])
            socket.set(zmq.CURVE_SECRETKEY, keys[1])
        return socket

    def call(self, far: FarEnd, keys: Keys | None) -> zmq.Socket[bytes]:
        socket = self.socket(keys)
        if keys is not None:
            socket.set(zmq.CURVE_SERVERKEY, far.key.encode())
        socket.connect(far.endpoint)
        return socket

    def leave_but(self, kept: zmq.Socket[bytes]) -> None:
        for held in self._sockets:
            if held is not kept:
                held.close(linger=0)

    def close(self) -> None:
        self._context.destroy(linger=0)


@pytest.fixture
def keys() -> Keys:
    return zmq.curve_keypair()


@pytest.fixture
def far(keys: Keys) -> Iterator[FarEnd]:
    with contextlib.closing(FarEnd("127.0.0.1", keys[0].decode(), MIB)) as far:
        yield far


@pytest.fixture
def callers() -> Iterator[Callers]:
    callers = Callers()
    yield callers
    callers.close()


def settle(far: FarEnd, for_s: float = 0.3) -> None:
    until_s = time.monotonic() + for_s
    while time.monotonic() < until_s:
        assert far.take() is None
        select.select(far.filenos(), [], [], 0.01)


def noise(far: FarEnd) -> socket.socket:
    host, port = far.endpoint.removeprefix("tcp://").split(":")
    noise = socket.create_connection((host, int(port)))
    noise.sendall(b"GET / HTTP/1.1\r\n\r\n" + random.Random(1).randbytes(10000))
    return noise


def test_strangers_neither_come_in_nor_keep_the_relay_out(far: FarEnd, keys: Keys, callers: Callers) -> None:
    for stranger in (None, zmq.curve_keypair()):
        callers.call(far, stranger)
    with contextlib.closing(noise(far)):
        settle(far)
    assert not far.connected
    relay = callers.call(far, keys)
    far.await_connected(PATIENCE_S, "nobody comes")
    relay.send(b"hello")
    assert taken(far).data == b"hello"


def test_who_comes_after_the_relay_is_refused_and_keeps_nobody_busy(far: FarEnd, keys: Keys, callers: Callers) -> None:
    relay = callers.call(far, keys)
    far.await_connected(PATIENCE_S, "nobody comes")
    for stranger in (None, zmq.curve_keypair(), keys):
        late = callers.call(far, stranger)
        with contextlib.suppress(zmq.Again):
            late.send(b"let me in", zmq.NOBLOCK)
    with contextlib.closing(noise(far)):
        settle(far)
    for number in range(10):
        relay.send(b"%d" % number)
        assert taken(far).data == b"%d" % number
        far.send(b"yes")
        assert relay.recv() == b"yes"
    callers.leave_but(relay)
    until_s = time.monotonic() + PATIENCE_S
    while select.select(far.filenos(), [], [], 0)[0]:
        assert far.take() is None
        assert time.monotonic() < until_s, "nothing is left to read, and it is told that there is"


def test_a_message_beyond_every_tensor_is_the_end(far: FarEnd, keys: Keys, callers: Callers) -> None:
    relay = callers.call(far, keys)
    far.await_connected(PATIENCE_S, "nobody comes")
    relay.send_multipart([b"as large as any", bytes(MIB)])
    assert len(taken(far).tensors[0]) == MIB
    relay.send_multipart([b"larger", bytes(2 * MIB)])
    with pytest.raises(CarrierBroken, match="the connection ended"):
        taken(far)


def test_what_was_said_before_the_relay_left(far: FarEnd, keys: Keys, callers: Callers) -> None:
    relay = callers.call(far, keys)
    far.await_connected(PATIENCE_S, "nobody comes")
    for words in WORDS:
        relay.send(words)
    relay.close(linger=-1)
    time.sleep(0.2)
    assert everything(far) == WORDS


def test_what_was_said_before_the_far_end_left(keys: Keys, callers: Callers) -> None:
    far = callers.socket(keys)
    far.set(zmq.CURVE_SERVER, 1)
    port = far.bind_to_random_port("tcp://127.0.0.1")
    with contextlib.closing(NearEnd()) as near:
        near.connect(f"tcp://127.0.0.1:{port}", keys[0].decode())
        near.await_connected(PATIENCE_S, "nobody comes")
        for words in WORDS:
            far.send(words)
        far.close(linger=-1)
        time.sleep(0.2)
        assert everything(near) == WORDS
        with pytest.raises(CarrierBroken, match="the connection ended"):
            near.send(b"are you there?")


def test_a_far_end_with_another_key(far: FarEnd) -> None:
    public, _ = zmq.curve_keypair()
    with contextlib.closing(NearEnd()) as near:
        near.connect(far.endpoint, public.decode())
        with pytest.raises(CarrierBroken):
            near.await_connected(PATIENCE_S, "nobody comes")


def test_nobody_listens() -> None:
    with socket.socket() as nobody, contextlib.closing(NearEnd()) as near:
        nobody.bind(("127.0.0.1", 0))
        near.connect(f"tcp://127.0.0.1:{nobody.getsockname()[1]}", zmq.curve_keypair()[0].decode())
        with pytest.raises(CarrierBroken, match="cannot be reached"):
            near.await_connected(PATIENCE_S, "nobody comes")


@pytest.mark.parametrize("endpoint", ["tcp://no-such-host.invalid:1", "nothing", "tcp://127.0.0.1:99999"])
def test_an_endpoint_that_is_none(endpoint: str) -> None:
    def connect(near: NearEnd) -> None:
        near.connect(endpoint, zmq.curve_keypair()[0].decode())
        near.await_connected(PATIENCE_S, "nobody comes")

    with contextlib.closing(NearEnd()) as near, pytest.raises(CarrierBroken):
        connect(near)


def test_an_address_that_is_not_this_hosts() -> None:
    with pytest.raises(CarrierBroken, match=r"192\.0\.2\.1: it cannot be"):
        FarEnd("192.0.2.1", zmq.curve_keypair()[0].decode())
