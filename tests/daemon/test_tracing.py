"""Which frames are looked at closely, and what is noted of them: steps that cover the frame's time without a gap."""

from __future__ import annotations

import itertools
import time

import msgspec
import pytest

from shisha_rt.core.lifecycle.events import Beside, Descriptor
from shisha_rt.daemon.front.requests import Ticket
from shisha_rt.daemon.tracing import FrameTrace, Tracing
from shisha_rt.errors import Error
from shisha_rt.messages.traces import (
    FRAME_TRACED,
    FROM_TRACER,
    TO_TRACER,
    FramesTraced,
    FrameTraced,
    TracedStep,
    TracesCounted,
    What,
)
from shisha_rt.protocol.request import InferRequest
from shisha_rt.protocol.traceparent import read_traceparent

CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def ticket(
    number: int = 0, traceparent: str | None = None, arrived_s: float = 100.0, stream: str | None = "s"
) -> Ticket:
    request = InferRequest("r", stream, None, None, {}, (), 0, traceparent=traceparent)
    return Ticket(request, number, lambda _: None, arrived_s)


def part(stage: int, epoch: int = 1, attempt: int = 0, beside: tuple[Beside, ...] = ()) -> Descriptor:
    return Descriptor(7, 0, attempt, stage, epoch, 0, beside)


def steps_of(traced: FrameTraced) -> list[tuple[object, ...]]:
    return [(step.what, step.stage, round(step.begin_s, 6), round(step.seconds, 6)) for step in traced.steps]


def ended(trace: FrameTrace, latency_s: float, error: Error | None = None) -> FrameTraced:
    answered = ticket()
    answered.latency_s, answered.error = latency_s, error
    return trace.ended(answered)


def test_a_frame_through_two_stages_and_out_in_its_turn() -> None:
    trace = FrameTrace(100.0, None)
    trace.filled(100.5, 100.6)
    trace.dealt(part(0), "p0", 100.5, 100.6)  # ready as it was admitted, which the copy is part of
    trace.done(0, 0.2, 100.9)
    trace.dealt(part(1, beside=(Beside(1, 0, 1), Beside(2, 0, 2))), "p1", 100.9, 100.95)
    trace.done(1, 0.5, 101.9)
    trace.collected(101.9, 102.0)
    traced = ended(trace, 3.0)
    assert steps_of(traced) == [
        (What.QUEUE, -1, 0.0, 0.5),
        (What.COPY_IN, -1, 0.5, 0.1),
        (What.WAIT, 0, 0.6, 0.1),
        (What.RUN, 0, 0.7, 0.2),
        (What.WAIT, 1, 0.9, 0.5),
        (What.RUN, 1, 1.4, 0.5),
        (What.COPY_OUT, -1, 1.9, 0.1),
        (What.ORDER, -1, 2.0, 1.0),
    ]
    assert sum(step.seconds for step in traced.steps) == pytest.approx(traced.latency_s)
    assert [step.frames for step in traced.steps if step.what is What.RUN] == [1, 3]
    assert traced.code == "OK"
    assert abs(traced.arrived_ns / 1e9 - (time.time() - time.monotonic() + 100.0)) < 1.0


def test_a_frame_without_a_stream_waits_for_no_order() -> None:
    """However late the daemon comes to its answer."""
    trace, answered = FrameTrace(100.0, None), ticket(stream=None)
    trace.filled(100.5, 100.6)
    trace.dealt(part(0), "p0", 100.5, 100.6)
    trace.done(0, 0.2, 100.9)
    trace.collected(100.9, 101.0)
    answered.latency_s = 3.0
    assert steps_of(trace.ended(answered))[3:] == [(What.RUN, 0, 0.7, 0.2), (What.COPY_OUT, -1, 0.9, 2.1)]


def test_a_part_that_is_lost_runs_again() -> None:
    trace = FrameTrace(100.0, None)
    trace.filled(100.0, 100.0)
    trace.dealt(part(0), "p0", 100.0, 100.0)
    trace.dealt(part(0), "p1", 101.0, 101.5)
    trace.done(0, 0.5, 102.0)
    trace.collected(102.0, 102.0)
    assert steps_of(ended(trace, 2.0))[2:6] == [
        (What.WAIT, 0, 0.0, 0.0),
        (What.LOST, 0, 0.0, 1.0),
        (What.WAIT, 0, 1.0, 0.5),
        (What.RUN, 0, 1.5, 0.5),
    ]


def test_a_new_start_under_another_plan_leaves_nothing_of_the_old_one_open() -> None:
    trace = FrameTrace(100.0, None)
    trace.filled(100.0, 100.0)
    trace.dealt(part(0), "p0", 100.0, 100.0)
    trace.done(0, 1.0, 101.0)
    trace.dealt(part(1), "p1", 101.0, 101.0)  # lost: the new plan has no stage 1
    trace.dealt(part(0, epoch=2, attempt=1), "p0", 103.0, 103.0)
    trace.done(0, 1.0, 104.0)
    trace.collected(104.0, 104.0)
    traced = ended(trace, 4.0)
    assert [(step.what, step.stage, step.epoch) for step in traced.steps if step.stage >= 0] == [
        (What.WAIT, 0, 1),
        (What.RUN, 0, 1),
        (What.WAIT, 1, 1),
        (What.LOST, 1, 1),
        (What.WAIT, 0, 2),
        (What.RUN, 0, 2),
    ]
    assert sum(step.seconds for step in traced.steps) == pytest.approx(4.0)


def test_a_frame_whose_answer_is_an_error() -> None:
    trace = FrameTrace(100.0, read_traceparent(CALLER))
    trace.filled(100.0, 100.0)
    trace.dealt(part(0), "p0", 100.0, 100.0)
    traced = ended(trace, 1.5, Error.DEADLINE_PASSED)
    assert (traced.code, traced.parent_id, traced.trace_id) == ("DEADLINE_EXCEEDED", *reversed(CALLER.split("-")[1:3]))
    assert steps_of(traced)[-1] == (What.LEFT, 0, 0.0, 1.5)
    waited = ended(FrameTrace(100.0, None), 0.5, Error.CANCELLED)
    assert steps_of(waited) == [(What.QUEUE, -1, 0.0, 0.5)]


@pytest.fixture
def sent() -> list[FrameTraced]:
    return []


def looked_at(tracing: Tracing, frames: int, traceparent: str | None = None, every_s: float = 0.0) -> int:
    traced = 0
    for number in range(frames):
        frame = ticket(number, traceparent, 100.0 + number * every_s)
        tracing.arrived(frame)
        if frame.trace is not None:
            traced += 1
            tracing.ended(frame)
    return traced


@pytest.mark.parametrize("ratio", [1.0, 0.5, 0.1, 0.01])
def test_so_many_of_all_frames_are_looked_at(ratio: float) -> None:
    frames = 20_000
    assert looked_at(Tracing(ratio), frames) == pytest.approx(frames * ratio, rel=0.3)


def test_one_a_second_is_looked_at_of_few(sent: list[FrameTraced]) -> None:
    assert looked_at(Tracing(0.001, sent.append), 100, every_s=1.5) == 100
    assert looked_at(Tracing(0.0, sent.append), 100, every_s=1.5) == 0
    assert len(sent) == 100


def test_a_caller_s_word_counts_where_traces_are_sent(sent: list[FrameTraced]) -> None:
    assert looked_at(Tracing(0.0, sent.append), 50, CALLER) == 50
    assert {traced.trace_id for traced in sent} == {CALLER.split("-")[1]}
    assert looked_at(Tracing(1.0, sent.append), 50, CALLER[:-1] + "0") == 0
    assert looked_at(Tracing(0.0, sent.append), 50, "none at all") == 0
    assert looked_at(Tracing(0.0), 50, CALLER) == 0


def test_the_slowest_is_told_until_it_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    tracing = Tracing(1.0)
    assert tracing.slow() is None
    for number, latency_s in enumerate((1.0, 3.0, 2.0)):
        frame = ticket(number)
        tracing.arrived(frame)
        frame.latency_s = latency_s
        assert tracing.ended(frame) is None, "nobody can look it up"
        assert frame.trace is None, "a part of it may come back yet"
    slow = tracing.slow()
    assert slow is not None
    assert (slow["frame"], slow["latency_s"], slow["looked_at"], slow["trace_id"]) == (1, 3.0, 3, None)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    again = tracing.slow()
    assert again is not None
    assert again["ago_s"] == pytest.approx(0.0, abs=60.0), "the host's time may be set"
    now = itertools.count(time.monotonic() + 61, 61)
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    assert tracing.slow() is not None, "that of the last window"
    assert tracing.slow() is None


def test_messages_cross_as_they_are() -> None:
    step = TracedStep(What.RUN, 0.1, 0.2, 0, "p0", 1, 0, 2)
    traced = FrameTraced("1" * 32, "", 7, "OK", 10**18, 0.5, (step,))
    message = FramesTraced((msgspec.Raw(FRAME_TRACED.encode(traced)),))
    decoded = TO_TRACER.decode(TO_TRACER.encode(message))
    assert isinstance(decoded, FramesTraced)
    assert [FRAME_TRACED.decode(frame) for frame in decoded.frames] == [traced]
    counted = TracesCounted(3, 1, "gone")
    assert FROM_TRACER.decode(FROM_TRACER.encode(counted)) == counted
