"""A user's program in a process of its own: streams one frame again and again, several in flight."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from benchmarks.rigs.child_process import say
from shisha_rt.client import Client
from shisha_rt.graph.datatypes import NUMPY_OF

_WARM_UP_FRAMES: Final = 24


class Streaming:
    """Bursts of frames on one connection. Times of answers are on CLOCK_MONOTONIC, which all processes share."""

    def __init__(self, endpoint: str, in_flight: int) -> None:
        self._client = Client(endpoint)
        self._in_flight = in_flight
        generator = np.random.default_rng(0)
        self._frame: dict[str, np.ndarray[Any, Any]] = {
            tensor["name"]: generator.standard_normal(tensor["shape"]).astype(NUMPY_OF[tensor["datatype"]])
            for tensor in self._client.metadata()["model"]["inputs"]
        }
        self._ends_s = 0.0

    def burst(self, seconds: float) -> dict[str, object]:
        """Stream for `seconds` after a warm-up. `total_frames` counts the warm-up and the rest in flight too."""
        self._ends_s = float("inf")
        answered_s: list[float] = []
        cpu_s = 0.0
        with self._client.stream(in_flight=self._in_flight) as stream:
            for answer in stream.run(self._frames()):
                answered_s.append(time.monotonic())
                if len(answered_s) == _WARM_UP_FRAMES:
                    cpu_s = time.process_time()
                    self._ends_s = answered_s[-1] + seconds
                del answer
        cpu_s = time.process_time() - cpu_s
        ends_s = max(self._ends_s, answered_s[_WARM_UP_FRAMES])  # one frame at least, on however busy a host
        measured_s = [t for t in answered_s[_WARM_UP_FRAMES - 1 :] if t <= ends_s]
        return {
            "frame_s": (measured_s[-1] - measured_s[0]) / (len(measured_s) - 1),
            "cpu_s": cpu_s / (len(answered_s) - _WARM_UP_FRAMES),
            "total_frames": len(answered_s),
            "answered_s": measured_s,
        }

    def _frames(self) -> Iterator[dict[str, np.ndarray[Any, Any]]]:
        while time.monotonic() < self._ends_s:
            yield self._frame


def main(arguments: list[str]) -> int:
    settings = json.loads(arguments[0])
    streaming = Streaming(settings["endpoint"], settings["in_flight"])
    say(ready=True)
    for line in sys.stdin:
        say(**streaming.burst(**json.loads(line)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
