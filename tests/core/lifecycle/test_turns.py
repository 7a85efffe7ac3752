"""Whose frame is next: by priority, by client, by stream; and nobody waits for ever."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from shisha_rt.core.lifecycle import instructions as do
from shisha_rt.core.lifecycle.events import DEFAULT_PRIORITY
from shisha_rt.core.lifecycle.records import ClientState, Frame, StreamState
from shisha_rt.core.lifecycle.turns import PATIENCE, Turns
from shisha_rt.protocol.limits import MAX_PRIORITY
from tests.core.lifecycle.driven_lifecycle import ONE_STAGE, live


class _Clients:
    """Frames of named clients and streams, numbered as they come."""

    def __init__(self) -> None:
        self.turns = Turns()
        self._clients: dict[str, ClientState] = {}
        self._streams: dict[tuple[str, str], StreamState] = {}
        self._count = 0

    def add(self, client: str, priority: int = DEFAULT_PRIORITY, stream: str = "s") -> Frame:
        state = self._clients.setdefault(client, ClientState(client))
        key = client, stream, 0
        series = self._streams.setdefault((client, stream), StreamState(key, state, ordered=True))
        frame = Frame(self._count, series, 1, None, priority=priority)
        self._count += 1
        self.turns.add(frame)
        return frame

    def order(self) -> list[Frame]:
        taken = []
        while self.turns.levels:
            taken.append(self.turns.take())
        return taken


def test_clients_take_turns_and_so_do_the_streams_of_each() -> None:
    clients = _Clients()
    a = [clients.add("a", stream=stream) for stream in ("x", "x", "y")]
    b = [clients.add("b"), clients.add("b")]
    assert clients.order() == [a[0], b[0], a[2], b[1], a[1]]


def test_the_most_urgent_goes_first_and_a_stream_keeps_its_order() -> None:
    clients = _Clients()
    usual, later = clients.add("a"), clients.add("a", priority=1)
    urgent, least = clients.add("b", priority=2), clients.add("c", priority=9)
    assert clients.order() == [urgent, usual, later, least], "the urgent frame of a waits for the one before it"


@pytest.mark.parametrize("others", [[1], [1, 2, 3], range(1, MAX_PRIORITY)])
def test_however_many_urgent_frames_come_the_least_urgent_has_its_turn(others: Sequence[int]) -> None:
    clients = _Clients()
    last = [clients.add("slow", priority=MAX_PRIORITY) for _ in range(3)]
    waited = [0]
    while waited[-1] >= 0:
        for priority in others:
            clients.add(f"urgent {priority}", priority)
        frame = clients.turns.take()
        if frame in last:
            waited.append(0)
        else:
            waited[-1] += 1
        assert waited[-1] <= PATIENCE + len(others)
        if len(waited) > len(last):
            break
    assert waited[0] >= PATIENCE, "it is the urgent ones that go before"


@pytest.mark.parametrize("seed", range(30))
def test_as_many_go_before_as_was_said_if_nobody_else_comes(seed: int) -> None:
    rng = random.Random(seed)
    clients = _Clients()
    for _ in range(rng.randint(0, 20)):
        clients.add(rng.choice("abc"), priority=rng.choice((1, 5)))
    ahead = clients.turns.ahead("c", 1)
    mine = clients.add("c", priority=1, stream="mine")
    before = clients.order().index(mine)
    assert before <= ahead, "streams of one client take turns, so it may be sooner"
    assert clients.turns.ahead("c", 1) == 0


@pytest.mark.parametrize("seed", range(30))
def test_frames_that_give_up_leave_the_others_their_turns(seed: int) -> None:
    rng = random.Random(seed)
    clients = _Clients()
    frames = [
        clients.add(rng.choice("abc"), rng.choice((1, 5, 9)), rng.choice("xy")) for _ in range(rng.randint(1, 25))
    ]
    gone = rng.sample(frames, rng.randint(0, len(frames)))
    for frame in gone:
        clients.turns.remove(frame)
    stay = [frame for frame in frames if frame not in gone]
    assert clients.turns.waiting == len(stay)
    order = clients.order()
    assert sorted(frame.number for frame in order) == [frame.number for frame in stay]
    for stream in {frame.stream.key: frame.stream for frame in stay}.values():
        assert [f for f in order if f.stream is stream] == [f for f in stay if f.stream is stream]
    assert not clients.turns.levels


def test_an_urgent_frame_of_another_client_overtakes_those_without_a_slot_alone() -> None:
    daemon = live(ONE_STAGE, slots=1)
    running, waiting = daemon.send(client="a"), daemon.send(client="a")
    urgent = daemon.send(client="b", priority=1)
    daemon.finish(running)
    assert [fill.frame for fill in daemon.all(do.Fill)] == [running, urgent]
    daemon.finish(urgent)
    daemon.finish(waiting)
    assert [frame for frame, _ in daemon.answers()] == [running, urgent, waiting]


def test_unordered_frames_of_one_client_go_by_their_own_priority() -> None:
    daemon = live(ONE_STAGE, slots=1)
    running, usual, urgent = daemon.send(), daemon.send(), daemon.send(priority=1)
    daemon.finish(running)
    assert [fill.frame for fill in daemon.all(do.Fill)] == [running, urgent]
    daemon.finish(urgent)
    daemon.finish(usual)


@pytest.mark.parametrize(("client", "priority"), [("b", DEFAULT_PRIORITY), ("a", 1)], ids=["another client", "urgent"])
def test_who_was_given_a_slot_first_is_computed_first_whoever_came_before(client: str, priority: int) -> None:
    """Else a frame that has had its turn waits for all older ones, as each slot that is free goes to one of these."""
    daemon = live(ONE_STAGE, slots=4)
    for _ in range(30):
        daemon.send(client="a")
    late = daemon.send(client=client, priority=priority)
    for number in range(4):
        daemon.finish(daemon.all(do.RunPart)[number].descriptor.frame)
    assert late in [part.descriptor.frame for part in daemon.all(do.RunPart)[:6]]
