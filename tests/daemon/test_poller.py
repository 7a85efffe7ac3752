"""A turn of the loop takes some of what can be read, and leaves nobody out for long."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import pytest
import zmq

from shisha_rt.daemon.loop.poller import Poller
from tests.waiting import PATIENCE_S

PIPES = 64


@pytest.fixture
def pipes() -> Iterator[list[tuple[int, int]]]:
    pipes = [os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) for _ in range(PIPES)]
    yield pipes
    for fd in (fd for pipe in pipes for fd in pipe):
        os.close(fd)


def test_of_very_many_that_can_always_be_read_each_is_read_in_its_turn(pipes: list[tuple[int, int]]) -> None:
    poller = Poller()

    def read(number: int) -> list[object]:
        time.sleep(0.001)  # longer than a turn: the next one is left for the next turn
        return [number]

    for number, (reading, writing) in enumerate(pipes):
        os.write(writing, b"x")  # and nobody takes it out
        poller.watch(reading, functools.partial(read, number))
    turns = [list(poller.poll(0.0)) for _ in range(2 * PIPES)]
    assert max(map(len, turns)) == 1
    for round_ in (turns[:PIPES], turns[PIPES:]):
        assert {number for turn in round_ for number in turn} == set(range(PIPES))
    poller.close()


def test_quick_ones_are_read_in_one_turn_and_nothing_is_waited_for(pipes: list[tuple[int, int]]) -> None:
    poller = Poller()
    for number, (reading, writing) in enumerate(pipes[:2]):
        os.write(writing, b"x")

        def read(number: int, reading: int) -> list[object]:
            os.read(reading, 1)
            return [number]

        poller.watch(reading, functools.partial(read, number, reading))
    seen: list[object] = []
    while len(seen) < 2:  # usually at once
        seen += poller.poll(PATIENCE_S)
    assert sorted(map(str, seen)) == ["0", "1"]
    assert list(poller.poll(0.0)) == []
    poller.close()


def test_one_that_an_earlier_event_of_the_turn_has_ended_is_not_read(pipes: list[tuple[int, int]]) -> None:
    poller = Poller()
    for number, (reading, writing) in enumerate(pipes[:2]):
        os.write(writing, b"x")
        poller.watch(reading, functools.partial(lambda number: [number], number))
    seen = set()
    for event in poller.poll(0.0):
        seen.add(event)
        poller.unwatch(pipes[1 - int(str(event))][0])
    assert len(seen) == 1
    poller.close()


def test_a_socket_that_gives_way_to_another_in_a_turn_is_not_asked() -> None:
    """Also if the other has its descriptor's number by then, as the kernel gives the lowest that is free."""
    with zmq.Context() as context, context.socket(zmq.PAIR) as pushing, closing(Poller()) as poller:
        pulling = context.socket(zmq.PAIR)
        port = pulling.bind_to_random_port("tcp://127.0.0.1")
        pushing.connect(f"tcp://127.0.0.1:{port}")
        leaving = context.socket(zmq.PAIR)
        number = int(leaving.fileno())
        others: list[zmq.Socket[bytes]] = []

        def replace() -> list[str]:
            pulling.recv()
            poller.unwatch(int(leaving.fileno()))
            leaving.close()
            while number not in [int(other.fileno()) for other in others]:  # closed by a thread of ZeroMQ's
                others.append(context.socket(zmq.PAIR))
            poller.watch_socket(others[-1], list)
            return ["replaced"]

        poller.watch_socket(pulling, replace)
        poller.watch_socket(leaving, list)
        pushing.send(b"one")
        assert pulling.poll(10_000)
        assert list(poller.poll(0.0)) == ["replaced"]
        for socket in (pulling, *others):
            socket.close()


@contextmanager
def pairs(count: int) -> Iterator[list[tuple[zmq.Socket[bytes], zmq.Socket[bytes]]]]:
    """Sockets, each with the one that sends to it."""
    with zmq.Context() as context, ExitStack() as closing_all:
        made = []
        for number in range(count):
            pushing, pulling = (closing_all.enter_context(context.socket(zmq.PAIR)) for _ in range(2))
            pulling.bind(f"inproc://{number}")
            pushing.connect(f"inproc://{number}")
            made.append((pushing, pulling))
        yield made


def test_a_socket_is_asked_again_once_it_has_sent() -> None:
    with pairs(1) as [(pushing, pulling)], closing(Poller()) as poller:
        poller.watch_socket(pulling, lambda: [pulling.recv()])
        assert list(poller.poll(0.0)) == []
        pushing.send(b"one")
        assert pulling.poll(10_000)  # as sending does, this uses up what the descriptor says
        assert list(poller.poll(0.0)) == []
        poller.stir(int(pulling.fileno()))
        assert list(poller.poll(0.0)) == [b"one"]
        assert list(poller.poll(0.0)) == []
        pushing.send(b"another")
        assert list(poller.poll(10.0)) == [b"another"]


def test_a_busy_socket_keeps_no_other_from_being_read() -> None:
    with pairs(2) as [(busy, first), (quiet, second)], closing(Poller()) as poller:
        for socket in (first, second):
            poller.watch_socket(socket, lambda socket=socket: [socket.recv()])  # type: ignore[misc]
        assert list(poller.poll(0.0)) == []
        for _ in range(10):
            busy.send(b"busy")
        quiet.send(b"quiet")
        assert b"quiet" in [event for _ in range(3) for event in poller.poll(10.0)]


def test_a_socket_that_sent_and_is_watched_no_more_is_not_asked() -> None:
    with pairs(1) as [(pushing, pulling)], closing(Poller()) as poller:
        poller.watch_socket(pulling, lambda: [pulling.recv()])
        number = int(pulling.fileno())
        pushing.send(b"one")
        poller.unwatch(number)
        poller.stir(number)
        assert list(poller.poll(0.0)) == []
