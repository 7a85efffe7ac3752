"""The process that sends traces: what it says of a receiver that takes what it is sent, and never answers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket

import msgspec
import pytest
from prometheus_client import Counter

from shisha_rt.daemon.loop.poller import Poller
from shisha_rt.daemon.metrics import MetricsPage
from shisha_rt.daemon.tracing import Tracer
from shisha_rt.messages.traces import (
    FRAME_TRACED,
    FROM_TRACER,
    TO_TRACER,
    EndTraces,
    FramesTraced,
    FrameTraced,
    ServeTraces,
    TracedStep,
    TracesCounted,
    What,
)
from shisha_rt.process.channel import Channel

FRAME = FrameTraced("ab" * 16, "", 1, "OK", 10**18, 0.01, (TracedStep(What.QUEUE, 0.0, 0.01),))


def test_what_is_dropped_is_counted_while_the_receiver_hangs() -> None:
    process = pytest.importorskip("shisha_rt.traces.process", reason="the extra `otel`")

    async def run() -> None:
        ours, end = Channel.pair()
        theirs = Channel.of_loop(end.detach())
        with contextlib.closing(ours), contextlib.closing(theirs), socket.create_server(("127.0.0.1", 0)) as receiver:
            receiver.setblocking(False)
            running = asyncio.create_task(process._Tracer(theirs).run())
            url = f"http://127.0.0.1:{receiver.getsockname()[1]}"
            ours.send(TO_TRACER.encode(ServeTraces(url, "m", "1", "v", "i")))
            raw = msgspec.Raw(FRAME_TRACED.encode(FRAME))
            ours.send(TO_TRACER.encode(FramesTraced((raw,))))
            sends, _ = await asyncio.get_running_loop().sock_accept(receiver)
            for frames in (process.MOST_WAITING, 64):
                ours.send(TO_TRACER.encode(FramesTraced((raw,) * frames)))
            heard: list[bytes] = []
            async with asyncio.timeout(5):
                while not heard:
                    heard += ours.receive()
                    await asyncio.sleep(0.01)
            counted = FROM_TRACER.decode(heard[0])
            assert (counted.sent, counted.lost) == (0, 64)
            with sends:  # the thread that sends cannot be cancelled
                sends.sendall(b"HTTP/1.1 400 \r\nContent-Length: 0\r\n\r\n")
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
            asyncio.get_running_loop().remove_reader(theirs.fileno())

    asyncio.run(run())


def test_what_an_exporter_fails_with_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended the process, and with it all that waited, of which nothing was said."""
    process = pytest.importorskip("shisha_rt.traces.process", reason="the extra `otel`")

    def late(*_: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(process.OTLPSpanExporter, "export", late)

    async def run() -> None:
        ours, end = Channel.pair()
        theirs = Channel.of_loop(end.detach())
        with contextlib.closing(ours), contextlib.closing(theirs):
            tracer = process._Tracer(theirs)
            tracer._take(ServeTraces("http://127.0.0.1:1", "m", "1", "v", "i"))
            tracer._take(FramesTraced((msgspec.Raw(FRAME_TRACED.encode(FRAME)),)))
            tracer._take(EndTraces())
            await tracer.run()
            asyncio.get_running_loop().remove_reader(theirs.fileno())
            (heard,) = ours.receive()
            counted = FROM_TRACER.decode(heard)
            assert (counted.sent, counted.lost) == (0, 1)

    asyncio.run(run())


def test_the_newest_frames_are_kept() -> None:
    process = pytest.importorskip("shisha_rt.traces.process", reason="the extra `otel`")

    async def run() -> list[int]:
        ours, end = Channel.pair()
        theirs = Channel.of_loop(end.detach())
        with contextlib.closing(ours), contextlib.closing(theirs):
            tracer = process._Tracer(theirs)
            tracer._take(ServeTraces("http://127.0.0.1:1", "m", "1", "v", "i"))
            frames = (msgspec.structs.replace(FRAME, frame=number) for number in range(process.MOST_WAITING + 2))
            tracer._take(FramesTraced(tuple(msgspec.Raw(FRAME_TRACED.encode(frame)) for frame in frames)))
            asyncio.get_running_loop().remove_reader(theirs.fileno())
            return [traced.frame for traced in tracer._waiting]

    assert asyncio.run(run()) == list(range(2, process.MOST_WAITING + 2))


def test_a_receiver_that_takes_nothing_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    page = MetricsPage()
    page.counters["shisha_traces"] = Counter("shisha_traces", "", ["outcome"], registry=page.registry)
    poller = Poller()
    tracer = Tracer(None, poller, page)
    with caplog.at_level(logging.WARNING):
        for _ in range(100):
            tracer.count(TracesCounted(0, 3, "it does not take them"))
    assert len(caplog.records) == 1
    tracer.close()
    poller.close()
