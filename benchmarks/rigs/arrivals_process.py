"""A user's program that sends frames to a daemon at predetermined times, even if answers are outstanding.

See `asking.Asking`. Settings: `endpoint`, and `model` if several are served. Orders: `arrivals`, as there; or `seconds`
and `in_flight`, for tuning a daemon.
"""

from __future__ import annotations

import asyncio
import json
import selectors
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from benchmarks.rigs.asking import ANSWERED, REFUSED, Heard
from benchmarks.rigs.child_process import Child, say
from benchmarks.rigs.client_process import Frame, random_frames
from shisha_rt.client import AsyncClient, Client, ResourceExhausted, ShishaError, Timeout

_TIMEOUT_S: Final = 60.0
_READY: Final = 64
_PAUSE_S: Final = 0.01
"""Pause of a client before the next frame after a refusal."""


class Arrivals:
    """`frames`: those not in flight; more are made when all are in flight."""

    def __init__(self, client: AsyncClient, endpoint: str, model: str | None) -> None:
        self._client = client
        with Client(endpoint, share=False, model=model) as first:
            self._pattern = random_frames(first, 1)[0]
        self._frames: list[Frame] = []

    async def fill(self) -> None:
        self._frames = [await self._new() for _ in range(_READY)]

    async def arrivals(self, arrivals: Sequence[float], count_from_s: float = 0.0) -> dict[str, object]:
        begun_s = time.monotonic()
        heard = Heard(count_from_s=begun_s + count_from_s)
        async with asyncio.TaskGroup() as frames:
            for after_s in arrivals:
                await asyncio.sleep(begun_s + after_s - time.monotonic())
                frames.create_task(self._one(begun_s + after_s, heard))
        return asdict(heard)

    async def burst(self, seconds: float, in_flight: int) -> dict[str, object]:
        """Keep `in_flight` frames in flight; return frames per second."""
        begun_s = time.monotonic()
        heard = Heard(count_from_s=begun_s)

        async def one_after_the_other() -> None:
            while time.monotonic() < begun_s + seconds:
                if await self._one(time.monotonic(), heard):
                    await asyncio.sleep(_PAUSE_S)

        async with asyncio.TaskGroup() as clients:
            for _ in range(in_flight):
                clients.create_task(one_after_the_other())
        return {"frames": len(heard.latencies_s), "fps": len(heard.latencies_s) / (time.monotonic() - begun_s)}

    async def _one(self, due_s: float, heard: Heard) -> bool:
        """Send a frame and note its result; return whether it was refused."""
        frame = self._frames.pop() if self._frames else await self._new()
        try:
            await self._client.infer(frame, timeout_s=_TIMEOUT_S)
            outcome = ANSWERED
        except ResourceExhausted:
            outcome = REFUSED
        except Timeout:
            heard.lost += 1
            return False
        except ShishaError as error:
            outcome = str(error)
        heard.take(due_s, time.monotonic(), outcome)
        self._frames.append(frame)
        return outcome == REFUSED

    async def _new(self) -> Frame:
        frame = {name: await self._client.empty(tensor.shape, tensor.dtype) for name, tensor in self._pattern.items()}
        for name, array in frame.items():
            array[...] = self._pattern[name]
        return frame


async def _obey(endpoint: str, model: str | None) -> None:
    async with AsyncClient(endpoint, model=model) as client:
        asked = Arrivals(client, endpoint, model)
        await asked.fill()
        say(ready=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            order: dict[str, Any] = json.loads(line)
            say(**(await (asked.arrivals if "arrivals" in order else asked.burst)(**order)))


def child(endpoint: str, model: str | None = None) -> Child:
    # `select`, as epoll's timeouts are whole milliseconds.
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector())) as runner:
        runner.run(_obey(endpoint, model))
    yield from ()
