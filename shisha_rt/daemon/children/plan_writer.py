"""What the daemon keeps on disk while it serves, written by a thread: files may be locked, and the loop never waits."""

from __future__ import annotations

import logging
import queue
import threading
from pathlib import Path
from typing import Final

from shisha_rt.core.tuning.best import BestPlan
from shisha_rt.errors import Failure
from shisha_rt.measure import plan_store

log = logging.getLogger(__name__)

_PATIENCE_S: Final = 5.0


class PlanWriter:
    """Writer of the best plans of one model to disk. Without a path nothing is kept."""

    def __init__(self, path: Path | None, model_key: str) -> None:
        self._path = path
        self._model_key = model_key
        self._wanted: queue.SimpleQueue[tuple[str, BestPlan] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="plan_writer", daemon=True)
        self._thread.start()

    def keep(self, key: str, best: BestPlan) -> None:
        if self._path is not None:
            self._wanted.put((key, best))

    def close(self) -> None:
        """Give it a moment to write what it has."""
        self._wanted.put(None)
        self._thread.join(_PATIENCE_S)

    def _write(self) -> None:
        """What cannot be written is given up, as a plan that is lost is found again; the reason is said once."""
        said = ""
        while (wanted := self._wanted.get()) is not None:
            assert self._path is not None
            try:
                plan_store.save_plan(self._path, self._model_key, *wanted)
            except Failure as failure:
                if str(failure) != said:
                    log.warning("%s; the best plan is not kept", failure)
                said = str(failure)
