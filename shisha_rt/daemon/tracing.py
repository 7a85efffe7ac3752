"""Traces of some frames: the steps of each, and what it waited for.

Traced are a share `ratio` of all frames and at least one a second (none if `ratio` is 0); and, if traces are exported,
frames whose requests belong to a caller's trace. An untraced frame costs a comparison or two. The tracer process does
the exporting.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from shisha_rt.core import event_log
from shisha_rt.core.lifecycle.events import Descriptor
from shisha_rt.daemon.children.child_link import ChildLink, ChildProgram
from shisha_rt.daemon.front.requests import Ticket
from shisha_rt.daemon.loop.poller import Poller
from shisha_rt.daemon.metrics import MetricsPage
from shisha_rt.messages import traces as tm
from shisha_rt.messages.traces import FrameTraced, TracedStep, What
from shisha_rt.protocol.traceparent import TraceParent, read_traceparent

log = logging.getLogger(__name__)

_TRACER: Final = ChildProgram("shisha_rt.traces.process", tm.TO_TRACER, tm.FROM_TRACER)
_LAST_TRACES_S: Final = 2.0
_WARN_EVERY_S: Final = 60.0
_MOST_AT_ONCE: Final = 64
_TRACE_EVERY_S: Final = 1.0
_WINDOW_S: Final = 60.0
_NEGLIGIBLE_S: Final = 20e-6
"""A shorter time between copying a frame's outputs and its answer does not count as waiting for the stream's order."""


class _Dealt(NamedTuple):
    """A part that a worker has."""

    ready_s: float
    dealt_s: float
    place: str
    part: Descriptor


class FrameTrace:
    """Trace of a frame in flight. `_out`: parts with workers, by stage."""

    __slots__ = ("_arrived_s", "_filled_s", "_out", "_steps", "arrived_ns", "parent", "trace_id")

    def __init__(self, arrived_s: float, parent: TraceParent | None) -> None:
        self.parent = parent
        self.trace_id = f"{random.getrandbits(128) or 1:032x}" if parent is None else parent.trace_id
        self._arrived_s = self._filled_s = arrived_s
        self.arrived_ns = time.time_ns() - int((time.monotonic() - arrived_s) * 1e9)
        self._steps: list[TracedStep] = []
        self._out: dict[int, _Dealt] = {}

    def filled(self, begin_s: float, now_s: float) -> None:
        """Note that the inputs were copied in, from `begin_s` until now."""
        arrived_s, self._filled_s = self._arrived_s, now_s
        self._steps.append(TracedStep(What.QUEUE, 0.0, begin_s - arrived_s))
        self._steps.append(TracedStep(What.COPY_IN, begin_s - arrived_s, now_s - begin_s))

    def dealt(self, part: Descriptor, place: str, ready_s: float, now_s: float) -> None:
        """Note a part dealt to a worker. An earlier run of it, and all parts of an earlier attempt, count as lost."""
        for stage, out in list(self._out.items()):
            if stage == part.stage or out.part.attempt != part.attempt:
                self._end(What.LOST, stage, ready_s)
        self._out[part.stage] = _Dealt(max(ready_s, self._filled_s), now_s, place, part)

    def done(self, stage: int, service_s: float, now_s: float) -> None:
        """Note a part that was computed, in `service_s`."""
        self._end(What.RUN, stage, now_s, service_s)

    def collected(self, begin_s: float, now_s: float) -> None:
        """Note that the outputs were copied out, from `begin_s` until now."""
        self._steps.append(TracedStep(What.COPY_OUT, begin_s - self._arrived_s, now_s - begin_s))

    def ended(self, ticket: Ticket) -> FrameTraced:
        """The complete trace, once the frame is answered."""
        ended_s, latency_s = self._arrived_s + ticket.latency_s, ticket.latency_s
        for stage in list(self._out):
            self._end(What.LEFT, stage, ended_s)
        if not self._steps:
            self._steps.append(TracedStep(What.QUEUE, 0.0, latency_s))
        last = self._steps[-1]
        after_s = last.begin_s + last.seconds
        if last.what is What.COPY_OUT and ticket.request.stream is None:
            self._steps[-1] = TracedStep(What.COPY_OUT, last.begin_s, latency_s - last.begin_s)
        elif last.what is What.COPY_OUT and latency_s - after_s > _NEGLIGIBLE_S:
            self._steps.append(TracedStep(What.ORDER, after_s, latency_s - after_s))
        code = "OK" if ticket.error is None else ticket.error.code.value
        parent_id = "" if self.parent is None else self.parent.span_id
        return FrameTraced(self.trace_id, parent_id, ticket.frame, code, self.arrived_ns, latency_s, tuple(self._steps))

    def _end(self, what: What, stage: int, end_s: float, took_s: float = math.inf) -> None:
        """Add a part's steps: WAIT, and `what` for the last `took_s` before `end_s`, at most since it was dealt."""
        out = self._out.pop(stage)
        began_s = max(out.dealt_s, end_s - took_s)
        where = stage, out.place, out.part.epoch, out.part.attempt, 1 + len(out.part.beside)
        self._steps.append(TracedStep(What.WAIT, out.ready_s - self._arrived_s, began_s - out.ready_s, *where))
        self._steps.append(TracedStep(what, began_s - self._arrived_s, max(0.0, end_s - began_s), *where))


class _Window(NamedTuple):
    """The frames traced in some time: their number, the slowest, and when that was answered."""

    frames: int = 0
    slowest: FrameTraced | None = None
    answered_s: float = 0.0


class Tracing:
    """Chooses frames to trace, and keeps the slowest of the last minutes. `send`: exports a trace; None: no export."""

    def __init__(self, ratio: float, send: Callable[[FrameTraced], object] | None = None) -> None:
        self._most_between = max(1, round(2 / ratio) - 1) if ratio else 0
        self._send = send
        self._until = 0  # frames until one is traced
        self._due_s = 0.0  # the first frame after this time is traced, whatever `_until`
        self._begun_s = time.monotonic()
        self._now, self._before = _Window(), _Window()

    def arrived(self, ticket: Ticket) -> None:
        """Decide whether a frame that has just come is traced; if so, begin its trace (`Ticket.trace`)."""
        self._until -= 1
        parent, traceparent = None, ticket.request.traceparent
        if traceparent is not None and self._send is not None:
            parent = read_traceparent(traceparent)
        if parent is None:
            if (self._until > 0 and ticket.arrived_s < self._due_s) or not self._most_between:
                return
            self._until = random.randint(1, self._most_between)  # not each N-th frame: callers may send in turns
            self._due_s = ticket.arrived_s + _TRACE_EVERY_S
        elif not parent.sampled:
            return
        ticket.trace = FrameTrace(ticket.arrived_s, parent)

    def ended(self, ticket: Ticket) -> str | None:
        """End the trace of an answered frame, whose parts workers may still have; return its id if it is exported."""
        assert ticket.trace is not None
        traced = ticket.trace.ended(ticket)
        ticket.trace = None
        now_s = time.monotonic()
        self._turn(now_s)
        frames, slowest, answered_s = self._now
        if slowest is None or traced.latency_s > slowest.latency_s:
            slowest, answered_s = traced, now_s
        self._now = _Window(frames + 1, slowest, answered_s)
        if self._send is None:
            return None
        self._send(traced)
        return traced.trace_id

    def slow(self) -> dict[str, object] | None:
        """The slowest traced frame of the last one to two minutes, for `status`; None: none was traced."""
        now_s = time.monotonic()
        self._turn(now_s)
        windows = self._now, self._before
        seen = [(window.slowest, window.answered_s) for window in windows if window.slowest is not None]
        if not seen:
            return None
        slowest, answered_s = max(seen, key=lambda pair: pair[0].latency_s)
        return {
            "frame": slowest.frame,
            "code": slowest.code,
            "ago_s": round(now_s - answered_s, 3),
            "latency_s": slowest.latency_s,
            "looked_at": sum(window.frames for window in windows),
            "trace_id": slowest.trace_id if self._send is not None else None,
            "steps": [
                {name: value for name in step.__struct_fields__ if (value := getattr(step, name)) not in (-1, "")}
                for step in slowest.steps
            ],
        }

    def _turn(self, now_s: float) -> None:
        if now_s >= self._begun_s + _WINDOW_S:
            self._before = self._now if now_s < self._begun_s + 2 * _WINDOW_S else _Window()
            self._now, self._begun_s = _Window(), now_s


class Tracer:
    """Keeps the process running that exports traces. `settings` None: no traces are exported, and no process runs.

    `page`: counts frames whose traces were sent or lost. `send`: hands a frame's trace to the process; None if no
    process runs. Traces go there several at a time, at the next `look` at the latest.
    """

    def __init__(self, settings: tm.ServeTraces | None, poller: Poller, page: MetricsPage) -> None:
        self._page = page
        self.link = ChildLink(_TRACER, poller, lambda reason: event_log.TracerEnded(reason=reason))
        self._waiting: list[msgspec.Raw] = []
        self._unlogged, self._logged_s = 0, -math.inf  # lost traces not logged yet; time of the last warning
        self.send: Callable[[FrameTraced], object] | None = None
        if settings is not None:
            self.link.start([settings])
            self.send = self._put

    def look(self) -> None:
        """Called periodically: hand over waiting traces, restart the process if it has died."""
        self._flush()
        self.link.look()

    def _put(self, traced: FrameTraced) -> None:
        self._waiting.append(msgspec.Raw(tm.FRAME_TRACED.encode(traced)))
        if len(self._waiting) >= _MOST_AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self.link.send(tm.FramesTraced(tuple(self._waiting)))
            self._waiting.clear()

    def count(self, counted: tm.TracesCounted) -> None:
        self._page.count("shisha_traces", "sent", by=counted.sent)
        self._page.count("shisha_traces", "lost", by=counted.lost)
        self._unlogged += counted.lost
        if counted.lost and time.monotonic() >= self._logged_s + _WARN_EVERY_S:
            log.warning("traces of %d frames are lost: %s", self._unlogged, counted.why)
            self._unlogged, self._logged_s = 0, time.monotonic()

    def finish(self, meanwhile: Callable[[], object]) -> None:
        """Wait, for a limited time, until the last traces have been sent; called after the last answer."""
        self._flush()
        self.link.send(tm.EndTraces())
        self.link.wait(_LAST_TRACES_S, meanwhile)

    def close(self) -> None:
        self.link.close()
