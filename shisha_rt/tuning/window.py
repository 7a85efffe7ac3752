"""The frames of one epoch from which a plan's measurement is made. Pure: times are passed in.

The first frames are left out: they fault in the pages of tensors that cross new cuts, once for each slot, and find
cold caches. Then frames are taken until every stage has enough. While the band is still wide more are taken, and beyond
`KEPT_FRAMES` the oldest left out again, so that a disturbance passes instead of spoiling the trial; up to a limit of
frames and one of time. What has not passed by then is there to stay, and all frames together say more of it.
"""

from __future__ import annotations

from typing import Final

from shisha_rt.plan.measurement import Measurement, measure_window

FRAMES: Final = 32
KEPT_FRAMES: Final = 128
MAX_FRAMES: Final = 512
MAX_S: Final = 5.0
WIDE_BAND: Final = 0.03


class Window:
    """Collects the service times of the stages of `epoch`; `warm_up` frames of each are passed over first.

    `last_s`: when a frame last came, or when the window was opened.
    """

    def __init__(self, epoch: int, stage_count: int, warm_up: int, now_s: float) -> None:
        self.last_s = now_s
        self.epoch = epoch
        self._warm_up = warm_up
        self._seen = [0] * stage_count
        self._service_s: list[list[float]] = [[] for _ in range(stage_count)]
        self._since_s: float | None = None

    def add(self, epoch: int, stage: int, service_s: float, now_s: float) -> Measurement | None:
        """One frame has passed `stage`; the measurement, when this frame completes it."""
        self.last_s = now_s
        if epoch != self.epoch:
            return None
        self._seen[stage] += 1
        if self._seen[stage] <= self._warm_up:
            return None
        if self._since_s is None:
            self._since_s = now_s
        self._service_s[stage].append(service_s)
        frames = min(map(len, self._service_s))
        if frames < FRAMES:
            return None
        took_s = now_s - self._since_s
        last = frames >= MAX_FRAMES or took_s >= MAX_S
        if frames % FRAMES and not last:
            return None
        kept = frames if last else KEPT_FRAMES
        found = measure_window([times[-kept:] for times in self._service_s], took_s=took_s)
        return found if last or found.band <= WIDE_BAND else None
