"""Sending frames to a server, by any protocol: in bursts with a number of frames in flight, or at predetermined times.

Only numpy is used beside the standard library, as a client may run under its server's own interpreter.
"""

from __future__ import annotations

import math
import queue
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Protocol

import numpy as np

from benchmarks.rigs.child_process import Child, Fields, obey

_WARM_UP_FRAMES: Final = 24
_DRAIN_S: Final = 60.0

ANSWERED: Final = "answered"
REFUSED: Final = "refused"


class Asker(Protocol):
    """One or several connections to a server. Frames have numbers, which are never used again."""

    def send(self, number: int) -> None: ...

    def wait(self, timeout_s: float) -> list[tuple[int, str]]:
        """Results by number: `ANSWERED`, `REFUSED`, or an error's text. Empty if none came within `timeout_s`."""
        ...


class Asking:
    """Sends bursts and arrivals. Raises `RuntimeError` if an answer to a burst is an error, or does not come.

    `drain_s`: frames without an answer so long after the last one was sent are lost.
    """

    def __init__(self, asker: Asker, drain_s: float = _DRAIN_S) -> None:
        self._asker = asker
        self._drain_s = drain_s
        self._next = 0

    def burst(self, seconds: float, in_flight: int) -> Fields:
        """A burst as in `client_process`: for `seconds` after a warm-up; `total_frames` counts all frames."""
        self._asker.wait(0)  # connections may have ended since
        ends_s = float("inf")
        answered_s: list[float] = []
        out = 0
        while out or len(answered_s) <= _WARM_UP_FRAMES:
            while out < in_flight and (len(answered_s) + out <= _WARM_UP_FRAMES or time.monotonic() < ends_s):
                self._send()
                out += 1
            came = self._asker.wait(self._drain_s)
            if not came:
                raise RuntimeError(f"no answer within {self._drain_s:g} s")
            for _, outcome in came:
                out -= 1
                if outcome != ANSWERED:
                    raise RuntimeError(f"a frame was {outcome}")
                answered_s.append(time.monotonic())
                if len(answered_s) == _WARM_UP_FRAMES:
                    ends_s = answered_s[-1] + seconds
        ends_s = max(ends_s, answered_s[_WARM_UP_FRAMES])  # at least one frame, even on a busy host
        measured_s = [t for t in answered_s[_WARM_UP_FRAMES - 1 :] if t <= ends_s]
        frame_s = (measured_s[-1] - measured_s[0]) / (len(measured_s) - 1)
        return {"frame_s": frame_s, "total_frames": len(answered_s)}

    def arrivals(self, arrivals: Sequence[float], count_from_s: float = 0.0) -> Fields:
        """Send frames at `arrivals` (seconds after the call), however many are in flight; latencies count from then.

        Frames before `count_from_s` are not counted, unless they fail or are lost.
        """
        self._asker.wait(0)  # connections may have ended since
        begun_s = time.monotonic()
        due_s: dict[int, float] = {}
        heard = Heard(count_from_s=begun_s + count_from_s)
        for after_s in arrivals:
            while (left_s := begun_s + after_s - time.monotonic()) > 0:
                self._hear(left_s, due_s, heard)
            due_s[self._send()] = begun_s + after_s
            self._hear(0, due_s, heard)
        until_s = time.monotonic() + self._drain_s
        while due_s and time.monotonic() < until_s:
            self._hear(until_s - time.monotonic(), due_s, heard)
        heard.lost = len(due_s)
        return asdict(heard)

    def _send(self) -> int:
        self._next += 1
        self._asker.send(self._next)
        return self._next

    def _hear(self, timeout_s: float, due_s: dict[int, float], heard: Heard) -> None:
        for number, outcome in self._asker.wait(timeout_s):
            if number in due_s:  # otherwise an earlier call has counted it as lost
                heard.take(due_s.pop(number), time.monotonic(), outcome)


@dataclass(slots=True)
class Heard:
    """Results of frames that were to be sent at their times; latencies count from these. `count_from_s`: those due
    before do not count, unless they fail.
    """

    latencies_s: list[float] = field(default_factory=list)
    refused: int = 0
    failed: int = 0
    lost: int = 0
    count_from_s: float = -math.inf

    def take(self, due_s: float, now_s: float, outcome: str) -> None:
        if outcome not in (ANSWERED, REFUSED):
            self.failed += 1
        elif due_s < self.count_from_s:
            return
        elif outcome == ANSWERED:
            self.latencies_s.append(now_s - due_s)
        else:
            self.refused += 1

    @property
    def sent(self) -> int:
        return len(self.latencies_s) + self.refused + self.failed + self.lost

    @property
    def refused_percent(self) -> float:
        return 100 * self.refused / max(1, self.sent)


class Came:
    """Results of an `Asker` that its other threads put there."""

    def __init__(self) -> None:
        self._came: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()

    def wait(self, timeout_s: float) -> list[tuple[int, str]]:
        try:
            return [self._came.get(timeout=timeout_s) if timeout_s > 0 else self._came.get_nowait()]
        except queue.Empty:
            return []


def obeying(asking: Asking, in_flight: int) -> Child:
    """Carry out orders: `seconds` of a burst, or `arrivals` (see `Asking`)."""
    return obey(
        lambda **order: asking.arrivals(**order) if "arrivals" in order else asking.burst(order["seconds"], in_flight)
    )


def random_inputs(inputs: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """One frame by `name`, `shape` and `dtype` of its inputs. Integers are 0 or 1, as they may be indexes or masks."""
    rng, frame = np.random.default_rng(0), {}
    for tensor in inputs:
        shape, dtype = tensor["shape"], np.dtype(tensor["dtype"])
        drawn = rng.standard_normal(shape) if dtype.kind == "f" else rng.integers(0, 2, shape)
        frame[tensor["name"]] = drawn.astype(dtype)
    return frame


def raw_frame(inputs: Sequence[Mapping[str, Any]]) -> bytes:
    return b"".join(array.tobytes() for array in random_inputs(inputs).values())


def one_by_one(run: Callable[[], object], seconds: float, pause_s: float) -> Fields:
    """The median of `run`'s wall times, and the number of frames, at least one."""
    took_s: list[float] = []
    ends_s = time.monotonic() + seconds
    while not took_s or time.monotonic() < ends_s:
        began_s = time.perf_counter()
        run()
        took_s.append(time.perf_counter() - began_s)
        if pause_s:
            time.sleep(pause_s)
    return {"frame_s": statistics.median(took_s), "total_frames": len(took_s)}
