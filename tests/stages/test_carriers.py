"""What a carrier between a relay and its far end promises.

A carrier's other end says again what it hears, in a process of its own.
"""

from __future__ import annotations

import contextlib
import gc
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Final

import pytest
import zmq

from stages.far.carrier import Carried, Carrier, CarrierBroken, NearEnd
from tests.process.descriptors import open_descriptors
from tests.waiting import PATIENCE_S

MIB: Final = 1 << 20
SIZES: Final = (0, 1, 4096, 65535, 65536, 65537, MIB)
LARGEST_BYTES: Final = 64 * MIB

OTHER_END: Final = """
import select, sys
from stages.far.carrier import CarrierBroken, FarEnd

end = FarEnd("127.0.0.1", sys.argv[1])
print(end.endpoint, end.key, flush=True)
end.await_connected(60.0, "nobody comes")
try:
    while True:
        carried = end.take()
        if carried is None:
            select.select(end.filenos(), [], [], 0.05)
        else:
            end.send(carried.data, [memoryview(bytes(its)) for its in carried.tensors])
except CarrierBroken as broken:
    sys.exit(str(broken))
"""


@pytest.fixture(autouse=True)
def _no_descriptor_is_left() -> Iterator[None]:
    with zmq.Context() as context, context.socket(zmq.PAIR) as end, context.socket(zmq.PAIR) as other:
        end.bind("inproc://first")  # some stay from the first sockets on, and from the first message that is not copied
        other.connect("inproc://first")
        end.send(bytes(MIB), copy=False)
        other.recv()
    gc.collect()  # or what an earlier test has left in a cycle of references is closed meanwhile
    before = open_descriptors()
    yield
    assert open_descriptors() == before


Ends = tuple[Carrier, subprocess.Popen[bytes]]


@pytest.fixture
def ends() -> Iterator[Ends]:
    pipe = subprocess.PIPE
    with (
        contextlib.closing(NearEnd()) as end,
        subprocess.Popen([sys.executable, "-c", OTHER_END, end.key], stdout=pipe, stderr=pipe) as process,
    ):
        try:
            assert process.stdout is not None
            endpoint, key = process.stdout.readline().decode().split()
            end.connect(endpoint, key)
            end.await_connected(PATIENCE_S, "nobody answers")
            yield end, process
        finally:
            process.kill()


def taken(end: Carrier) -> Carried:
    """The next message, waited for as the relay does."""
    until_s = time.monotonic() + PATIENCE_S
    while True:
        carried = end.take()
        if carried is not None:
            return carried
        assert time.monotonic() < until_s, "nothing comes"
        select.select(end.filenos(), [], [], 0.1)


def content(size: int, seed: int = 0) -> memoryview:
    return memoryview(random.Random(seed).randbytes(size))


def test_messages_and_tensors_cross_as_they_are_and_in_order(ends: Ends) -> None:
    end, _ = ends
    sent: list[tuple[bytes, list[memoryview]]] = [(b"", [])] + [(b"%d" % size, [content(size, size)]) for size in SIZES]
    sent += [
        (b"many", [content(size, seed) for seed in range(20) for size in (0, 7, 3000)]),
        (content(MIB).tobytes(), []),
    ]
    sent += [(b"%d" % number, [content(number)] * (number % 3)) for number in range(100)]
    heard = []
    for data, tensors in sent:
        end.send(data, tensors)
    for _ in sent:
        carried = taken(end)
        heard.append((carried.data, [bytes(tensor) for tensor in carried.tensors]))
    assert heard == [(data, [bytes(tensor) for tensor in tensors]) for data, tensors in sent]
    assert end.take() is None


@pytest.mark.long
def test_one_of_64_mib(ends: Ends) -> None:
    end, _ = ends
    tensor = content(LARGEST_BYTES)
    end.send(b"large", [tensor])
    (back,) = taken(end).tensors
    assert back == tensor


def test_what_has_come_is_told_of_whenever_it_comes(ends: Ends) -> None:
    """Sending does not take the descriptors' word that something is there, for whoever takes before waiting."""
    end, _ = ends
    for number in range(200):
        end.send(b"%d" % number)
        until_s = time.monotonic() + PATIENCE_S
        while (carried := end.take()) is None:
            assert select.select(end.filenos(), [], [], PATIENCE_S)[0]
            assert time.monotonic() < until_s
        assert carried.data == b"%d" % number


def test_one_that_is_killed_is_noticed_at_once(ends: Ends) -> None:
    end, process = ends
    end.send(b"hello")
    taken(end)
    assert end.take() is None
    process.kill()
    process.wait()
    assert select.select(end.filenos(), [], [], PATIENCE_S)[0]
    with pytest.raises(CarrierBroken):
        taken(end)


def test_one_that_does_not_read_costs_no_more_than_so_much(ends: Ends) -> None:
    """It never waits for it either."""
    end, process = ends
    end.send(b"hello")
    taken(end)
    os.kill(process.pid, signal.SIGSTOP)
    tensor, sent = content(MIB), 0
    with contextlib.suppress(CarrierBroken):
        while sent < 5000:
            end.send(b"hello?", [tensor])
            sent += 1
    assert sent < 5000
    with pytest.raises(CarrierBroken, match="does not read"):
        end.send(b"hello?")


def test_who_closes_is_gone_for_the_other_end(ends: Ends) -> None:
    end, process = ends
    end.send(b"hello")
    taken(end)
    end.close()
    assert process.wait(PATIENCE_S) == 1
    assert process.stderr is not None
    assert process.stderr.read().decode().strip() == "the connection ended"
