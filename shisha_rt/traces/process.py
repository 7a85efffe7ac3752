"""`python -m shisha_rt.traces.process CHANNEL PARENT`: send the daemon's traces of frames to an OTLP receiver.

A receiver that is slow or gone costs the daemon nothing: frames that do not fit into the queue are dropped and counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import deque
from collections.abc import Iterator
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from shisha_rt.messages.traces import (
    FRAME_TRACED,
    FROM_TRACER,
    TO_TRACER,
    EndTraces,
    FramesTraced,
    FrameTraced,
    ServeTraces,
    ToTracer,
    TracedStep,
    TracesCounted,
    What,
)
from shisha_rt.process.channel import Channel, ChannelBroken
from shisha_rt.process.parent import serve_on_loop

MOST_WAITING: Final = 2048
"""Frames in the queue; beyond that the oldest are dropped."""
_MOST_AT_ONCE: Final = 256
_GATHERED_S: Final = 0.5
_WITHIN_S: Final = 10.0
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)


class _Tracer:
    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._begun: asyncio.Future[ServeTraces] = asyncio.get_running_loop().create_future()
        self._waiting: deque[FrameTraced] = deque()
        self._some = asyncio.Event()
        self._ending = asyncio.Event()
        asyncio.get_running_loop().add_reader(channel.fileno(), self._hear)

    async def run(self) -> None:
        settings = await self._begun
        spans = _Spans(settings)
        exporter = OTLPSpanExporter(endpoint=f"{settings.url.rstrip('/')}/v1/traces", timeout=_WITHIN_S)
        while self._waiting or not self._ending.is_set():
            await self._some.wait()
            if not self._ending.is_set() and len(self._waiting) < _MOST_AT_ONCE:
                with contextlib.suppress(TimeoutError):  # more may come
                    async with asyncio.timeout(_GATHERED_S):
                        await self._ending.wait()
            frames = [self._waiting.popleft() for _ in range(min(_MOST_AT_ONCE, len(self._waiting)))]
            if not self._waiting and not self._ending.is_set():
                self._some.clear()
            if frames:
                given = [span for traced in frames for span in spans.of(traced)]
                try:
                    result = await asyncio.to_thread(exporter.export, given)
                except Exception:  # older exporters raise what `requests` raises, as of a receiver that is gone
                    result = SpanExportResult.FAILURE
                if result is SpanExportResult.SUCCESS:
                    self._tell(TracesCounted(len(frames), 0))
                else:
                    self._tell(TracesCounted(0, len(frames), f"{settings.url} does not take them"))

    def _tell(self, counted: TracesCounted) -> None:
        with contextlib.suppress(ChannelBroken):
            self._channel.send(FROM_TRACER.encode(counted))

    def _hear(self) -> None:
        for data in self._channel.receive():
            self._take(TO_TRACER.decode(data))
        if not self._channel.open:
            self._take(EndTraces())

    def _take(self, message: ToTracer) -> None:
        match message:
            case ServeTraces():
                self._begun.set_result(message)
            case FramesTraced(frames=frames):
                self._waiting.extend(FRAME_TRACED.decode(frame) for frame in frames)
                dropped = max(0, len(self._waiting) - MOST_WAITING)
                for _ in range(dropped):
                    self._waiting.popleft()
                if dropped:  # told at once: a receiver may take what it is sent for good, and never answer
                    self._tell(TracesCounted(0, dropped, f"{self._begun.result().url} is too slow"))
                self._some.set()
            case EndTraces():
                if not self._begun.done():
                    raise SystemExit(0)
                self._ending.set()
                self._some.set()


class _Spans:
    """Makes the spans of frames, with the resource attributes that the environment sets (OTEL_RESOURCE_ATTRIBUTES)."""

    def __init__(self, settings: ServeTraces) -> None:
        self._model = {"shisha.model": settings.model, "shisha.model_version": settings.model_version}
        self._resource = Resource.create(
            {
                "service.name": "shisha-rt",
                "service.version": settings.version,
                "service.instance.id": settings.instance,
            }
        )
        self._scope = InstrumentationScope("shisha_rt", settings.version)

    def of(self, traced: FrameTraced) -> list[ReadableSpan]:
        """The frame's own span, whose parent is the caller's, and under it one for each step."""
        trace_id = int(traced.trace_id, 16)
        own = SpanContext(trace_id, _span_id(), is_remote=False, trace_flags=_SAMPLED)
        parent = None
        if traced.parent_id:
            parent = SpanContext(trace_id, int(traced.parent_id, 16), is_remote=True, trace_flags=_SAMPLED)
        return [self._frame_span(traced, own, parent), *(self._step_span(traced, step, own) for step in traced.steps)]

    def _frame_span(self, traced: FrameTraced, own: SpanContext, parent: SpanContext | None) -> ReadableSpan:
        events = [
            Event(name, {"shisha.epoch": step.epoch, "shisha.attempt": step.attempt}, _at(traced, step.begin_s))
            for name, step in _turns_of(traced)
        ]
        return ReadableSpan(
            "frame",
            own,
            parent,
            self._resource,
            {**self._model, "shisha.frame": traced.frame, "shisha.code": traced.code},
            events,
            kind=SpanKind.SERVER,
            status=Status(StatusCode.UNSET) if traced.code == "OK" else Status(StatusCode.ERROR, traced.code),
            start_time=traced.arrived_ns,
            end_time=_at(traced, traced.latency_s),
            instrumentation_scope=self._scope,
        )

    def _step_span(self, traced: FrameTraced, step: TracedStep, parent: SpanContext) -> ReadableSpan:
        return ReadableSpan(
            _name(step),
            SpanContext(parent.trace_id, _span_id(), is_remote=False, trace_flags=_SAMPLED),
            parent,
            self._resource,
            _attributes(step),
            status=Status(StatusCode.ERROR, "lost") if step.what is What.LOST else Status(StatusCode.UNSET),
            start_time=_at(traced, step.begin_s),
            end_time=_at(traced, step.begin_s + step.seconds),
            instrumentation_scope=self._scope,
        )


def _turns_of(traced: FrameTraced) -> Iterator[tuple[str, TracedStep]]:
    """Yield the changes on a frame's way: a different plan took it over, or a part of it ran again."""
    before: TracedStep | None = None
    lost: set[int] = set()
    for step in traced.steps:
        if step.stage < 0:
            continue
        if before is not None and step.epoch != before.epoch:
            yield "plan changed", step
        elif step.what is What.WAIT and step.stage in lost:
            yield "run again", step
            lost.discard(step.stage)
        if step.what is What.LOST:
            lost.add(step.stage)
        before = step


def _name(step: TracedStep) -> str:
    what = step.what.value.replace("_", " ")
    return what if step.stage < 0 else f"stage {step.stage} {what}"


def _attributes(step: TracedStep) -> dict[str, str | int]:
    if step.stage < 0:
        return {}
    return {
        "shisha.stage": step.stage,
        "shisha.place": step.place,
        "shisha.epoch": step.epoch,
        "shisha.attempt": step.attempt,
        "shisha.frames_in_run": step.frames,
    }


def _at(traced: FrameTraced, seconds: float) -> int:
    return traced.arrived_ns + round(seconds * 1e9)


def _span_id() -> int:
    return random.getrandbits(64) or 1


if __name__ == "__main__":
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # the daemon says what was lost, and why
    serve_on_loop(lambda channel: _Tracer(channel).run())
