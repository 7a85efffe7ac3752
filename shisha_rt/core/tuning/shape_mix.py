"""Frames of several shapes, made comparable: what a part took, as if its frame were the average of those that come.

A small frame takes a fraction of what a large one does, so the median of both together says nothing of either, and
which plan is better would be told by which frames came. So each time is multiplied by what the average frame takes over
what a frame of its shape takes, both by the sums over all of its parts: a ratio that a change of plan hardly changes.
"""

from __future__ import annotations

from typing import Final

_FRAMES: Final = 256
"""So many make the average; what came longer ago counts less and less."""


class ShapeMix:
    """`count` shapes, by number. Of one there is nothing to compare, and every ratio is 1."""

    def __init__(self, count: int) -> None:
        self._frames = [0] * count
        self._frame_s = [0.0] * count
        self._shares = [0.0] * count
        self._ratios = [1.0] * count

    def came(self, shape: int, compute_s: float) -> None:
        """A frame of `shape` was answered, whose parts took `compute_s` together."""
        if len(self._ratios) == 1 or compute_s <= 0:
            return
        step = 1 / min(_FRAMES, 1 + sum(self._frames))
        self._shares = [share + step * ((i == shape) - share) for i, share in enumerate(self._shares)]
        self._frames[shape] += 1
        self._frame_s[shape] += (compute_s - self._frame_s[shape]) / min(_FRAMES, self._frames[shape])
        average_s = sum(share * frame_s for share, frame_s in zip(self._shares, self._frame_s, strict=True))
        self._ratios = [average_s / frame_s if frame_s else 1.0 for frame_s in self._frame_s]

    def ratio(self, shape: int) -> float:
        """Factor that turns times of a frame of `shape` into those of the average frame.

        1 before the first such frame.
        """
        return self._ratios[shape]
