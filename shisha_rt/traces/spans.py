"""A frame's steps as spans of OpenTelemetry."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from shisha_rt.messages.traces import FrameTraced, ServeTraces, TracedStep, What

_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)


class Spans:
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
        good = traced.code == "OK"
        spans = [
            ReadableSpan(
                "frame",
                own,
                parent,
                self._resource,
                {**self._model, "shisha.frame": traced.frame, "shisha.code": traced.code},
                [
                    Event(name, {"shisha.epoch": step.epoch, "shisha.attempt": step.attempt}, _at(traced, step.begin_s))
                    for name, step in turns_of(traced)
                ],
                kind=SpanKind.SERVER,
                status=Status(StatusCode.UNSET) if good else Status(StatusCode.ERROR, traced.code),
                start_time=traced.arrived_ns,
                end_time=_at(traced, traced.latency_s),
                instrumentation_scope=self._scope,
            )
        ]
        for step in traced.steps:
            spans.append(
                ReadableSpan(
                    _name(step),
                    SpanContext(trace_id, _span_id(), is_remote=False, trace_flags=_SAMPLED),
                    own,
                    self._resource,
                    _attributes(step),
                    status=Status(StatusCode.ERROR, "lost") if step.what is What.LOST else Status(StatusCode.UNSET),
                    start_time=_at(traced, step.begin_s),
                    end_time=_at(traced, step.begin_s + step.seconds),
                    instrumentation_scope=self._scope,
                )
            )
        return spans


def turns_of(traced: FrameTraced) -> Iterator[tuple[str, TracedStep]]:
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
