"""Frames without a pause, from a thread of the benchmark, with a check of every answer (R1).

Three frames take turns. An answer must have a larger number than the one before, and equal the first answer to the same
frame, except for last bits, which other cuts may change: so a frame that was lost, answered twice, confused with
another or computed by two plans is detected.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import numpy as np

from shisha_rt.cli.drive.frames import Frame, model_inputs, random_frames
from shisha_rt.client import Answer, Client, ShishaError

_FRAMES: Final = 3
_TIMEOUT_S: Final = 120.0
_LOOK_EVERY_S: Final = 0.02
_RTOL, _ATOL = 1e-4, 1e-5

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Tally:
    """Results of all frames: `answered` of `sent`, and numbers of faults."""

    sent: int
    answered: int
    errors: int
    out_of_order: int
    different: int

    @property
    def lost(self) -> int:
        return self.sent - self.answered - self.errors

    @property
    def row(self) -> dict[str, int]:
        return {
            "sent": self.sent,
            "answered": self.answered,
            "lost": self.lost,
            "refused": self.errors,
            "out of order": self.out_of_order,
            "different": self.different,
        }

    @property
    def clean(self) -> bool:
        return not (self.lost or self.errors or self.out_of_order or self.different)


class SteadyLoad:
    """A context in which frames are sent. `answers`: (time, epoch) of each, by the clock of the daemon's events."""

    def __init__(self, endpoint: str, in_flight: int) -> None:
        self.answers: list[tuple[float, int]] = []
        self._endpoint = endpoint
        self._in_flight = in_flight
        self._sent = self._errors = self._out_of_order = self._different = 0
        self._last_frame = -1
        self._expected: dict[int, Mapping[str, Array]] = {}
        self._stopping = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="load")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> Tally:
        """Stop sending, wait for frames in flight, and return the tally."""
        self._stopping = True
        self._thread.join()
        return self.tally

    @property
    def tally(self) -> Tally:
        return Tally(self._sent, len(self.answers), self._errors, self._out_of_order, self._different)

    def check(self) -> None:
        """Raises the error that has ended the load, if any."""
        if self._failure is not None:
            raise RuntimeError("the load has ended") from self._failure

    def wait(self, came: Callable[[], object], most_s: float) -> bool:
        """Wait until `came` holds; return whether it did within `most_s`. Raises as `check` does."""
        until_s = time.monotonic() + most_s
        while not came():
            self.check()
            if time.monotonic() > until_s:
                return False
            time.sleep(_LOOK_EVERY_S)
        return True

    def answered_since(self, time_s: float) -> int:
        return sum(at_s >= time_s for at_s, _ in self.answers)

    def _run(self) -> None:
        try:
            with Client(self._endpoint, timeout_s=_TIMEOUT_S) as client:
                frames = random_frames(model_inputs(client.metadata()["model"]), _FRAMES, seed=0)
                with client.stream(in_flight=self._in_flight) as stream:
                    for number, outcome in enumerate(stream.run(self._endless(frames), errors="return")):
                        self._take(number % _FRAMES, outcome)
        except BaseException as failure:
            self._failure = failure

    def _endless(self, frames: list[Frame]) -> Iterator[Frame]:
        while not self._stopping:
            self._sent += 1
            yield frames[(self._sent - 1) % _FRAMES]

    def _take(self, which: int, outcome: Answer | ShishaError) -> None:
        if isinstance(outcome, ShishaError):
            self._errors += 1
            return
        self.answers.append((time.time(), outcome.epoch))
        self._out_of_order += outcome.frame <= self._last_frame
        self._last_frame = outcome.frame
        expected = self._expected.setdefault(which, {name: np.array(array) for name, array in outcome.outputs.items()})
        equal = all(np.allclose(array, expected[name], _RTOL, _ATOL) for name, array in outcome.outputs.items())
        self._different += not equal
