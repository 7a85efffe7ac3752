"""Frames without a pause, and what came back: the load under which the demo changes plans.

Every answer is held against the first one that its input got, under the first plan: a frame that was lost, answered
twice, mixed with another, or computed half by one plan and half by the next would differ.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from shisha_rt.cli.frames import Array, Frame
from shisha_rt.client import Answer, AsyncClient, ShishaError, Unavailable
from shisha_rt.errors import Failure

_IN_FLIGHT: Final = 8
_RTOL, _ATOL = 1e-4, 1e-5  # what a different cut may change: the last bits, where an engine fuses otherwise


@dataclass(frozen=True, slots=True)
class Arrival:
    at_s: float
    epoch: int


@dataclass(frozen=True, slots=True)
class Flow:
    """The answers of one epoch. Gaps are between neighbours; `change_gap_s` is the longest while it took over."""

    frames: int
    throughput_fps: float
    median_gap_s: float
    longest_gap_s: float
    change_gap_s: float


class Traffic:
    """`run` sends until `stop`, and ends when all is answered."""

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

    @property
    def answered(self) -> int:
        return len(self.arrivals)

    def stop(self) -> None:
        self._stopping = True

    async def run(self) -> None:
        """Raises Failure if the daemon goes away."""
        async with self._client.stream("demo", in_flight=_IN_FLIGHT) as stream:
            index = 0
            async for outcome in stream.run(self._endless(), errors="return"):
                if isinstance(outcome, Unavailable):
                    raise Failure(f"the daemon went away: {outcome.message}")
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
        # The daemon numbers frames as they come, one by one: in order means upwards.
        self.out_of_order += answer.frame <= self._last_frame
        self._last_frame = answer.frame
        expected = self._expected[which]
        if expected is None:
            self._expected[which] = dict(answer.outputs)
        elif not all(np.allclose(array, expected[name], _RTOL, _ATOL) for name, array in answer.outputs.items()):
            self.different += 1

    async def first(self) -> None:
        """Wait until every input has its first answer."""
        while self.answered < len(self._frames):
            await asyncio.sleep(0.01)

    def flow(self, epoch: int, asked_s: float) -> Flow | None:
        """How `epoch` went, from when it was asked for; None if it answered too little to say."""
        times_s = [arrival.at_s for arrival in self.arrivals if arrival.epoch == epoch]
        if len(times_s) < 3:
            return None
        gaps_s = [later - earlier for earlier, later in pairwise(times_s)]
        before_s = [arrival.at_s for arrival in self.arrivals if arrival.epoch < epoch]
        change_s = [at_s for at_s in before_s if at_s >= asked_s]
        # From the last answer before it was asked for, over its preparation, to its own first few.
        around_s = [*before_s[len(before_s) - len(change_s) - 1 :], *times_s[:_IN_FLIGHT]] if before_s else []
        return Flow(
            frames=len(times_s),
            throughput_fps=len(gaps_s) / (times_s[-1] - times_s[0]),
            median_gap_s=statistics.median(gaps_s),
            longest_gap_s=max(gaps_s[_IN_FLIGHT:], default=0.0),
            change_gap_s=max((later - earlier for earlier, later in pairwise(around_s)), default=0.0),
        )
