"""A turn of the loop takes some of what can be read, and leaves nobody out for long."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from shisha_rt.daemon.loop.poller import Poller

PIPES = 64


@pytest.fixture
def pipes() -> Iterator[list[tuple[int, int]]]:
    pipes = [os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) for _ in range(PIPES)]
    yield pipes
    for fd in (fd for pipe in pipes for fd in pipe):
        os.close(fd)


def test_of_very_many_that_can_always_be_read_each_is_read_in_its_turn(pipes: list[tuple[int, int]]) -> None:
    poller = Poller()
    for number, (reading, writing) in enumerate(pipes):
        os.write(writing, b"x")  # and nobody takes it out
        poller.watch(reading, lambda number=number: [number])  # type: ignore[misc]
    turns = [list(poller.poll(0.0)) for _ in range(PIPES)]
    assert max(map(len, turns)) <= PIPES // 8
    first = next(at for at in range(PIPES) if {number for turn in turns[:at] for number in turn} == set(range(PIPES)))
    assert first == PIPES // len(turns[0])
    poller.close()


def test_one_that_an_earlier_event_of_the_turn_has_ended_is_not_read(pipes: list[tuple[int, int]]) -> None:
    poller = Poller()
    for number, (reading, writing) in enumerate(pipes[:2]):
        os.write(writing, b"x")
        poller.watch(reading, lambda number=number: [number])  # type: ignore[misc]
    seen = []
    for event in poller.poll(0.0):
        seen.append(event)
        poller.unwatch(pipes[1 - int(str(event))][0])
    assert len(seen) == 1
    poller.close()
