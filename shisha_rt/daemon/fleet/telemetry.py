"""How long the parts of frames took lately, per epoch and stage: what status, metrics and hang detection go by."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from shisha_rt.fabric.messages import Prepared

_WINDOW_FRAMES: Final = 128
_SEGMENT_FRAMES: Final = 32
_BUILT: Final = ("frame_bytes", "private_bytes", "build_s", "difference")


@dataclass(slots=True)
class StageWindow:
    """The last frames of one stage of one epoch, and what its worker said when it was built.

    `segments` is (frames, segments) seconds, empty unless the stage's operators are placed on devices.
    """

    service_s: deque[float] = field(default_factory=lambda: deque(maxlen=_WINDOW_FRAMES))
    cpu_s: deque[float] = field(default_factory=lambda: deque(maxlen=_WINDOW_FRAMES))
    waited_s: deque[float] = field(default_factory=lambda: deque(maxlen=_WINDOW_FRAMES))
    segments: deque[tuple[float, ...]] = field(default_factory=lambda: deque(maxlen=_SEGMENT_FRAMES))
    frames: int = 0
    built: dict[str, float | int | None] = field(default_factory=lambda: dict.fromkeys(_BUILT))

    def add(self, service_s: float, cpu_s: float, waited_s: float, segments_s: tuple[float, ...] = ()) -> None:
        self.frames += 1
        self.service_s.append(service_s)
        self.cpu_s.append(cpu_s)
        self.waited_s.append(waited_s)
        if segments_s:
            self.segments.append(segments_s)

    def note_built(self, prepared: Prepared) -> None:
        self.built = {name: getattr(prepared, name) for name in _BUILT}

    @property
    def segments_s(self) -> Sequence[float]:
        """Medians of each segment's seconds; empty while there are none."""
        return _medians(self.segments)

    def restart(self) -> None:
        """The place is another one from now on: what it did before says nothing of it."""
        for values in (self.service_s, self.cpu_s, self.waited_s, self.segments):
            values.clear()

    @property
    def median_service_s(self) -> float | None:
        return statistics.median(self.service_s) if self.service_s else None

    def summary(self) -> dict[str, float | int | None]:
        """For `status`: medians over the window, in seconds."""
        return {
            "service_s": self.median_service_s,
            "cpu_s": statistics.median(self.cpu_s) if self.cpu_s else None,
            "waited_s": statistics.median(self.waited_s) if self.waited_s else None,
            "frames": self.frames,
            **self.built,
        }


class Telemetry:
    """Windows by (epoch, stage); an epoch's are dropped when it ends."""

    def __init__(self) -> None:
        self._windows: dict[tuple[int, int], StageWindow] = {}

    def window(self, epoch: int, stage: int) -> StageWindow:
        window = self._windows.get((epoch, stage))
        if window is None:
            window = self._windows[epoch, stage] = StageWindow()
        return window

    def forget(self, epoch: int) -> None:
        for key in [key for key in self._windows if key[0] == epoch]:
            del self._windows[key]


def _medians(frames: Iterable[tuple[float, ...]]) -> list[float]:
    return [statistics.median(times) for times in zip(*frames, strict=True)]
