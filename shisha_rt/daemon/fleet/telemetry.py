"""How long the parts of frames took lately, per epoch and stage: what status, metrics and hang detection go by."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from shisha_rt.fabric.messages import Prepared

_WINDOW_FRAMES: Final = 128
_SEGMENT_FRAMES: Final = 32


@dataclass(slots=True)
class StageWindow:
    """The last frames of one stage of one epoch. `frame_bytes`: weights, inputs and outputs that a frame moves.

    `segments` is (frames, segments) seconds, empty unless the stage's operators are placed on devices.
    """

    service_s: deque[float] = field(default_factory=lambda: deque(maxlen=_WINDOW_FRAMES))
    cpu_s: deque[float] = field(default_factory=lambda: deque(maxlen=_WINDOW_FRAMES))
    waited_s: deque[float] = field(default_factory=lambda: deque(maxlen=_WINDOW_FRAMES))
    segments: deque[tuple[float, ...]] = field(default_factory=lambda: deque(maxlen=_WINDOW_FRAMES))
    frames: int = 0
    prepared: Prepared | None = None
    _untaken: int = 0

    def add(self, service_s: float, cpu_s: float, waited_s: float, segments_s: tuple[float, ...] = ()) -> None:
        self.frames += 1
        self.service_s.append(service_s)
        self.cpu_s.append(cpu_s)
        self.waited_s.append(waited_s)
        if segments_s:
            self.segments.append(segments_s)
            self._untaken += 1

    def take_segments(self, frames: int) -> Sequence[float] | None:
        """Medians of each segment's seconds over the last `frames`, once there are so many since the last call."""
        if self._untaken < frames:
            return None
        self._untaken = 0
        return _medians(list(self.segments)[-frames:])

    @property
    def segments_s(self) -> Sequence[float]:
        """Medians of each segment's seconds; empty while there are none."""
        return _medians(list(self.segments)[-_SEGMENT_FRAMES:])

    def restart(self) -> None:
        """The place is another one from now on: what it did before says nothing of it."""
        for values in (self.service_s, self.cpu_s, self.waited_s, self.segments):
            values.clear()
        self._untaken = 0

    @property
    def median_service_s(self) -> float | None:
        return statistics.median(self.service_s) if self.service_s else None

    def summary(self) -> dict[str, float | int | None]:
        """For `status`: medians over the window, in seconds."""
        prepared = self.prepared
        return {
            "service_s": self.median_service_s,
            "cpu_s": statistics.median(self.cpu_s) if self.cpu_s else None,
            "waited_s": statistics.median(self.waited_s) if self.waited_s else None,
            "frames": self.frames,
            "frame_bytes": prepared.frame_bytes if prepared else None,
            "private_bytes": prepared.private_bytes if prepared else None,
            "build_s": prepared.build_s if prepared else None,
            "difference": prepared.difference if prepared else None,
        }


class Telemetry:
    """Windows by (epoch, stage); an epoch's are dropped when it ends."""

    def __init__(self) -> None:
        self._windows: dict[tuple[int, int], StageWindow] = {}

    def window(self, epoch: int, stage: int) -> StageWindow:
        return self._windows.setdefault((epoch, stage), StageWindow())

    def forget(self, epoch: int) -> None:
        for key in [key for key in self._windows if key[0] == epoch]:
            del self._windows[key]


def _medians(frames: Sequence[tuple[float, ...]]) -> list[float]:
    return [statistics.median(times) for times in zip(*frames, strict=True)]
