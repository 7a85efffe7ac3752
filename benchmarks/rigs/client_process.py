"""A user's program in a separate process: streams one frame repeatedly, with several in flight.

Settings: `endpoint`, `in_flight`, and `share`: whether to share memory with the daemon (default: yes). Orders:
`seconds`; with `pause_s`, too, frames are sent one by one, see `one_by_one`.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from benchmarks.rigs.asking import one_by_one
from benchmarks.rigs.child_process import Child, Fields, obey
from shisha_rt.cli.drive import frames
from shisha_rt.client import Client

IN_FLIGHT: Final = 8
"""Frames that a client keeps in flight: a daemon on two places has six slots, and two frames wait or are in transit."""
_WARM_UP_FRAMES: Final = 24

Frame = dict[str, np.ndarray[Any, Any]]


class Streaming:
    """Bursts of frames on one connection. Times of answers are of CLOCK_MONOTONIC, which all processes share."""

    def __init__(self, endpoint: str, in_flight: int, share: bool) -> None:
        self._client = Client(endpoint, share=share)
        self._in_flight = in_flight
        # Lent memory must not be used until its frame is answered: none of these is sent again before that.
        self._frames = itertools.cycle(random_frames(self._client, in_flight + 1))
        self._ends_s = 0.0

    def run(self, seconds: float, pause_s: float | None = None) -> Fields:
        if pause_s is None:
            return self.burst(seconds)
        return one_by_one(lambda: self._client.infer(next(self._frames)), seconds, pause_s)

    def burst(self, seconds: float) -> Fields:
        """Stream for `seconds` after a warm-up. `total_frames` also counts the warm-up and the rest in flight."""
        self._ends_s = float("inf")
        answered_s: list[float] = []
        cpu_s = 0.0
        with self._client.stream(in_flight=self._in_flight) as stream:
            for answer in stream.run(self._until_it_ends()):
                answered_s.append(time.monotonic())
                if len(answered_s) == _WARM_UP_FRAMES:
                    cpu_s = time.process_time()
                    self._ends_s = answered_s[-1] + seconds
                del answer
        cpu_s = time.process_time() - cpu_s
        ends_s = max(self._ends_s, answered_s[_WARM_UP_FRAMES])  # at least one frame, even on a busy host
        measured_s = [t for t in answered_s[_WARM_UP_FRAMES - 1 :] if t <= ends_s]
        return {
            "frame_s": (measured_s[-1] - measured_s[0]) / (len(measured_s) - 1),
            "cpu_s": cpu_s / (len(answered_s) - _WARM_UP_FRAMES),
            "total_frames": len(answered_s),
            "answered_s": measured_s,
        }

    @property
    def sharing(self) -> bool:
        return self._client.sharing

    def _until_it_ends(self) -> Iterator[Frame]:
        while time.monotonic() < self._ends_s:
            yield next(self._frames)


def random_frames(client: Client, count: int) -> list[Frame]:
    """`count` copies of one random frame; in lent memory, if the client shares memory."""
    (pattern,) = frames.random_frames(frames.model_inputs(client.metadata()["model"]), 1, seed=0)
    copies = []
    for _ in range(count):
        frame = {name: client.empty(array.shape, array.dtype) for name, array in pattern.items()}
        for name, array in frame.items():
            array[...] = pattern[name]
        copies.append(frame)
    return copies


def child(endpoint: str, in_flight: int, share: bool = True) -> Child:
    streaming = Streaming(endpoint, in_flight, share)
    return obey(streaming.run, sharing=streaming.sharing)
