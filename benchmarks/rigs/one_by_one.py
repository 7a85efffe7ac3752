"""Unloaded latency: one frame after the other, with a pause between."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


def one_by_one(run: Callable[[], object], seconds: float, pause_s: float) -> dict[str, object]:
    """The median of `run`'s wall times, and the number of frames, at least one."""
    took_s: list[float] = []
    ends_s = time.monotonic() + seconds
    while not took_s or time.monotonic() < ends_s:
        began_s = time.perf_counter()
        run()
        took_s.append(time.perf_counter() - began_s)
        if pause_s:
            time.sleep(pause_s)
    return {"frame_s": statistics.median(took_s), "total_frames": len(took_s)}
