"""Frames sent without a pause, and their answers: the load under which the demo changes plans.

Every answer is compared with the first one for the same input, computed under the first plan: a frame that was lost,
answered twice, mixed with another, or computed half by one plan and half by the next would differ.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Self

import numpy as np

from shisha_rt.array_file import Array
from shisha_rt.cli.drive.frames import Frame
from shisha_rt.client import Answer, AsyncClient, ShishaError, Unavailable
from shisha_rt.errors import Error, Failure

_IN_FLIGHT: Final = 12  # as many as four workers hold at once, and some that wait
_RTOL, _ATOL = 1e-4, 1e-5  # a different cut may change the last bits, as the engine fuses different operators


@dataclass(frozen=True, slots=True)
class Arrival:
    at_s: float
    epoch: int


@dataclass(frozen=True, slots=True)
class Gaps:
    """Times between successive answers. `change_s`: the longest around a change of epoch."""

    median_s: float
    longest_s: float
    change_s: float


class Traffic:
    """Sends frames from the start of the `async with` block until `end`."""

    def __init__(self, client: AsyncClient, frames: Sequence[Frame]) -> None:
        self.sent = 0
        self.out_of_order = 0
        self.different = 0
        self.errors: list[ShishaError] = []
        self.arrivals: list[Arrival] = []
        self._client = client
        self._frames = frames
        self._expected: list[dict[str, Array] | None] = [None] * len(frames)
        self._last_frame = -1
        self._stopping = False
        self._sending: asyncio.Task[None]

    @property
    def answered(self) -> int:
        return len(self.arrivals)

    @property
    def counted(self) -> dict[str, int]:
        return {
            "sent": self.sent,
            "answered": self.answered,
            "lost": self.sent - self.answered - len(self.errors),
            "out_of_order": self.out_of_order,
            "different": self.different,
            "errors": len(self.errors),
        }

    @property
    def faults(self) -> list[str]:
        """Messages on frames lost, out of order or different; empty if there are none."""
        counted = self.counted
        words = {"lost": "lost", "out_of_order": "out of order", "different": "with another result than under the seed"}
        faults = [f"{counted[what]} {text}" for what, text in words.items() if counted[what]]
        if self.errors:
            faults.append(f"{len(self.errors)} ended in an error, the first: {self.errors[0].message}")
        return faults

    async def __aenter__(self) -> Self:
        self._sending = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._sending.cancel()
        await asyncio.gather(self._sending, return_exceptions=True)

    async def flow(self, seconds: float) -> None:
        """Wait for `seconds` while frames are sent. Raises Failure if the daemon goes away."""
        await asyncio.wait({self._sending}, timeout=seconds)
        if self._sending.done():
            self._sending.result()

    async def end(self) -> None:
        self._stopping = True
        await self._sending

    async def _run(self) -> None:
        async with self._client.stream("demo", in_flight=_IN_FLIGHT) as stream:
            index = 0
            async for outcome in stream.run(self._endless(), errors="return"):
                if isinstance(outcome, Unavailable):
                    raise Failure(f"the daemon went away: {outcome.message}", Error.CONNECTION_LOST)
                if isinstance(outcome, ShishaError):
                    self.errors.append(outcome)
                else:
                    self._take(index % len(self._frames), outcome)
                index += 1

    def _endless(self) -> Iterator[Frame]:
        while not self._stopping:
            self.sent += 1
            yield self._frames[(self.sent - 1) % len(self._frames)]

    def _take(self, which: int, answer: Answer) -> None:
        self.arrivals.append(Arrival(time.monotonic(), answer.epoch))
        # The daemon numbers frames in the order of their arrival, so answers in order have ascending numbers.
        self.out_of_order += answer.frame <= self._last_frame
        self._last_frame = answer.frame
        expected = self._expected[which]
        if expected is None:
            self._expected[which] = dict(answer.outputs)
        else:
            self.different += not all(
                array.shape == expected[name].shape and np.allclose(array, expected[name], _RTOL, _ATOL)
                for name, array in answer.outputs.items()
            )

    async def first(self) -> None:
        while self.answered < len(self._frames):
            await self.flow(0.01)

    def answered_since(self, since_s: float) -> int:
        """Answers that came after a moment of `time.monotonic()`."""
        return sum(arrival.at_s > since_s for arrival in self.arrivals)

    def gaps(self) -> Gaps:
        """Times between answers so far. Raises Failure if there are too few answers."""
        if len(self.arrivals) < 2:
            raise Failure("too few answers came to say anything")
        gaps_s = [later.at_s - earlier.at_s for earlier, later in pairwise(self.arrivals)]
        changes = [i for i, (earlier, later) in enumerate(pairwise(self.arrivals)) if later.epoch != earlier.epoch]
        around_s = [gap_s for i in changes for gap_s in gaps_s[max(0, i - _IN_FLIGHT) : i + _IN_FLIGHT + 1]]
        return Gaps(statistics.median(gaps_s), max(gaps_s), max(around_s, default=0.0))
