"""Requests and their slots: what is written into the arena, and what of it comes out as an answer."""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec
import numpy as np
import pytest

from shisha_rt.core.lifecycle.instructions import Collect, Deliver, Refuse
from shisha_rt.daemon.front.regions import Regions
from shisha_rt.daemon.front.requests import AnswerTo, Requests, SeveralFrames, Ticket
from shisha_rt.errors import Error
from shisha_rt.model.index import ModelIndex
from shisha_rt.process.arena import Arena
from shisha_rt.process.layout import layouts_of
from shisha_rt.protocol.request import InferRequest, Lent
from shisha_rt.protocol.signature import Signature
from shisha_rt.tensors import Tensor

INDEX = ModelIndex(
    engine="test",
    form="as_is",
    layer_count=1,
    legal_cuts=(),
    node_layers=(0,),
    inputs=(Tensor("x", (4,), "UINT8"),),
    outputs=(Tensor("found", (9, 2), "FP32", (0,)), Tensor("y", (4,), "UINT8")),
    crossing=(),
)
SLOT = 1


@pytest.fixture
def arena() -> Iterator[Arena]:
    arena = Arena.create(layouts_of([INDEX.tensors], output_bytes=1024), slot_count=2, place_count=1)
    yield arena
    arena.close()


def answer_of(arena: Arena, outputs: tuple[str, ...], rows: int) -> Ticket:
    """Of a frame whose stage doubles x and finds so many rows."""
    requests = Requests(arena, Regions(16, 1 << 20))
    request = InferRequest("7", None, None, None, {"x": memoryview(bytes(range(4)))}, outputs, 4)
    ticket = requests.arrived("client", request, lambda _: None, now_s=1.0).ticket
    requests.fill(ticket, SLOT)
    x, found_region, y = (arena.layout.regions[name] for name in ("x", "found", "y"))
    arena.view(SLOT, y)[...] = 2 * arena.view(SLOT, x)
    arena.set_shape(SLOT, found_region, (rows, 2))
    if rows * 8 <= found_region.room_bytes:
        arena.view(SLOT, found_region)[...] = rows
    requests.collect(ticket, Collect(ticket.frame, SLOT, epoch=3))
    return requests.end(Deliver(ticket.frame, None, "", ticket), now_s=2.0)


@pytest.mark.parametrize("refused", [True, False])
def test_a_request_of_several_frames_that_is_refused_is_answered_at_once(arena: Arena, refused: bool) -> None:
    request = InferRequest("7", None, None, None, {"x": memoryview(bytes(range(12)))}, (), 12, frames=3)
    answers: list[Ticket] = []
    several = SeveralFrames(request, Signature("net", (), (Tensor("y", (4,), "UINT8"),)), answers.append)
    requests, submitted = Requests(arena, Regions(16, 1 << 20)), list[tuple[Ticket, int]]()

    def submit(frame: InferRequest, answer_to: AnswerTo, frames: int) -> Ticket:
        ticket: Ticket = requests.arrived("client", frame, answer_to, 1.0, frames).ticket
        submitted.append((ticket, frames))
        if refused:
            instruction = Refuse(ticket.frame, Error.TOO_MANY_FRAMES, "full", ticket)
            answer_to(requests.end(instruction, 2.0))
        return ticket

    numbers = several.submit(submit)
    assert [frames for _, frames in submitted] == ([3] if refused else [3, 0, 0])
    assert numbers == tuple(ticket.frame for ticket, _ in submitted)
    for ticket, _ in submitted:
        if not refused:  # one fails later, and the answer is that of all
            ticket.answer_to(requests.end(Deliver(ticket.frame, Error.DEADLINE_PASSED, "late", ticket), 2.0))
    (answer,) = answers
    assert answer.error is (Error.TOO_MANY_FRAMES if refused else Error.DEADLINE_PASSED)
    assert answer.message == "full" if refused else answer.message.startswith("frame 0 of 3: late")


@pytest.mark.parametrize("rows", [0, 1, 128])
def test_an_answer_has_the_shape_that_came_out(arena: Arena, rows: int) -> None:
    answer = answer_of(arena, ("y", "found"), rows)
    assert (answer.error, answer.epoch) == (None, 3)
    y, found_output = answer.outputs
    assert (y.tensor.name, y.shape, y.data) == ("y", (4,), bytes((0, 2, 4, 6)))
    assert (found_output.tensor.name, found_output.shape) == ("found", (rows, 2))
    np.testing.assert_array_equal(np.frombuffer(found_output.data, "<f4"), np.full(2 * rows, rows))


def test_an_output_without_room_is_the_error_of_who_asks_for_it(arena: Arena) -> None:
    answer = answer_of(arena, ("y", "found"), rows=129)
    assert (answer.error, answer.outputs) == (Error.OUTPUT_TOO_LARGE, ())
    assert answer.message == (
        "output 'found': 1032 bytes (shape [129, 2]); expected at most 1024, which serve --max-output-bytes sets"
    )
    assert answer_of(arena, ("y",), rows=129).error is None


def test_booleans_are_0_or_1_however_they_come() -> None:
    """Engines differ in what they take other bytes for."""
    given, x = bytes((0, 1, 2, 255)), Tensor("x", (4,), "BOOL")
    index = msgspec.structs.replace(INDEX, inputs=(x,), outputs=())
    arena, regions = (
        Arena.create(layouts_of([index.tensors], output_bytes=1024), slot_count=2, place_count=1),
        Regions(16, 1 << 20),
    )
    try:
        requests, region = Requests(arena, regions), regions.create(1, 4096)
        os.pwrite(region.fd, given, 0)
        for sent, lent in (({"x": memoryview(given)}, {}), ({}, {"x": Lent(region.token, 4)})):
            arena.raw(SLOT, arena.layout.regions["x"])[:] = 0
            request = InferRequest("7", None, None, None, sent, (), 4, lent_in=lent)
            ticket = requests.arrived("client", request, lambda _: None, now_s=1.0).ticket
            requests.fill(ticket, SLOT)
            requests.read_lent(ticket, SLOT)
            assert arena.read(SLOT, arena.layout.regions["x"]) == bytes((0, 1, 1, 1))
            requests.regions.release(ticket.reads)
    finally:
        regions.close()
        arena.close()
