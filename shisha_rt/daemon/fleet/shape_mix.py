"""Makes times of frames of several shapes comparable, by converting them to those of an average frame.

A small frame takes a fraction of a large one's time, so a median over both describes neither, and a comparison of plans
would depend on which frames came. So each time is multiplied by the average frame's time over that of a frame of its
shape. Both are sums over all parts of a frame, so their ratio hardly depends on the plan. Pure.
"""

from __future__ import annotations

from typing import Final

_FRAMES: Final = 256
"""The average is over so many frames; older ones count less and less."""


class ShapeMix:
    """`count`: number of shapes. With one shape every ratio is 1."""

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
