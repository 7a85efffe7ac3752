"""Whether a batch waits for more frames: how soon they are likely to come, and what a fuller run would save.

A client that keeps several frames in flight sends a new one for each answer. After a run's answers its next frames
come soon, but one by one: if each were dealt as it comes, the next batches would be small. So an idle team waits for
its share of the frames that are likely to follow the last answers. It does so only while their usual distance says
that its share is complete before the wait has cost most of what a run saves by being one instead of two: the part of
its time that does not depend on the number of its frames. Frames that come at random moments are mostly too far apart.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Final

_SMOOTHING: Final = 0.1
_FOLLOWS_S: Final = 0.1
"""A frame that comes later than this after an answer does not come because of it."""
_MOST_ANSWERS: Final = 256
_LEAST_VARIANCE: Final = 0.01
"""With less variance of the number of frames, runs say nothing about what each frame takes."""
_LEAST_SLOPE: Final = 0.01
"""A frame takes at least this part of a mean run: an overhead of 100 frames is as good as any greater one."""
_WORTH: Final = 0.75
"""The part of what one run less saves that a wait may take."""


class Returns:
    """When frames come after answers. Each frame is taken to follow the oldest answer that none has followed yet."""

    def __init__(self) -> None:
        self._answered_s: deque[float] = deque(maxlen=_MOST_ANSWERS)
        self._came_s = -math.inf
        self._apart_s = self._after_s = 2 * _FOLLOWS_S  # none is waited for until shorter ones have been seen

    def answered(self, count: int, now_s: float) -> None:
        for _ in range(count):
            self._answered_s.append(now_s)

    def came(self, now_s: float) -> None:
        """Note that a frame was accepted.

        If it follows an earlier answer than the last frame's arrival, its distance from that frame is learned; if not,
        its distance from the answer.
        """
        self._forget(now_s)
        if self._answered_s:
            answered_s = self._answered_s.popleft()
            if answered_s <= self._came_s:
                self._apart_s += _SMOOTHING * (now_s - self._came_s - self._apart_s)
            else:
                self._after_s += _SMOOTHING * (now_s - answered_s - self._after_s)
        self._came_s = now_s

    def filled(self, ready: int, returning: int, teams: int, most: int, now_s: float) -> tuple[int, float]:
        """How many frames the next run would have if it waited, `most` at most, and how long that would take.

        `ready`: the frames that `teams` idle teams share now. `returning`: frames of the team's present run, whose
        answers others will follow.
        """
        self._forget(now_s)
        frames = min(most, -(-(ready + returning + len(self._answered_s)) // teams))
        return frames, max(1, frames - ready) * self._apart_s + (self._after_s if returning else 0.0)

    def _forget(self, now_s: float) -> None:
        """Forget answers that no frame will follow any more."""
        while self._answered_s and now_s - self._answered_s[0] > _FOLLOWS_S:
            self._answered_s.popleft()


class RunTimes:
    """What runs of a stage take on each place, by their number of frames; older runs count less.

    A run takes a place as long as its frames and some more, `overhead_frames`, which is alike for all places: a place
    whose runs have one size tells nothing of it. It is the intercept of a line of least squares over its slope, of the
    place that told last; 0 before any has had runs of several sizes.
    """

    def __init__(self) -> None:
        self.overhead_frames = 0.0
        self._places: dict[str, _Runs] = {}

    def __bool__(self) -> bool:
        """Whether any run is known."""
        return bool(self._places)

    def note(self, place: str, frames: int, took_s: float) -> None:
        runs = self._places.get(place)
        if runs is None:
            self._places[place] = _Runs(float(frames), took_s)
        elif (overhead := runs.note(frames, took_s)) is not None:
            self.overhead_frames = overhead

    def of(self, place: str, frames: int) -> float:
        """Predict the seconds of a run; 0 if none is known of the place."""
        runs = self._places.get(place)
        if runs is None:
            return 0.0
        return runs.mean_s * (self.overhead_frames + frames) / (self.overhead_frames + runs.frames)

    def alone_s(self) -> float:
        """Predict the seconds of a frame by itself on the fastest place."""
        return min(self.of(place, 1) for place in self._places)

    def worth_waiting_s(self, place: str) -> float:
        """How long a batch may wait for more frames."""
        return min(_WORTH * self.of(place, 0), _FOLLOWS_S)


@dataclass(slots=True)
class _Runs:
    """Moving averages of the runs of a place: their frames and seconds, the variance of those and the covariance."""

    frames: float
    mean_s: float
    variance: float = 0.0
    covariance: float = 0.0

    def note(self, frames: int, took_s: float) -> float | None:
        """Learn from a run; return how many frames more each run takes as long as, None if that is not known."""
        more, longer_s = frames - self.frames, took_s - self.mean_s
        self.frames += _SMOOTHING * more
        self.mean_s += _SMOOTHING * longer_s
        self.variance = (1 - _SMOOTHING) * (self.variance + _SMOOTHING * more * more)
        self.covariance = (1 - _SMOOTHING) * (self.covariance + _SMOOTHING * more * longer_s)
        if self.variance < _LEAST_VARIANCE:
            return None
        a_frame_s = max(self.covariance / self.variance, _LEAST_SLOPE * self.mean_s)
        return max(0.0, self.mean_s / a_frame_s - self.frames)
