"""Whether a batch waits for more frames: how soon they are likely to come, and what a fuller run would save.

A client that keeps several frames in flight sends a new one for each answer. After a run's answers its next frames
come soon, but one by one: if each were dealt as it comes, the next batches would be small. So an idle team waits for
its share of the frames that are likely to follow the last answers. It does so only while their usual distance says
that its share is complete before the wait has cost most of what a run saves by being one instead of two: the part of
its time that does not depend on the number of its frames. Frames that come at random moments are too far apart.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final

_SMOOTHING: Final = 0.1
_FOLLOWS_S: Final = 0.1
"""A frame that comes later than this after an answer does not come because of it."""
_MOST_ANSWERS: Final = 256
_LEAST_VARIANCE: Final = 0.01
"""With less variance of the number of frames, runs say nothing about what each frame takes."""
_WORTH: Final = 0.75
"""The part of what one run less saves that a wait may take."""


class Returns:
    """When frames come after answers. Each frame is taken to follow the oldest answer that none has followed yet."""

    def __init__(self) -> None:
        self._answered_s: deque[float] = deque(maxlen=_MOST_ANSWERS)
        self._came_s = -math.inf
        self._apart_s = self._after_s = _FOLLOWS_S

    def answered(self, count: int, now_s: float) -> None:
        """Note that so many frames were answered."""
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
    """What runs of a stage take by their number of frames: a line of least squares, in which older runs count less.

    While only runs of one size are known, each frame is taken to need its part of their time.
    """

    __slots__ = ("_covariance", "_frames", "_mean_s", "_slope_s", "_variance")

    def __init__(self) -> None:
        self._frames = self._mean_s = self._variance = self._covariance = 0.0
        self._slope_s = math.inf

    @property
    def fixed_s(self) -> float:
        """The part of a run's time that does not depend on the number of its frames."""
        return max(0.0, self._mean_s - self._slope_s * self._frames)

    @property
    def worth_waiting_s(self) -> float:
        """How long a batch may wait for more frames."""
        return _WORTH * self.fixed_s

    def of(self, frames: int) -> float:
        """Predict the seconds of a run."""
        fixed_s = self.fixed_s
        return fixed_s + (self._mean_s - fixed_s) * frames / self._frames

    def note(self, frames: int, took_s: float) -> None:
        """Learn from a run."""
        if not self._frames:
            self._frames, self._mean_s = float(frames), took_s
        more, longer_s = frames - self._frames, took_s - self._mean_s
        self._frames += _SMOOTHING * more
        self._mean_s += _SMOOTHING * longer_s
        self._variance = (1 - _SMOOTHING) * (self._variance + _SMOOTHING * more * more)
        self._covariance = (1 - _SMOOTHING) * (self._covariance + _SMOOTHING * more * longer_s)
        if self._variance > _LEAST_VARIANCE:
            self._slope_s = max(0.0, self._covariance / self._variance)
