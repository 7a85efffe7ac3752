"""`python -m shisha_rt.traces.process CHANNEL PARENT`: send the daemon's traces of frames to an OTLP receiver.

A receiver that is slow or gone costs the daemon nothing: frames that do not fit into the queue are dropped and counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace.export import SpanExportResult

from shisha_rt.messages.traces import (
    FRAME_TRACED,
    FROM_TRACER,
    TO_TRACER,
    EndTraces,
    FramesTraced,
    FrameTraced,
    ServeTraces,
    ToTracer,
    TracesCounted,
)
from shisha_rt.process.channel import Channel, ChannelBroken
from shisha_rt.process.parent import serve_on_loop
from shisha_rt.traces.spans import Spans

MOST_WAITING: Final = 2048
"""Frames in the queue; beyond that the oldest are dropped."""
_MOST_AT_ONCE: Final = 256
_GATHERED_S: Final = 0.5
_WITHIN_S: Final = 10.0


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
        spans = Spans(settings)
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
                result = await asyncio.to_thread(
                    exporter.export, [span for traced in frames for span in spans.of(traced)]
                )
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


if __name__ == "__main__":
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # the daemon says what was lost, and why
    serve_on_loop(lambda channel: _Tracer(channel).run())
