"""By when workers are to have loaded what they were asked for. There may be thousands: most events look at none."""

from __future__ import annotations

import math
from collections.abc import Mapping

from shisha_rt.core.lifecycle.records import WorkerState


class Loading:
    """The earliest of all times until which a worker may load; found anew only when some have gone."""

    def __init__(self, workers: Mapping[int, WorkerState]) -> None:
        self._workers = workers
        self._by_s = math.inf
        self._fewer = False

    def ask(self, worker: WorkerState, epoch: int, stage: int, until_s: float) -> None:
        worker.loading[epoch, stage] = until_s
        self._by_s = min(self._by_s, until_s)

    def note_fewer(self) -> None:
        """Some worker has loaded a stage, need not any more, or is gone."""
        self._fewer = True

    def late(self, now: float) -> list[WorkerState]:
        """The workers that have not loaded in time."""
        if now < self._by_s:
            return []
        self._fewer = True
        return [worker for worker in self._workers.values() if any(until <= now for until in worker.loading.values())]

    def wake_times(self) -> list[float]:
        """The earliest of those of workers that are not killed; none: nothing is being loaded."""
        if self._fewer:
            untils = (
                until for worker in self._workers.values() if not worker.killed for until in worker.loading.values()
            )
            self._by_s, self._fewer = min(untils, default=math.inf), False
        return [self._by_s] if self._by_s < math.inf else []
